"""Losses as a learner reads them: one protocol, which every loss of this package keeps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from tensordict import TensorDictBase
from tensordict.utils import NestedKey
from torch import Tensor


@runtime_checkable
class UpdateLoss(Protocol):
    """Loss that tells a learner its terms, with the actor's or without.

    Terms whose names begin with ``loss`` are summed and minimized; all others are reports. A loss
    that learns values alone has no actor's terms and gives the same with ``actor`` and without.
    ``trainers.loss_adapter`` makes one of any ``LossModule``.
    """

    @property
    def metric_names(self) -> Sequence[str]:
        """Names of all that an update may report."""

    @property
    def priority_key(self) -> NestedKey | None:
        """Entry of a batch into which ``update_terms`` writes priorities; None without one."""

    @property
    def observes(self) -> bool:
        """Whether ``observe`` wants to see newly collected data."""

    def observe(self, tensordict: TensorDictBase) -> None:
        """Take note of newly collected data."""

    def update_terms(self, tensordict: TensorDictBase, *, actor: bool = True) -> dict[str, Tensor]:
        """Terms of one update; without ``actor`` only those of the critics."""

    def backward_terms(
        self, tensordict: TensorDictBase, *, actor: bool = True
    ) -> dict[str, Tensor]:
        """Terms of one update, with the gradients of their sum added to the parameters."""


@runtime_checkable
class RolloutLoss(UpdateLoss, Protocol):
    """Loss that first turns a rollout into rows to learn from."""

    @property
    def row_keys(self) -> Sequence[NestedKey]:
        """Entries of an estimated rollout that ``update_terms`` and ``report`` read."""

    @property
    def report_keys(self) -> Sequence[str]:
        """Names of all that ``report`` says."""

    def estimate(self, rollout: TensorDictBase) -> TensorDictBase:
        """Write advantages, value targets and values into a rollout ``[*B, T]``."""

    def report(self, rows: TensorDictBase) -> dict[str, Tensor]:
        """Statistics of the policy after its updates."""

    def divergence(self, rows: TensorDictBase) -> Tensor:
        """Divergence of the policy from the one that collected ``rows``."""
