"""Self-play: earlier selves that are kept over a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from torchrl_elegant.algorithms.add_ons import AddOn
from torchrl_elegant.algorithms.base import Parts
from torchrl_elegant.algorithms.schedules import Ramp
from torchrl_elegant.modules.multiagent.actors import GroupActors
from torchrl_elegant.modules.multiagent.selfplay import SelfPlayActors


class EarlierSelves(AddOn):
    """Snapshots of the actors, taken as the run goes on, with the learner's state.

    Args:
        actors: the policy that acts.
    """

    name = "selfplay"

    def __init__(self, actors: SelfPlayActors) -> None:
        self.actors = actors

    def at(self, progress: float) -> None:
        """Keep the actors at the start of each equal part of the run."""
        if progress * len(self.actors.earlier) >= self.actors.kept:
            self.actors.keep()

    def state_dict(self) -> dict[str, Any]:
        return {"earlier": self.actors.earlier.state_dict(), "count": self.actors.count}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        if state_dict:
            self.actors.earlier.load_state_dict(state_dict["earlier"])
            with torch.no_grad():
                self.actors.count.copy_(state_dict["count"])


def with_selfplay(parts: Parts, *, share: float, snapshots: int) -> Parts:
    """Parts whose policy plays against its earlier selves in ``share`` of the environments."""
    if not isinstance(parts.policy, GroupActors):
        raise ValueError(
            f"`selfplay` must be 0 with one group of agents, got `{share}`; an earlier self can "
            "only stand in for one group among several"
        )
    device = next(parts.policy.parameters()).device
    actors = SelfPlayActors(dict(parts.policy.actors.items()), share=share, snapshots=snapshots)
    selves = EarlierSelves(actors.to(device))
    return replace(
        parts,
        policy=actors,
        ramps=(*parts.ramps, Ramp(rate=(0.0, 1.0), apply=selves.at)),
        add_ons=[*parts.add_ons, selves],
    )
