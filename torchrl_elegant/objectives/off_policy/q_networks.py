"""How a loss learns in which form actions are written."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
from tensordict import TensorDictBase, TensorDictParams
from tensordict.nn import TensorDictModuleBase
from torch import Tensor
from torchrl.data import TensorSpec
from torchrl.data.utils import _find_action_space
from torchrl.objectives import LossModule
from torchrl.objectives.utils import _vmap_func

from torchrl_elegant.functional import chosen, reduce_members
from torchrl_elegant.modules import QNetwork


def action_space_of(network: Any, given: str | TensorSpec | None) -> str:
    """TorchRL's name of the action space: what is ``given``, or what ``network`` says of itself.

    >>> from types import SimpleNamespace
    >>> action_space_of(SimpleNamespace(action_space="categorical"), None)
    'categorical'
    """
    for found in (given, getattr(network, "action_space", None), getattr(network, "spec", None)):
        if found is not None:
            return _find_action_space(found)
    raise ValueError(
        f"`action_space` must be given for a network of type `{type(network).__name__}`, got "
        "`None`; pass a spec, or one of one-hot, mult-one-hot, binary, categorical"
    )


class DirectQ:
    """Calls a ``QNetwork`` itself: no parameter swap, no vmap, no TensorDict."""

    def __init__(self, loss: LossModule, name: str) -> None:
        self.name = name
        self.network: QNetwork = getattr(loss, name)
        self.delayed = deepcopy(self.network)

    def bind(self, loss: LossModule) -> None:
        """Make both copies read the tensors that optimisers and target updaters write."""
        online, target = _parameters(loss, self.name)
        online.to_module(self.network, preserve_module_state=False)
        target.to_module(self.delayed, preserve_module_state=False)

    def online(self, tensordict: TensorDictBase) -> Tensor:
        return self.network.values([tensordict.get(key) for key in self.network.in_keys])

    def target(self, tensordict: TensorDictBase) -> Tensor:
        return self.delayed.values([tensordict.get(key) for key in self.network.in_keys])

    def best(self, tensordict: TensorDictBase) -> Tensor:
        """max_a min_i Q_i(s, a) of the targets, ``[*B]``."""
        return reduce_members(self.target(tensordict), "min").amax(-1)

    def best_of_online(self, tensordict: TensorDictBase) -> Tensor:
        """The targets' minimum at the action that the online members prefer, ``[*B]``."""
        index = self.online(tensordict).mean(0).argmax(-1)
        return chosen(reduce_members(self.target(tensordict), "min"), index, "categorical")


class SwappedQ:
    """Calls one TorchRL Q network that names its own greedy action, its parameters swapped in."""

    def __init__(self, loss: LossModule, name: str) -> None:
        self.loss, self.name = loss, name
        self.network: TensorDictModuleBase = getattr(loss, name)

    def bind(self, loss: LossModule) -> None:
        """Nothing is bound: parameters are looked up at each call."""

    def online(self, tensordict: TensorDictBase) -> Tensor:
        data = self._call(tensordict, _parameters(self.loss, self.name)[0])
        return data.get(self.loss.tensor_keys.action_value).unsqueeze(0)

    def best(self, tensordict: TensorDictBase) -> Tensor:
        """What the targets give their own greedy action, ``[*B]``."""
        data = self._call(tensordict, _parameters(self.loss, self.name)[1])
        return data.get(self.loss.tensor_keys.value).squeeze(-1)

    def best_of_online(self, tensordict: TensorDictBase) -> Tensor:
        """What the targets give the greedy action of the online network, ``[*B]``."""
        keys, (online, target) = self.loss.tensor_keys, _parameters(self.loss, self.name)
        action = self._call(tensordict, online.data).get(keys.action)
        values = self._call(tensordict, target).get(keys.action_value)
        return chosen(values, action, self.loss.action_space)

    def _call(self, tensordict: TensorDictBase, params: TensorDictParams) -> TensorDictBase:
        with params.to_module(self.network, preserve_module_state=False):
            return self.network(tensordict.copy())


class StackedQ:
    """Calls any TorchRL Q network through vmap over its stacked parameters."""

    def __init__(self, loss: LossModule, name: str) -> None:
        self.loss, self.name = loss, name

    def bind(self, loss: LossModule) -> None:
        """Forget what was made for other networks."""
        self.network = getattr(loss, self.name)
        self._vmapped = _vmap_func(
            self.network,
            (None, 0),
            randomness=loss.vmap_randomness,
            pseudo_vmap=loss.deactivate_vmap,
        )

    def online(self, tensordict: TensorDictBase) -> Tensor:
        params = _parameters(self.loss, self.name)[0]
        return self._values(tensordict, params if torch.is_grad_enabled() else params.detach())

    def target(self, tensordict: TensorDictBase) -> Tensor:
        return self._values(tensordict, _parameters(self.loss, self.name)[1])

    def _values(self, tensordict: TensorDictBase, params: TensorDictParams) -> Tensor:
        data = tensordict.select(*self.network.in_keys, strict=False)
        return self._vmapped(data, params).get(self.loss.tensor_keys.action_value)


def _parameters(loss: LossModule, name: str) -> tuple[TensorDictParams, TensorDictParams]:
    """Online and target parameters of a network."""
    target = f"target_{name}_params"
    # Looked up past the attribute, which warns until an updater is there.
    found = loss._modules[target] if target in loss._modules else getattr(loss, target)
    return getattr(loss, f"{name}_params"), found


def values_of_choices(loss: LossModule, tensordict: TensorDictBase) -> Tensor:
    """Values of the actions in ``tensordict``, ``[N, *B]``."""
    values = loss._critic.online(tensordict)  # [N, *B, n]
    action = tensordict.get(loss.tensor_keys.action)
    return chosen(values, action.expand(values.shape[0], *action.shape), loss.action_space)
