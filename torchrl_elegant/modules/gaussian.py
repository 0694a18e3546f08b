"""Gaussian actor of on-policy algorithms."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from tensordict import NestedKey, TensorDictBase
from torch import Tensor, nn
from torchrl.modules import IndependentNormal

from torchrl_elegant.functional import normal_entropy, normal_log_prob, normal_score, normal_slopes
from torchrl_elegant.modules.multiagent.agents import Agents
from torchrl_elegant.modules.rollout import GaussianRollout, can_plan
from torchrl_elegant.modules.stochastic_actor import Backward, StochasticActor


class GaussianHead(NamedTuple):
    """``N(loc, exp(log_std)^2)`` with the same spread at every observation."""

    loc: Tensor  # [*B, A]
    log_std: Tensor  # [A], or [n, A] of n agents
    shape: tuple[int, ...]  # of an action

    def sample(self) -> Tensor:
        # Not reparameterized: policy gradients go through the log-probability alone.
        loc = self.loc.detach()
        return self._shaped(torch.addcmul(loc, self.log_std.detach().exp(), torch.randn_like(loc)))

    def mode(self) -> Tensor:
        return self._shaped(self.loc.detach())

    def log_prob(self, action: Tensor) -> Tensor:
        flat = action if len(self.shape) == 1 else action.flatten(-len(self.shape))
        return normal_log_prob(self.loc, self.log_std, flat)

    def score(self, action: Tensor) -> tuple[Tensor, Backward]:
        flat = action if len(self.shape) == 1 else action.flatten(-len(self.shape))
        log_prob, parts = normal_score(self.loc, self.log_std, flat)

        def backward(grad: Tensor, grad_entropy: Tensor | None) -> tuple[Tensor, list[Tensor]]:
            loc, log_std = normal_slopes(grad, *parts)
            # dH / d log sigma = 1, at every observation.
            return loc, [log_std if grad_entropy is None else log_std.add_(grad_entropy)]

        return log_prob, backward

    def entropy(self) -> Tensor:
        return normal_entropy(self.log_std)

    def _shaped(self, action: Tensor) -> Tensor:
        return action if len(self.shape) == 1 else action.unflatten(-1, self.shape)


class GaussianActor(StochasticActor):
    """Policy ``a ~ N(mu(s), sigma^2)`` with a learned spread that no observation changes.

    Actions are not bounded. Environments of ``make_env`` take the nearest action within their
    bounds; the loss uses the action that was drawn.

    Args:
        observation: shape of each observation entry, by key.
        action_shape: shape of the action.
        num_cells, activation, hidden_gain: of the perceptron.
        log_std: first value of the logarithm of the spread.
        action_key: entry of the action.
        agents: of the group that it acts for; each has a spread of its own where it has a network
            of its own.

    >>> import torch
    >>> from tensordict import TensorDict
    >>> actor = GaussianActor(observation={"observation": (3,)}, action_shape=(2,))
    >>> data = actor(TensorDict({"observation": torch.zeros(5, 3)}, [5]))
    >>> data["action"].shape, data["action_log_prob"].shape
    (torch.Size([5, 2]), torch.Size([5]))
    """

    def __init__(
        self,
        *,
        observation: Mapping[NestedKey, Sequence[int]],
        action_shape: Sequence[int],
        num_cells: Sequence[int] = (64, 64),
        activation: str = "tanh",
        hidden_gain: float | None = None,
        log_std: float = 0.0,
        action_key: NestedKey = "action",
        agents: Agents | Mapping[str, Any] | None = None,
    ) -> None:
        if not math.isfinite(log_std):
            raise ValueError(f"`log_std` must be finite, got `{log_std}`")
        shape = tuple(action_shape) or (1,)
        size = torch.Size(shape).numel()
        super().__init__(
            observation=observation,
            outputs=size,
            num_cells=num_cells,
            activation=activation,
            hidden_gain=hidden_gain,
            action_key=action_key,
            agents=agents,
        )
        self.action_shape, self._first_log_std = shape, log_std
        separate = self.agents is not None and not self.agents.share_parameters
        sizes = (self.agents.count, size) if self.agents and separate else (size,)
        self.log_std = nn.Parameter(torch.full(sizes, float(log_std)))

    def head_of(self, output: Tensor) -> GaussianHead:
        return GaussianHead(output, self.log_std, self.action_shape)

    @property
    def head_parameters(self) -> list[nn.Parameter]:
        return [self.log_std]

    def rollout(self, *, frames: int, count: int) -> GaussianRollout | None:
        return GaussianRollout(self, frames=frames, count=count) if can_plan(self) else None

    def get_dist(self, tensordict: TensorDictBase) -> IndependentNormal:
        output = self.output([tensordict.get(key) for key in self.in_keys])
        loc = output.unflatten(-1, self.action_shape)
        scale = self.log_std.exp().unflatten(-1, self.action_shape).expand_as(loc)
        return IndependentNormal(loc, scale, event_dim=len(self.action_shape))

    def spec_dict(self) -> dict[str, Any]:
        own = {"action_shape": list(self.action_shape), "log_std": self._first_log_std}
        return super().spec_dict() | own
