"""Keys that losses read and write, under TorchRL's names; ``set_keys`` changes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tensordict.nn import TensorDictModuleBase, composite_lp_aggregate
from tensordict.utils import NestedKey


@dataclass
class StepKeys:
    """Entries of a step that every loss reads.

    >>> StepKeys(reward="score").done
    'done'
    """

    action: NestedKey = "action"
    reward: NestedKey = "reward"
    done: NestedKey = "done"
    terminated: NestedKey = "terminated"


@dataclass
class CriticKeys(StepKeys):
    """Keys of a loss with critics.

    >>> CriticKeys(state_action_value="q").value
    'q'
    """

    state_action_value: NestedKey = "state_action_value"
    priority: NestedKey = "td_error"
    priority_weight: NestedKey = "priority_weight"

    @property
    def value(self) -> NestedKey:
        """Entry in which value estimators look for the next state's value."""
        return self.state_action_value


@dataclass
class ActorCriticKeys(CriticKeys):
    """Keys of a loss with a stochastic actor and critics.

    >>> ActorCriticKeys().priority
    'td_error'
    """

    value: NestedKey = "state_value"
    log_prob: NestedKey | None = None

    def __post_init__(self) -> None:
        if self.log_prob is None:
            aggregate = composite_lp_aggregate(nowarn=True)
            self.log_prob = "sample_log_prob" if aggregate else "action_log_prob"


@dataclass
class REDQKeys(ActorCriticKeys):
    """Keys of REDQ, whose log-probability has two names in TorchRL; neither is read.

    >>> REDQKeys().sample_log_prob == REDQKeys().log_prob
    True
    """

    sample_log_prob: NestedKey | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sample_log_prob is None:
            self.sample_log_prob = self.log_prob


@dataclass
class HamiltonianKeys(StepKeys):
    """Keys of a loss over slices of trajectories.

    >>> HamiltonianKeys().mask
    'mask'
    """

    sample_log_prob: NestedKey = "action_log_prob"
    value: NestedKey = "state_value"
    mask: NestedKey = "mask"


@dataclass
class QValueKeys(StepKeys):
    """Keys of a loss with Q(s, .) alone.

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
    """Keys of a loss with an actor and Q(s, .).

    >>> DiscreteActorCriticKeys().action_value
    'action_value'
    """

    value: NestedKey = "state_value"
    action_value: NestedKey = "action_value"
    priority: NestedKey = "td_error"
    log_prob: NestedKey = "log_prob"
    priority_weight: NestedKey = "priority_weight"


def keys_of(actor: TensorDictModuleBase) -> dict[str, Any]:
    """Keys under which ``actor`` writes action and log-prob; lists for a composite action.

    >>> keys_of(TensorDictModuleBase())
    {}
    """
    log_prob = list(getattr(actor, "log_prob_keys", ()))
    action = list(getattr(actor, "dist_sample_keys", ()))
    if len(log_prob) > 1:
        return {"log_prob": log_prob, "action": action}
    return {"log_prob": log_prob[0], "action": action[0]} if log_prob and action else {}
