"""What a run stores of its Hamiltonian term, and how another run goes on with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from torchrl._utils import logger as torchrl_logger

from torchrl_elegant.data import BestSlices
from torchrl_elegant.objectives.hamiltonian import HamiltonianLoss


class Term(Protocol):
    loss: HamiltonianLoss
    store: BestSlices
    reward_scale: float


def state_of(term: Term) -> dict[str, Any]:
    return {
        "baseline": term.loss.baseline,
        "reward_scale": term.reward_scale,
        "scale": term.loss.scale.state_dict(),
        "store": term.store.state_dict(),
    }


def load_into(term: Term, state: Mapping[str, Any]) -> None:
    """Take over slices and the scale of their rewards, as far as the term's options let it.

    Options may change when a run goes on: slices are soon replaced anyway.
    """
    # Terms of before there was a factor have stored none.
    baseline, factor = state.get("baseline"), state.get("reward_scale", term.reward_scale)
    same_rewards = factor == term.reward_scale
    if same_rewards and baseline == term.loss.baseline:
        term.loss.scale.load_state_dict(state["scale"])
    else:
        # The mean of other numbers would make all that comes look good, or none of it.
        term.loss.scale.reset()
        told = "the H-term measures rewards anew: baseline was %s, reward_scale %s"
        torchrl_logger.info(told, baseline, factor)
    if not same_rewards:
        return
    try:
        term.store.load_state_dict(state["store"])
    except ValueError as error:
        torchrl_logger.info("the H-term begins with a new store: %s", error)
