"""Actor that draws one discrete action."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import torch
from tensordict import NestedKey, TensorDictBase
from torch import Tensor
from torch.distributions import Categorical
from torchrl.modules import OneHotCategorical

from torchrl_elegant.functional import (
    categorical_entropy,
    categorical_sample,
    categorical_slope,
    choose,
)
from torchrl_elegant.modules.multiagent.agents import Agents
from torchrl_elegant.modules.rollout import CategoricalRollout, can_plan
from torchrl_elegant.modules.stochastic_actor import Backward, StochasticActor

DiscreteForm = Literal["one_hot", "categorical"]


def check_choices(choices: int, form: str) -> None:
    """Refuse an impossible number or form of actions."""
    if choices < 1:
        raise ValueError(f"`choices` must be at least 1, got `{choices}`")
    if form not in ("one_hot", "categorical"):
        raise ValueError(f"`form` must be 'one_hot' or 'categorical', got `{form}`")


class CategoricalHead(NamedTuple):
    """Probabilities ``softmax(logits)`` over choices, written as an index or as one-hot."""

    log_probs: Tensor  # [*B, n]
    one_hot: bool

    def sample(self) -> Tensor:
        return self._write(categorical_sample(self.log_probs.detach()))

    def mode(self) -> Tensor:
        return self._write(self.log_probs.detach().argmax(-1))

    def log_prob(self, action: Tensor) -> Tensor:
        return self._taken(self._index(action))

    def score(self, action: Tensor) -> tuple[Tensor, Backward]:
        index = self._index(action)

        def backward(grad: Tensor, grad_entropy: Tensor | None) -> tuple[Tensor, list[Tensor]]:
            # Every row has a share of the mean entropy.
            share = None if grad_entropy is None else grad_entropy / grad.numel()
            return categorical_slope(self.log_probs, index, grad, share), []

        return self._taken(index), backward

    def entropy(self) -> Tensor:
        return categorical_entropy(self.log_probs)

    def _index(self, action: Tensor) -> Tensor:
        return action.to(torch.uint8).argmax(-1) if self.one_hot else action

    def _taken(self, index: Tensor) -> Tensor:
        return self.log_probs.gather(-1, index.unsqueeze(-1)).squeeze(-1)

    def _write(self, index: Tensor) -> Tensor:
        form = "one_hot" if self.one_hot else "categorical"
        return choose(index, self.log_probs.shape[-1], form)


class CategoricalActor(StochasticActor):
    """Policy over ``choices`` discrete actions.

    Args:
        observation: shape of each observation entry, by key.
        choices: number of actions.
        form: form of the action, ``"one_hot"`` or ``"categorical"`` (an index).
        num_cells, activation, hidden_gain: of the perceptron.
        action_key: entry of the action.
        action_mask: entry that allows actions; None: all are allowed.

    >>> import torch
    >>> from tensordict import TensorDict
    >>> actor = CategoricalActor(observation={"observation": (3,)}, choices=4)
    >>> actor(TensorDict({"observation": torch.zeros(5, 3)}, [5]))["action"].sum(-1).tolist()
    [1, 1, 1, 1, 1]
    """

    def __init__(
        self,
        *,
        observation: Mapping[NestedKey, Sequence[int]],
        choices: int,
        form: DiscreteForm = "one_hot",
        num_cells: Sequence[int] = (64, 64),
        activation: str = "tanh",
        hidden_gain: float | None = None,
        action_key: NestedKey = "action",
        action_mask: NestedKey | None = None,
        agents: Agents | Mapping[str, Any] | None = None,
    ) -> None:
        check_choices(choices, form)
        super().__init__(
            observation=observation,
            outputs=choices,
            num_cells=num_cells,
            activation=activation,
            hidden_gain=hidden_gain,
            action_key=action_key,
            action_mask=action_mask,
            sizes=(choices,),
            agents=agents,
        )
        self.choices, self.form = choices, form

    def head_of(self, output: Tensor) -> CategoricalHead:
        return CategoricalHead(output.log_softmax(-1), self.form == "one_hot")

    def rollout(self, *, frames: int, count: int) -> CategoricalRollout | None:
        return CategoricalRollout(self, frames=frames, count=count) if can_plan(self) else None

    def get_dist(self, tensordict: TensorDictBase) -> Categorical | OneHotCategorical:
        logits = self.output([tensordict.get(key) for key in self.in_keys])
        return (OneHotCategorical if self.form == "one_hot" else Categorical)(logits=logits)

    def spec_dict(self) -> dict[str, Any]:
        return super().spec_dict() | {
            "choices": self.choices,
            "form": self.form,
            "action_mask": self.action_mask,
        }
