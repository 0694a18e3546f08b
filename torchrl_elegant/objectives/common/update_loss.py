"""Losses as a learner reads them: one protocol, and its default answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from tensordict import TensorDictBase
from tensordict.utils import NestedKey
from torch import Tensor

from torchrl_elegant.data.running_statistics import Gather


@runtime_checkable
class UpdateLoss(Protocol):
    """Loss that tells a learner its terms, with the actor's or without.

    Terms whose names begin with ``loss`` are summed and minimized; all others are reports. A loss
    that learns values alone has no actor's terms and gives the same with ``actor`` and without.
    ``whole_loss.as_update_loss`` makes one of any ``LossModule``.
    """

    @property
    def metric_names(self) -> Sequence[str]:
        """Names of all that an update may report."""

    @property
    def priority_key(self) -> NestedKey | None:
        """Entry of a batch into which ``update_terms`` writes priorities; None without one."""

    @property
    def splits_actor(self) -> bool:
        """True if an update can leave the actor out."""

    @property
    def observes(self) -> bool:
        """True if ``observe`` wants newly collected data."""

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

    def rows(self, estimated: TensorDictBase) -> TensorDictBase:
        """Cut an estimated rollout into what is shuffled: steps, or sequences of them."""

    def report(self, rows: TensorDictBase) -> dict[str, Tensor]:
        """Statistics of the policy after its updates."""

    def divergence(self, rows: TensorDictBase) -> Tensor:
        """Divergence of the policy from the one that collected ``rows``."""

    def connect(self, gather: Gather) -> None:
        """Take the function that brings statistics of all ranks together."""


def minimized(terms: Mapping[str, Tensor]) -> Tensor:
    """Sum of the terms that an update minimizes.

    >>> import torch
    >>> one = torch.ones(())
    >>> minimized({"loss_actor": one, "loss_qvalue": 2 * one, "entropy": 4 * one}).item()
    3.0
    """
    losses = [value for name, value in terms.items() if name.startswith("loss")]
    return sum(losses[1:], start=losses[0])


class UpdateDefaults:
    """Answers to ``UpdateLoss`` that this package's losses share; stands before ``LossModule``.

    A subclass gives ``metric_names`` and ``update_terms``, and overrides answers that differ.
    """

    splits_actor: bool = True

    @property
    def priority_key(self) -> NestedKey | None:
        return None

    @property
    def observes(self) -> bool:
        return False

    def observe(self, tensordict: TensorDictBase) -> None:
        """Do nothing: this loss needs batches alone."""

    def update_terms(self, tensordict: TensorDictBase, *, actor: bool = True) -> dict[str, Tensor]:
        raise NotImplementedError

    def backward_terms(
        self, tensordict: TensorDictBase, *, actor: bool = True
    ) -> dict[str, Tensor]:
        """See ``UpdateLoss``; the gradients are autograd's."""
        terms = self.update_terms(tensordict, actor=actor)
        minimized(terms).backward()
        return {name: value.detach() for name, value in terms.items()}
