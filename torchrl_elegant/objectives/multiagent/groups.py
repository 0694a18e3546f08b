"""Losses of several groups as one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from tensordict import NestedKey, TensorDict, TensorDictBase
from torch import Tensor, nn
from torchrl.objectives import LossModule

from torchrl_elegant.data.running_statistics import Gather
from torchrl_elegant.objectives.common.update_loss import UpdateDefaults
from torchrl_elegant.objectives.common.whole_loss import as_update_loss


class GroupLosses(UpdateDefaults, LossModule):
    """Losses of groups of agents that learn side by side, each from its own entries.

    The terms of a group end in its name: ``loss_actor_red``. Rewards may be opposed: no term of a
    group reaches the parameters of another.

    Args:
        losses: the loss of each group, by the group's name.

    >>> from torchrl_elegant.algorithms import MADDPGConfig
    >>> from torchrl_elegant.envs import make_env
    >>> env = make_env("vmas/simple_tag", 2)
    >>> loss = MADDPGConfig(num_cells=(8,)).assemble(env).loss
    >>> sorted(loss(env.rollout(2).reshape(-1)).keys())[:2]
    ['loss_actor_adversary', 'loss_actor_agent']
    """

    def __init__(self, losses: Mapping[str, LossModule]) -> None:
        super().__init__()
        self.losses = nn.ModuleDict(losses)

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        return TensorDict(self.update_terms(tensordict), batch_size=[])

    def update_terms(self, tensordict: TensorDictBase, *, actor: bool = True) -> dict[str, Tensor]:
        return {
            f"{term}_{name}": value
            for name, loss in self._each()
            for term, value in loss.update_terms(tensordict, actor=actor).items()
        }

    @property
    def splits_actor(self) -> bool:  # type: ignore[override]
        return all(loss.splits_actor for _, loss in self._each())

    @property
    def metric_names(self) -> list[str]:
        return [f"{term}_{name}" for name, loss in self._each() for term in loss.metric_names]

    @property
    def in_keys(self) -> list[NestedKey]:
        """Entries that the groups read, each once."""
        return list(dict.fromkeys(key for _, loss in self._each() for key in loss.in_keys))

    @in_keys.setter
    def in_keys(self, values: list[NestedKey]) -> None:
        raise AttributeError("`in_keys` are those of the groups; set the keys of a group's loss")

    def _each(self) -> Iterable[tuple[str, Any]]:
        return ((name, as_update_loss(loss)) for name, loss in self.losses.items())


class GroupRolloutLosses(GroupLosses):
    """``GroupLosses`` of groups that learn from whole rollouts."""

    @property
    def row_keys(self) -> list[NestedKey]:
        """Entries of an estimated rollout that the groups read, each once."""
        return list(dict.fromkeys(key for _, loss in self._each() for key in loss.row_keys))

    @property
    def report_keys(self) -> list[str]:
        """Names of all that ``report`` says."""
        return [f"{key}_{name}" for name, loss in self._each() for key in loss.report_keys]

    def estimate(self, rollout: TensorDictBase) -> TensorDictBase:
        """Write the advantages of each group into a rollout ``[*B, T]``."""
        for _, loss in self._each():
            rollout = loss.estimate(rollout)
        return rollout

    def rows(self, estimated: TensorDictBase) -> TensorDictBase:
        """See ``RolloutLoss``."""
        return estimated.select(*self.row_keys).reshape(-1)

    def report(self, rows: TensorDictBase) -> dict[str, Tensor]:
        """Statistics of each group's policy after its updates."""
        return {
            f"{key}_{name}": value
            for name, loss in self._each()
            for key, value in loss.report(rows).items()
        }

    def divergence(self, rows: TensorDictBase) -> Tensor:
        """Largest divergence of a group's policy from the one that collected ``rows``."""
        return torch.stack([loss.divergence(rows) for _, loss in self._each()]).amax()

    def connect(self, gather: Gather) -> None:
        """See ``RolloutLoss``."""
        for _, loss in self._each():
            loss.connect(gather)
