"""REDQ: what its configuration adds to SAC's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torchrl_elegant.algorithms.base import check, option
from torchrl_elegant.algorithms.registry import register
from torchrl_elegant.algorithms.sac import SACConfig
from torchrl_elegant.algorithms.schedules import ActorSchedule, EveryUpdate
from torchrl_elegant.modules import EnsembleCritic, SquashedGaussianActor
from torchrl_elegant.objectives import REDQLoss


@register("redq")
@dataclass(frozen=True, kw_only=True)
class REDQConfig(SACConfig):
    """SAC with many updates of many critics a frame (Chen et al. 2021, arXiv:2101.05982).

    N critics are updated G times a frame, towards targets of which each takes M of them; after the
    last of these updates the actor follows once, and raises their mean.

    >>> config = REDQConfig(updates_per_frame=5)
    >>> config.num_critics, config.target_members, config.build_schedule().period
    (10, 2, 5)
    """

    updates_per_frame: float = option(20.0, "updates of the critics per collected frame, G")
    num_critics: int = option(10, "size of the critic ensemble, N")
    target_members: int | None = option(
        2, "critics drawn anew for each target's minimum, M; none: all"
    )
    target: Literal["subset", "weighted"] = option(
        "subset",
        "a target's value: minimum of the drawn critics, or 1/3 minimum + 2/3 mean of all",
    )
    actor_value: Literal["mean"] = option("mean", "what of the ensemble the actor raises")

    def __post_init__(self) -> None:
        super().__post_init__()
        check(
            self.target == "subset" or self.target_members is None,
            "target_members",
            "be none with target=weighted, which draws none",
            self.target_members,
            "set target_members=none, or target=subset",
        )

    def frames_per_batch(self, *, total_frames: int, num_envs: int) -> int:
        """One step of all environments: beside G updates, handing it over costs nothing."""
        return num_envs

    def build_loss(self, actor: SquashedGaussianActor, critic: EnsembleCritic) -> REDQLoss:
        arguments = self.loss_arguments()
        members = arguments.pop("target_members")
        del arguments["actor_value"]
        if self.target == "subset":
            arguments["sub_sample_len"] = members or self.num_critics
        return REDQLoss(actor, critic, target=self.target, **arguments)

    def build_schedule(self) -> ActorSchedule:
        return EveryUpdate(period=max(1, round(self.updates_per_frame)))
