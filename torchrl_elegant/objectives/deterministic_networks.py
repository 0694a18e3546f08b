"""How a loss calls a deterministic actor: directly where it is this package's.

Both kinds share one face. ``online`` gives actions that train the actor, ``target`` actions that
train nothing; beside them stands the data in which a critic finds whatever else it reads.
"""

from __future__ import annotations

from copy import deepcopy

from tensordict import TensorDictBase
from torch import Tensor
from torchrl.envs.utils import set_exploration_type
from torchrl.objectives import LossModule

from torchrl_elegant.modules import DeterministicActor


class DirectActor:
    """Calls a ``DeterministicActor`` itself: no parameter swap, no TensorDict."""

    def __init__(self, loss: LossModule) -> None:
        self.network: DeterministicActor = loss.actor_network
        self.delayed = deepcopy(self.network)

    def bind(self, loss: LossModule) -> None:
        """Make both copies read the tensors that optimisers and target updaters write."""
        loss.actor_network_params.to_module(self.network, preserve_module_state=False)
        name = "target_actor_network_params"
        # Looked up past the attribute, which warns until an updater is there: none can be yet.
        target = loss._modules[name] if name in loss._modules else getattr(loss, name)
        target.to_module(self.delayed, preserve_module_state=False)

    def online(self, tensordict: TensorDictBase) -> tuple[TensorDictBase, Tensor]:
        return tensordict, self.network.act(*self._observation(tensordict))

    def target(self, tensordict: TensorDictBase) -> tuple[TensorDictBase, Tensor]:
        return tensordict, self.delayed.act(*self._observation(tensordict))

    def _observation(self, tensordict: TensorDictBase) -> list[Tensor]:
        return [tensordict.get(key) for key in self.network.in_keys]


class SwappedActor:
    """Calls any TorchRL actor with the loss's parameters put into it."""

    def __init__(self, loss: LossModule) -> None:
        self.loss = loss

    def bind(self, loss: LossModule) -> None:
        """Nothing to keep: parameters are put in at each call."""

    def online(self, tensordict: TensorDictBase) -> tuple[TensorDictBase, Tensor]:
        return self._run(tensordict, self.loss.actor_network_params)

    def target(self, tensordict: TensorDictBase) -> tuple[TensorDictBase, Tensor]:
        return self._run(tensordict, self.loss.target_actor_network_params)

    def _run(self, tensordict: TensorDictBase, params) -> tuple[TensorDictBase, Tensor]:
        loss, actor = self.loss, self.loss.actor_network
        data = tensordict.select(*actor.in_keys, *loss.qvalue_network.in_keys, strict=False)
        with (
            set_exploration_type(loss.deterministic_sampling_mode),
            params.to_module(actor, preserve_module_state=False),
        ):
            data = actor(data)
        return data, data.get(loss.tensor_keys.action)


def actor_caller(loss: LossModule) -> DirectActor | SwappedActor:
    """The right way to call ``loss.actor_network``; its ``bind`` makes it ready."""
    direct = isinstance(loss.actor_network, DeterministicActor)
    return DirectActor(loss) if direct else SwappedActor(loss)
