"""The policy of value-based algorithms."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor
from torchrl.envs.utils import ExplorationType, exploration_type

from torchrl_elegant.functional import choose
from torchrl_elegant.modules.q_network import QNetwork


class EpsilonGreedyActor(TensorDictModuleBase):
    """The action of highest value, or with probability epsilon any, drawn for each row anew.

    It explores under ``ExplorationType.RANDOM``, or with none set, and under any other takes the
    best action. TorchRL's ``EGreedyModule`` behind a ``QValueActor`` does the same; this one can be
    called by collectors without a TensorDict, and its ``epsilon`` is set from outside: it is a
    buffer, so that it travels with the weights.

    Args:
        network: Q(s, .), shared with the loss that trains it, not copied.
        epsilon: the probability at the start.

    >>> import torch
    >>> from tensordict import TensorDict
    >>> net = QNetwork(observation={"observation": (3,)}, choices=4)
    >>> actor = EpsilonGreedyActor(net, epsilon=0.1)
    >>> actor(TensorDict({"observation": torch.zeros(5, 3)}, [5]))["action"].sum(-1).tolist()
    [1, 1, 1, 1, 1]
    """

    def __init__(self, network: QNetwork, *, epsilon: float = 0.0) -> None:
        super().__init__()
        _check_epsilon(epsilon)
        self.network = network
        self.in_keys, self.out_keys = list(network.in_keys), network.out_keys[:1]
        self.register_buffer("epsilon", torch.tensor(float(epsilon)))

    @classmethod
    def from_spec(cls, **network: Any) -> EpsilonGreedyActor:
        """The greedy policy over a new ``QNetwork`` with these arguments."""
        return cls(QNetwork(**network))

    def explore(self, epsilon: float) -> None:
        """Draw at random with this probability from now on."""
        _check_epsilon(epsilon)
        self.epsilon.fill_(epsilon)

    def act(self, *observation: Tensor) -> Tensor:
        """The action for observations given in the order of ``in_keys``."""
        index = self.network.mean_values(observation).detach().argmax(-1)  # [*B]
        if exploration_type() in (None, ExplorationType.RANDOM):
            explores = torch.rand(index.shape, device=index.device) < self.epsilon
            index = torch.where(explores, torch.randint_like(index, self.network.choices), index)
        return choose(index, self.network.choices, self.network.action_space)

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        action = self.act(*(tensordict.get(key) for key in self.in_keys))
        return tensordict.set(self.out_keys[0], action)

    def spec_dict(self) -> dict[str, Any]:
        """Plain data from which ``from_spec`` builds the same architecture."""
        return self.network.spec_dict()


def _check_epsilon(epsilon: float) -> None:
    if not 0.0 <= epsilon <= 1.0:
        raise ValueError(f"`epsilon` must lie in [0, 1], got `{epsilon}`")
