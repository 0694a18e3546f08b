"""Parts of several groups of agents, joined to those of one learner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torchrl.objectives.utils import TargetNetUpdater

from torchrl_elegant.algorithms.adam import LeanAdam
from torchrl_elegant.algorithms.base import Parts
from torchrl_elegant.algorithms.schedules import EveryUpdate, KLRate, LearningRate, Ramp
from torchrl_elegant.modules.multiagent.actors import GroupActors
from torchrl_elegant.objectives.common.update_loss import RolloutLoss
from torchrl_elegant.objectives.multiagent.groups import GroupLosses, GroupRolloutLosses


class GroupUpdaters:
    """Updaters of the target networks of several groups."""

    def __init__(self, updaters: Mapping[str, TargetNetUpdater]) -> None:
        self.updaters = dict(updaters)

    def step(self) -> None:
        """Move the targets of each group."""
        for updater in self.updaters.values():
            updater.step()

    def state_dict(self) -> dict[str, Any]:
        return {name: updater.state_dict() for name, updater in self.updaters.items()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        for name, updater in self.updaters.items():
            updater.load_state_dict(state_dict[name])


def joined_parts(parts: Mapping[str, Parts]) -> Parts:
    """Parts that train all groups in each update: one policy, one loss, one optimizer.

    The groups' parts must be of one family, and their actors must learn at the same updates.

    >>> from torchrl_elegant.algorithms import MADDPGConfig
    >>> from torchrl_elegant.envs import make_env
    >>> parts = MADDPGConfig(num_cells=(8,)).assemble(make_env("vmas/simple_tag", 2))
    >>> parts.policy.out_keys, len(parts.optimizer.param_groups)
    ([('adversary', 'action'), ('agent', 'action')], 4)
    """
    first = next(iter(parts.values()))
    if len(parts) == 1:
        return first
    periods = {name: _period(one) for name, one in parts.items()}
    if len(set(periods.values())) > 1:
        raise ValueError(
            f"`actor_period` must be the same for all groups, got {periods}; set it by name"
        )
    losses = {name: one.loss for name, one in parts.items()}
    rollouts = isinstance(first.loss, RolloutLoss)
    updaters = {name: one.target_updater for name, one in parts.items() if one.target_updater}
    optimizer = LeanAdam(
        [dict(group) for one in parts.values() for group in one.optimizer.param_groups]
    )
    ramps, offset = list[Ramp](), 0
    for one in parts.values():
        ramps += [_moved(ramp, optimizer, offset) for ramp in one.ramps]
        offset += len(one.optimizer.param_groups)
    rate = first.kl_rate and KLRate(optimizer, target=first.kl_rate.target)
    return replace(
        first,
        kl_rate=rate,
        policy=GroupActors({name: one.policy for name, one in parts.items()}),
        loss=(GroupRolloutLosses if rollouts else GroupLosses)(losses),
        optimizer=optimizer,
        target_updater=GroupUpdaters(updaters) if updaters else None,
        ramps=tuple(ramps),
    )


def _period(parts: Parts) -> int | None:
    """Updates of the critics for each of the actor."""
    return parts.schedule.period if isinstance(parts.schedule, EveryUpdate) else None


def _moved(ramp: Ramp, optimizer: LeanAdam, offset: int) -> Ramp:
    """The ramp of a learning rate, for its parameter group's place in ``optimizer``."""
    if not isinstance(ramp.apply, LearningRate):
        return ramp
    return replace(ramp, apply=LearningRate(optimizer, offset + ramp.apply.group))
