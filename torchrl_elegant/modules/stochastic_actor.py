"""Base of actors that write the log-probability beside the action."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from tensordict import NestedKey, TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor, nn
from torch.distributions import Distribution
from torchrl.envs.utils import ExplorationType, exploration_type

from torchrl_elegant.modules.action_mask import network_over
from torchrl_elegant.modules.multiagent.agents import Agents, as_agents, perceptron_of, spec_of
from torchrl_elegant.modules.rollout import ActorRollout

#: From the gradients of ``log_prob`` ``[*B]`` and of the mean entropy to those of the output and
#: of other parameters.
Backward = Callable[[Tensor, Tensor | None], tuple[Tensor, list[Tensor]]]


class Head(Protocol):
    """A distribution over actions, made in one forward pass."""

    def sample(self) -> Tensor: ...

    def mode(self) -> Tensor: ...

    def log_prob(self, action: Tensor) -> Tensor:
        """``[*B]``."""

    def score(self, action: Tensor) -> tuple[Tensor, Backward]:
        """``log_prob`` and its backward function: from its gradient and that of the mean entropy
        to those of the network's output and of the actor's ``head_parameters``."""

    def entropy(self) -> Tensor:
        """``[*B]``, or one number where it does not depend on the observation."""


class StochasticActor(TensorDictModuleBase):
    """A perceptron whose outputs are a distribution over actions.

    It can be used wherever TorchRL takes a ``ProbabilisticActor``: it writes the action and its
    log-probability, and gives TorchRL's losses a distribution. Losses of this package call
    ``head``, which builds no distribution object, and collectors call ``act``, which needs no
    TensorDict. It samples under ``ExplorationType.RANDOM`` or with no type set, and returns the
    mode otherwise.

    Args:
        observation: shape of each observation entry, by key; ``Inputs`` joins them.
        outputs: size of the last layer.
        num_cells, activation, hidden_gain: of the perceptron.
        action_key: entry of the action; the log-probability goes to ``<action_key>_log_prob``
            beside it.
        action_mask: entry that allows discrete actions, read as the last of ``in_keys``.
        sizes: number of actions of each discrete choice, where there is a mask.
        agents: of the group that it acts for; all shapes are those of one agent.
    """

    # TorchRL's VTrace reads these from an actor.
    default_interaction_type = ExplorationType.RANDOM
    num_samples = None

    def __init__(
        self,
        *,
        observation: Mapping[NestedKey, Sequence[int]],
        outputs: int,
        num_cells: Sequence[int],
        activation: str,
        hidden_gain: float | None,
        action_key: NestedKey,
        action_mask: NestedKey | None = None,
        sizes: Sequence[int] = (),
        agents: Agents | Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self._observation, self.action_mask = dict(observation), action_mask
        self.agents = agents = as_agents(agents)
        make = partial(
            perceptron_of,
            agents,
            out_features=outputs,
            num_cells=num_cells,
            activation=activation,
            hidden_gain=hidden_gain,
            output_gain=0.01,
        )
        self.inputs, self.net = network_over(
            observation,
            lambda n: make(in_features=n),
            action_mask=action_mask,
            sizes=sizes,
            ids=0 if agents is None else agents.ids,
        )
        self.in_keys = list(self.inputs.keys)
        log_prob_key = _beside(action_key)
        self.out_keys = [action_key, log_prob_key]
        self.dist_sample_keys, self.log_prob_keys = [action_key], [log_prob_key]
        self._num_cells = tuple(num_cells)

    def head(self, observation: Sequence[Tensor]) -> Head:
        """The distribution at observations given in the order of ``in_keys``."""
        return self.head_of(self.output(observation))

    def output(self, observation: Sequence[Tensor]) -> Tensor:
        """Output of the network at observations in the order of ``in_keys``."""
        return self.net(self.inputs.join(observation))

    @abstractmethod
    def head_of(self, output: Tensor) -> Head:
        """The distribution with the network's output as parameters."""

    @property
    def head_parameters(self) -> list[nn.Parameter]:
        """Parameters beside the network."""
        return []

    @abstractmethod
    def get_dist(self, tensordict: TensorDictBase) -> Distribution:
        """The distribution as an object of TorchRL or PyTorch."""

    def act(self, *observation: Tensor) -> tuple[Tensor, Tensor]:
        """Action and log-probability, in the order of ``out_keys``."""
        head = self.head(observation)
        sampled = exploration_type() in (None, ExplorationType.RANDOM)
        action = head.sample() if sampled else head.mode()
        return action, head.log_prob(action)

    def rollout(self, *, frames: int, count: int) -> ActorRollout | None:
        """An actor for a whole rollout of ``count`` environments; None if ``act`` must be called.

        Collectors do not call it where a subclass overrides ``act`` or ``head``.
        """
        return None

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        results = self.act(*(tensordict.get(key) for key in self.in_keys))
        for key, value in zip(self.out_keys, results, strict=True):
            tensordict.set(key, value)
        return tensordict

    def spec_dict(self) -> dict[str, Any]:
        """Plain data from which the same architecture can be built."""
        return {
            "observation": {key: list(shape) for key, shape in self._observation.items()},
            "num_cells": list(self._num_cells),
            "activation": self.net.activation,
            "action_key": self.out_keys[0],
            **spec_of(self.agents),
        }


def _beside(action_key: NestedKey) -> NestedKey:
    if isinstance(action_key, str):
        return f"{action_key}_log_prob"
    return (*action_key[:-1], f"{action_key[-1]}_log_prob")
