"""REDQ: the options that it adds to those of SAC's family."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from torchrl.data import TensorSpec

from torchrl_elegant.algorithms.base import check, option
from torchrl_elegant.algorithms.registry import register
from torchrl_elegant.algorithms.sac import EntropyRegularizedConfig
from torchrl_elegant.algorithms.schedules import ActorSchedule, EveryUpdate
from torchrl_elegant.objectives import REDQLoss


@register("redq")
@dataclass(frozen=True, kw_only=True)
class REDQConfig(EntropyRegularizedConfig):
    """SAC with many updates of many critics a frame (Chen et al. 2021, arXiv:2101.05982).

    N critics are updated G times a frame, towards targets over M of them. After the last of these
    updates the actor learns once; it maximizes the mean over the critics.

    >>> config = REDQConfig(updates_per_frame=5)
    >>> config.num_critics, config.target_members, config.build_schedule().period
    (10, 2, 5)
    """

    updates_per_frame: float = option(20.0, "updates of the critics per collected frame, G")
    num_critics: int = option(10, "number of critics, N")
    target_members: int | None = option(
        2, "critics drawn anew for the minimum of each target, M; none: all"
    )
    target: Literal["subset", "weighted"] = option(
        "subset",
        "value of a target: minimum of the drawn critics, or 1/3 minimum + 2/3 mean of all",
        topic="critics",
    )

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
        """One step of all environments: G updates cost far more than handing it over."""
        return num_envs

    def build_loss(self, actor: Any, critic: Any, *, action_spec: TensorSpec) -> REDQLoss:
        arguments = self.loss_arguments(action_spec)
        members = arguments.pop("target_members")
        if self.target == "subset":
            arguments["sub_sample_len"] = members or self.num_critics
        return REDQLoss(actor, critic, target=self.target, **arguments)

    def build_schedule(self) -> ActorSchedule:
        return EveryUpdate(period=max(1, round(self.updates_per_frame)))
