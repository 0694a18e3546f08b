"""Actors for all steps of one rollout.

Noise is drawn for the whole rollout, and log-probabilities are computed when it is over. A step
only runs the layers of the network, which takes a third of the time of a call of the policy.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torchrl.envs.utils import ExplorationType, exploration_type

from torchrl_elegant.functional import normal_log_density
from torchrl_elegant.modules.mlp import MLP

if TYPE_CHECKING:
    from torchrl_elegant.modules.categorical import CategoricalActor
    from torchrl_elegant.modules.gaussian import GaussianActor
    from torchrl_elegant.modules.stochastic_actor import StochasticActor


class ActorRollout:
    """An actor that samples, for ``frames`` steps of ``count`` environments.

    Weights are read at each step, the spread of the actions once at the start.
    """

    def __init__(self, actor: StochasticActor) -> None:
        net = actor.net
        pairs = [(layer.bias.detach(), layer.weight.detach().t()) for layer in net.linears()]
        *self._hidden, (self._bias, self._weight) = pairs
        self._activate, self._join = net.activate, actor.inputs.join

    @abstractmethod
    def act(self, t: int, *observation: Tensor) -> Tensor:
        """Actions of step ``t``, ``[count, *A]``."""

    @abstractmethod
    def outputs(self) -> tuple[Tensor, ...]:
        """Values of the actor's ``out_keys`` at all steps, ``[frames, count, ...]``."""

    def _features(self, observation: tuple[Tensor, ...]) -> Tensor:
        x = self._join(observation)
        for bias, weight in self._hidden:
            x = self._activate(torch.addmm(bias, x, weight))
        return x


class GaussianRollout(ActorRollout):
    """``a_t = mu(s_t) + sigma e_t``, with ``log pi(a_t) = log N(e_t; 0, 1) - sum log sigma``.

    >>> import torch
    >>> from torchrl_elegant.modules import GaussianActor
    >>> actor = GaussianActor(observation={"observation": (3,)}, action_shape=(2,))
    >>> rollout = GaussianRollout(actor, frames=4, count=5)
    >>> rollout.act(0, torch.zeros(5, 3)).shape, rollout.outputs()[1].shape
    (torch.Size([5, 2]), torch.Size([4, 5]))
    """

    def __init__(self, actor: GaussianActor, *, frames: int, count: int) -> None:
        super().__init__(actor)
        log_std = actor.log_std.detach()
        noise = torch.randn(frames, count, *log_std.shape, device=log_std.device)
        self._log_prob = normal_log_density(noise.square(), log_std)
        # A step adds the last layer's product to noise and bias.
        self._action = noise.mul_(log_std.exp()).add_(self._bias)
        self._rows, self._shape = self._action.unbind(0), actor.action_shape

    def act(self, t: int, *observation: Tensor) -> Tensor:
        action = self._rows[t].addmm_(self._features(observation), self._weight)
        return action if len(self._shape) == 1 else action.unflatten(-1, self._shape)

    def outputs(self) -> tuple[Tensor, ...]:
        return self._action.unflatten(-1, self._shape), self._log_prob


class CategoricalRollout(ActorRollout):
    """``a_t = argmax_i [logits_i(s_t) - log E_ti]`` with ``E_ti ~ Exp(1)``.

    >>> import torch
    >>> from torchrl_elegant.modules import CategoricalActor
    >>> actor = CategoricalActor(observation={"observation": (3,)}, choices=2)
    >>> rollout = CategoricalRollout(actor, frames=4, count=5)
    >>> rollout.act(0, torch.zeros(5, 3)).sum(-1).tolist()
    [1, 1, 1, 1, 1]
    """

    def __init__(self, actor: CategoricalActor, *, frames: int, count: int) -> None:
        super().__init__(actor)
        device, shape = self._bias.device, (frames, count, actor.choices)
        self._clocks = torch.empty(shape, device=device).exponential_().log_().unbind(0)
        self._logits = torch.zeros(shape, device=device)
        self._logit_rows = self._logits.unbind(0)
        self._index = torch.zeros(frames, count, 1, dtype=torch.int64, device=device)
        self._index_rows = self._index.unbind(0)
        self._one_hot = None
        if actor.form == "one_hot":
            self._one_hot = torch.zeros(shape, dtype=torch.int64, device=device)
            self._one_hot_rows = self._one_hot.unbind(0)

    def act(self, t: int, *observation: Tensor) -> Tensor:
        logits, index = self._logit_rows[t], self._index_rows[t]
        torch.addmm(self._bias, self._features(observation), self._weight, out=logits)
        torch.argmax(logits - self._clocks[t], -1, keepdim=True, out=index)
        return index.squeeze(-1) if self._one_hot is None else self._chosen(t, index)

    def outputs(self) -> tuple[Tensor, ...]:
        log_prob = self._logits.log_softmax(-1).gather(-1, self._index).squeeze(-1)
        return self._index.squeeze(-1) if self._one_hot is None else self._one_hot, log_prob

    def _chosen(self, t: int, index: Tensor) -> Tensor:
        return self._one_hot_rows[t].scatter_(-1, index, 1)


def can_plan(actor: StochasticActor) -> bool:
    """Tells whether ``actor`` samples, and has a plain ``MLP`` whose layers can be read."""
    sampled = exploration_type() in (None, ExplorationType.RANDOM)
    return sampled and type(actor.net) is MLP
