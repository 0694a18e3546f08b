"""The deterministic actor of DDPG and TD3."""

from __future__ import annotations

import torch
from torch import Tensor

from torchrl_elegant.modules.bounds import BoundedActor


class DeterministicActor(BoundedActor):
    """Policy ``a = low + (high - low) (tanh(f(s)) + 1) / 2``.

    It stands wherever TorchRL takes an ``Actor``, and does not explore by itself: a ``NoisyActor``
    adds noise of this package, TorchRL's exploration modules follow it in a sequence as they
    follow any actor.

    The arguments are those of ``BoundedActor``.

    >>> import torch
    >>> from tensordict import TensorDict
    >>> actor = DeterministicActor(observation={"observation": (3,)}, low=[-1.0], high=[1.0])
    >>> actor(TensorDict({"observation": torch.zeros(5, 3)}, [5]))["action"].shape
    torch.Size([5, 1])
    """

    def act(self, *observation: Tensor) -> Tensor:
        return self._scale(torch.tanh(self.net(self.inputs.join(observation))))
