"""The entries that losses over discrete actions read and write, under TorchRL's names for them."""

from __future__ import annotations

from dataclasses import dataclass

from tensordict.utils import NestedKey

from torchrl_elegant.objectives.keys import StepKeys


@dataclass
class QValueKeys(StepKeys):
    """What ``set_keys`` of a loss with Q(s, .) alone accepts.

    >>> QValueKeys().value
    'chosen_action_value'
    """

    advantage: NestedKey = "advantage"
    value_target: NestedKey = "value_target"
    value: NestedKey = "chosen_action_value"
    action_value: NestedKey = "action_value"
    priority: NestedKey = "td_error"
    priority_weight: NestedKey = "priority_weight"


@dataclass
class DiscreteActorCriticKeys(StepKeys):
    """What ``set_keys`` of a loss with an actor and Q(s, .) accepts.

    >>> DiscreteActorCriticKeys().action_value
    'action_value'
    """

    value: NestedKey = "state_value"
    action_value: NestedKey = "action_value"
    priority: NestedKey = "td_error"
    log_prob: NestedKey = "log_prob"
    priority_weight: NestedKey = "priority_weight"
