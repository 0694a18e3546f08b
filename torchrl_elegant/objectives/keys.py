"""The entries that losses read and write, under TorchRL's names for them."""

from __future__ import annotations

from dataclasses import dataclass

from tensordict.nn import composite_lp_aggregate
from tensordict.utils import NestedKey


@dataclass
class ActorCriticKeys:
    """What ``set_keys`` of a loss with an actor and critics accepts.

    >>> ActorCriticKeys().priority
    'td_error'
    """

    action: NestedKey = "action"
    value: NestedKey = "state_value"
    state_action_value: NestedKey = "state_action_value"
    log_prob: NestedKey | None = None
    priority: NestedKey = "td_error"
    reward: NestedKey = "reward"
    done: NestedKey = "done"
    terminated: NestedKey = "terminated"
    priority_weight: NestedKey = "priority_weight"

    def __post_init__(self) -> None:
        if self.log_prob is None:
            aggregate = composite_lp_aggregate(nowarn=True)
            self.log_prob = "sample_log_prob" if aggregate else "action_log_prob"
