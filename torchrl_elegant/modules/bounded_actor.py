"""Actors for bounded continuous actions: squashed Gaussian and deterministic."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from tensordict import NestedKey, TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor
from torchrl.envs.utils import ExplorationType, exploration_type
from torchrl.modules import TanhNormal

from torchrl_elegant.functional import squashed_mode, squashed_sample
from torchrl_elegant.modules.inputs import Inputs
from torchrl_elegant.modules.multiagent.agents import Agents, as_agents, perceptron_of, spec_of


class BoundedActor(TensorDictModuleBase):
    """A perceptron over joined observations whose action lies between ``low`` and ``high``.

    Args:
        observation: shape of each observation entry, by key; ``Inputs`` joins them.
        low, high: bounds of the action, nested lists or tensors of the action's shape.
        num_cells, activation, hidden_gain: of the perceptron.
        action_key: entry of the action.
        agents: of the group that it acts for; all shapes are those of one agent.
    """

    #: Outputs of the perceptron for each dimension of the action.
    outputs_per_dimension = 1

    low: Tensor
    high: Tensor

    def __init__(
        self,
        *,
        observation: Mapping[NestedKey, Sequence[int]],
        low: Tensor | Sequence[float],
        high: Tensor | Sequence[float],
        num_cells: Sequence[int] = (256, 256),
        activation: str = "relu",
        hidden_gain: float | None = None,
        action_key: NestedKey = "action",
        agents: Agents | Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self._set_bounds(low, high)
        self.agents = agents = as_agents(agents)
        self.inputs = Inputs(observation, ids=0 if agents is None else agents.ids)
        self.in_keys, self.out_keys = list(self.inputs.keys), [action_key]
        self._num_cells = tuple(num_cells)
        self.net = perceptron_of(
            agents,
            in_features=self.inputs.features,
            out_features=self.outputs_per_dimension * self.low.numel(),
            num_cells=num_cells,
            activation=activation,
            hidden_gain=hidden_gain,
            output_gain=0.01,
        )

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        action = self.act(*(tensordict.get(key) for key in self.in_keys))
        return tensordict.set(self.out_keys[0], action)

    @abstractmethod
    def act(self, *observation: Tensor) -> Tensor:
        """The action at observations given in the order of ``in_keys``."""

    def spec_dict(self) -> dict[str, Any]:
        """Plain data from which the same architecture can be built."""
        return {
            "observation": self.inputs.spec_dict(),
            "low": self.low.tolist(),
            "high": self.high.tolist(),
            "num_cells": list(self._num_cells),
            "activation": self.net.activation,
            "action_key": self.out_keys[0],
            **spec_of(self.agents),
        }

    def clip(self, action: Tensor) -> Tensor:
        """The nearest action within the bounds."""
        if self._unit_bounds:
            return action.clamp(-1.0, 1.0)
        return action.clamp(self.low, self.high)

    def _set_bounds(self, low: Tensor | Sequence[float], high: Tensor | Sequence[float]) -> None:
        low, high = (torch.as_tensor(x, dtype=torch.float32).clone() for x in (low, high))
        if not bool((torch.isfinite(low) & torch.isfinite(high) & (low < high)).all()):
            raise ValueError(
                f"`low` and `high` must be finite with low < high, got `{low.tolist()}` and "
                f"`{high.tolist()}`; this actor needs a bounded action space"
            )
        self.register_buffer("low", low)
        self.register_buffer("high", high)
        self._unit_bounds = bool((low == -1).all() and (high == 1).all())
        self.action_shape = low.shape

    def _scale(self, action: Tensor) -> Tensor:
        """Map a flat vector in [-1, 1] to the bounds and the shape of the action."""
        action = action if len(self.action_shape) < 2 else action.unflatten(-1, self.action_shape)
        if self._unit_bounds:
            return action
        half = (self.high - self.low) * 0.5
        return torch.addcmul(self.low + half, action, half)


LOG_STD_MIN, LOG_STD_MAX = -20.0, 2.0


class SquashedGaussianActor(BoundedActor):
    """Policy ``a = low + (high - low) (tanh(u) + 1) / 2``, ``u ~ N(mu(s), sigma(s)^2)``.

    It can be used wherever TorchRL takes a ``ProbabilisticActor``: collectors read its action,
    TorchRL's losses call ``get_dist``. A call builds no distribution object, which would make
    collection half as expensive again. It samples under ``ExplorationType.RANDOM`` or with no type
    set, and returns the mode otherwise.

    The arguments are those of ``BoundedActor``.

    >>> import torch
    >>> from tensordict import TensorDict
    >>> actor = SquashedGaussianActor(observation={"observation": (3,)}, low=[-1.0], high=[1.0])
    >>> actor(TensorDict({"observation": torch.zeros(5, 3)}, [5]))["action"].shape
    torch.Size([5, 1])
    """

    outputs_per_dimension = 2  # mean and logarithm of the spread

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.log_prob_keys, self.dist_sample_keys = ["action_log_prob"], list(self.out_keys)

    def act(self, *observation: Tensor) -> Tensor:
        loc, log_std = self.parameters_of(observation)
        if exploration_type() in (None, ExplorationType.RANDOM):
            loc = torch.addcmul(loc, log_std.exp(), torch.randn_like(loc))
        return self._scale(squashed_mode(loc))

    def sample(self, observation: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Reparameterized action ``[*B, *A]`` and its log-density ``[*B]``."""
        loc, log_std = self.parameters_of(observation)
        action, log_prob = squashed_sample(loc, log_std, torch.randn_like(loc))
        if not self._unit_bounds:
            log_prob = log_prob - ((self.high - self.low) * 0.5).log().sum()
        return self._scale(action), log_prob

    def parameters_of(self, observation: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Mean and log standard deviation before squashing, each ``[*B, |A|]``."""
        loc, log_std = self.net(self.inputs.join(observation)).chunk(2, -1)
        return loc, log_std.clamp(LOG_STD_MIN, LOG_STD_MAX)

    def get_dist(self, tensordict: TensorDictBase) -> TanhNormal:
        """TorchRL's distribution with the same density, for losses that ask for one."""
        return self.build_dist_from_params(self.get_dist_params(tensordict))

    def get_dist_params(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Parameters of that distribution, for losses that map over networks first."""
        loc, log_std = self.parameters_of([tensordict.get(key) for key in self.in_keys])
        return tensordict.empty().set("loc", loc).set("scale", log_std.exp())

    def build_dist_from_params(self, tensordict: TensorDictBase) -> TanhNormal:
        """The distribution with the parameters of ``get_dist_params``."""
        loc, scale = tensordict.get("loc"), tensordict.get("scale")
        return TanhNormal(loc, scale, low=self.low.flatten(), high=self.high.flatten())


class DeterministicActor(BoundedActor):
    """Policy ``a = low + (high - low) (tanh(f(s)) + 1) / 2``.

    It can be used wherever TorchRL takes an ``Actor``. It does not explore by itself: put it into a
    ``NoisyActor``, or in front of one of TorchRL's exploration modules.

    The arguments are those of ``BoundedActor``.

    >>> import torch
    >>> from tensordict import TensorDict
    >>> actor = DeterministicActor(observation={"observation": (3,)}, low=[-1.0], high=[1.0])
    >>> actor(TensorDict({"observation": torch.zeros(5, 3)}, [5]))["action"].shape
    torch.Size([5, 1])
    """

    def act(self, *observation: Tensor) -> Tensor:
        return self._scale(torch.tanh(self.net(self.inputs.join(observation))))
