"""What policies share whose log-probability is kept beside the action."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from tensordict import NestedKey, TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor, nn
from torch.distributions import Distribution
from torchrl.envs.utils import ExplorationType, exploration_type

from torchrl_elegant.modules.inputs import Inputs
from torchrl_elegant.modules.mlp import MLP
from torchrl_elegant.modules.rollout import ActorRollout

#: Gradient of ``log_prob`` ``[*B]``, of the mean entropy -> of the output, of other parameters.
Backward = Callable[[Tensor, Tensor | None], tuple[Tensor, list[Tensor]]]


class Head(Protocol):
    """A distribution over actions, for as long as one forward pass lives."""

    def sample(self) -> Tensor: ...

    def mode(self) -> Tensor: ...

    def log_prob(self, action: Tensor) -> Tensor:
        """``[*B]``."""

    def score(self, action: Tensor) -> tuple[Tensor, Backward]:
        """``log_prob``, and the way back: from its gradient and that of the mean entropy to those
        of the network's output and of the actor's ``head_parameters``."""

    def entropy(self) -> Tensor:
        """``[*B]``, or one number where it does not depend on the observation."""


class StochasticActor(TensorDictModuleBase):
    """A perceptron whose outputs are a distribution over actions.

    It stands wherever TorchRL takes a ``ProbabilisticActor``: it writes the action and its
    log-probability, and gives TorchRL's losses a distribution. Losses of this package ask
    ``head`` instead, which builds no distribution object, and collectors call ``act``, which needs
    no TensorDict. Under ``ExplorationType.RANDOM``, or with none set, it samples; under any other
    it returns the mode.

    Args:
        observation: shape of each observation entry, by key; ``Inputs`` joins them.
        outputs: size of the last layer.
        num_cells, activation: of the perceptron.
        action_key: where the action is written; the log-probability goes to
            ``<action_key>_log_prob`` beside it.
    """

    # What TorchRL's VTrace asks of an actor beside its distribution.
    default_interaction_type = ExplorationType.RANDOM
    num_samples = None

    def __init__(
        self,
        *,
        observation: Mapping[NestedKey, Sequence[int]],
        outputs: int,
        num_cells: Sequence[int],
        activation: str,
        action_key: NestedKey,
    ) -> None:
        super().__init__()
        self.inputs = Inputs(observation)
        self.in_keys = list(self.inputs.keys)
        log_prob_key = _beside(action_key)
        self.out_keys = [action_key, log_prob_key]
        self.dist_sample_keys, self.log_prob_keys = [action_key], [log_prob_key]
        self._num_cells = tuple(num_cells)
        self.net = MLP(
            in_features=self.inputs.features,
            out_features=outputs,
            num_cells=num_cells,
            activation=activation,
            output_gain=0.01,
        )

    def head(self, observation: Sequence[Tensor]) -> Head:
        """The distribution at observations given in the order of ``in_keys``."""
        return self.head_of(self.output(observation))

    def output(self, observation: Sequence[Tensor]) -> Tensor:
        """What the network makes of them."""
        return self.net(self.inputs.join(observation))

    @abstractmethod
    def head_of(self, output: Tensor) -> Head:
        """The distribution that the network's output stands for."""

    @property
    def head_parameters(self) -> list[nn.Parameter]:
        """What is learnt beside the network."""
        return []

    @abstractmethod
    def get_dist(self, tensordict: TensorDictBase) -> Distribution:
        """The same as a distribution of TorchRL's."""

    def act(self, *observation: Tensor) -> tuple[Tensor, Tensor]:
        """Action and log-probability, as ``out_keys`` names them."""
        head = self.head(observation)
        sampled = exploration_type() in (None, ExplorationType.RANDOM)
        action = head.sample() if sampled else head.mode()
        return action, head.log_prob(action)

    def rollout(self, *, frames: int, count: int) -> ActorRollout | None:
        """The same for a whole rollout of ``count`` environments; None where ``act`` is the way.

        Collectors ask for it wherever a subclass has not overridden ``act`` or ``head`` since.
        """
        return None

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        results = self.act(*(tensordict.get(key) for key in self.in_keys))
        for key, value in zip(self.out_keys, results, strict=True):
            tensordict.set(key, value)
        return tensordict

    def spec_dict(self) -> dict[str, Any]:
        """Plain data from which the same architecture can be built again."""
        return {
            "observation": self.inputs.spec_dict(),
            "num_cells": list(self._num_cells),
            "activation": self.net.activation,
            "action_key": self.out_keys[0],
        }


def _beside(action_key: NestedKey) -> NestedKey:
    if isinstance(action_key, str):
        return f"{action_key}_log_prob"
    return (*action_key[:-1], f"{action_key[-1]}_log_prob")
