"""Calls of any TorchRL network: with the loss's parameters put into it, or through vmap.

The counterpart of ``own_networks`` and ``torchrl_networks``, slower and for every network.
"""

from __future__ import annotations

from typing import Any

from tensordict import NestedKey, TensorDictBase, TensorDictParams
from tensordict.nn import TensorDictModuleBase, set_composite_lp_aggregate
from torch import Tensor, is_grad_enabled
from torchrl.envs.utils import ExplorationType, set_exploration_type
from torchrl.modules.distributions.utils import rsample_and_log_prob
from torchrl.objectives import LossModule
from torchrl.objectives.utils import _vmap_func

from torchrl_elegant.functional import chosen


def parameters_of(loss: LossModule, name: str) -> tuple[TensorDictParams, TensorDictParams]:
    """Online and target parameters of the network ``name`` of ``loss``."""
    target = f"target_{name}_params"
    # Looked up past the attribute, which warns until an updater is there: none can be yet.
    found = loss._modules[target] if target in loss._modules else getattr(loss, target)
    return getattr(loss, f"{name}_params"), found


class ForeignNetwork:
    """Network of a loss, called with parameters that are looked up at each call."""

    def __init__(self, loss: LossModule, name: str) -> None:
        self.loss, self.name = loss, name
        self.network: TensorDictModuleBase = getattr(loss, name)

    def bind(self, loss: LossModule) -> None:
        """Do nothing: no tensor is kept."""

    def memories(self) -> dict[NestedKey, Any]:
        """None: a network of another package keeps its states to itself."""
        return {}

    delayed_memories = memories

    @property
    def params(self) -> TensorDictParams:
        return getattr(self.loss, f"{self.name}_params")

    @property
    def target_params(self) -> TensorDictParams:
        # TorchRL warns here where no updater moves the targets.
        return getattr(self.loss, f"target_{self.name}_params")

    def swapped(self, tensordict: TensorDictBase, params: Any) -> TensorDictBase:
        with params.to_module(self.network, preserve_module_state=False):
            return self.network(tensordict)


class SingleCritic(ForeignNetwork):
    """Q(s, a) of one network, ``[1, *B]``."""

    def online(self, tensordict: TensorDictBase, action: Tensor) -> Tensor:
        # As in TorchRL's DDPG: an entry that an actor wrote beside the action is data, too.
        data = tensordict.select(*self.network.in_keys, strict=False).detach()
        return self._values(data, action, self.params)

    def frozen(
        self, tensordict: TensorDictBase, action: Tensor, first: int | None = None
    ) -> Tensor:
        return self._values(tensordict, action, self.params.detach())

    def target(
        self, tensordict: TensorDictBase, action: Tensor, members: Tensor | None = None
    ) -> Tensor:
        return self._values(tensordict, action, self.target_params)

    def _values(self, tensordict: TensorDictBase, action: Tensor, params: Any) -> Tensor:
        keys = self.loss.tensor_keys
        data = tensordict.select(*self.network.in_keys, strict=False)
        return self._called(data.set(keys.action, action), params, keys.state_action_value)

    def _called(self, data: TensorDictBase, params: Any, key: NestedKey) -> Tensor:
        return self.swapped(data, params).get(key).squeeze(-1).unsqueeze(0)


class StackedCritic(SingleCritic):
    """Q(s, a) of all members, whose parameters are stacked, ``[N, *B]``."""

    def bind(self, loss: LossModule) -> None:
        """Make a new vmap, which keeps no parameters of before a cast or a move."""
        self._vmapped = vmapped(loss, self.network)

    def online(self, tensordict: TensorDictBase, action: Tensor) -> Tensor:
        return self._values(tensordict, action, self.params)

    def frozen(
        self, tensordict: TensorDictBase, action: Tensor, first: int | None = None
    ) -> Tensor:
        params = self.params.detach()
        return self._values(tensordict, action, params if first is None else params[:first])

    def target(
        self, tensordict: TensorDictBase, action: Tensor, members: Tensor | None = None
    ) -> Tensor:
        params = self.target_params
        return self._values(tensordict, action, params if members is None else params[members])

    def _called(self, data: TensorDictBase, params: Any, key: NestedKey) -> Tensor:
        return self._vmapped(data, params).get(key).squeeze(-1)


class SingleQNetwork(ForeignNetwork):
    """Q(s, .) of one network that names its own greedy action."""

    def online(self, tensordict: TensorDictBase) -> Tensor:
        return self.online_and_next(tensordict)[0]

    def online_and_next(self, tensordict: TensorDictBase) -> tuple[Tensor, TensorDictBase]:
        """Values, and the next steps with the recurrent state that the network has come to."""
        data = self.swapped(tensordict.copy(), self.params)
        return data.get(self.loss.tensor_keys.action_value).unsqueeze(0), data.get("next")

    def target(self, tensordict: TensorDictBase) -> Tensor:
        data = self.swapped(tensordict.copy(), self.target_params)
        return data.get(self.loss.tensor_keys.action_value).unsqueeze(0)

    def best(self, tensordict: TensorDictBase) -> Tensor:
        """Value that the targets give their own greedy action, ``[*B]``."""
        data = self.swapped(tensordict.copy(), self.target_params)
        return data.get(self.loss.tensor_keys.value).squeeze(-1)

    def best_of_online(self, tensordict: TensorDictBase) -> Tensor:
        """Value that the targets give the greedy action of the online network, ``[*B]``."""
        keys = self.loss.tensor_keys
        action = self.swapped(tensordict.copy(), self.params.data).get(keys.action)
        values = self.swapped(tensordict.copy(), self.target_params).get(keys.action_value)
        return chosen(values, action, self.loss.action_space)


class StackedQNetwork(ForeignNetwork):
    """Q(s, .) of all members, whose parameters are stacked, ``[N, *B, n]``."""

    def bind(self, loss: LossModule) -> None:
        """Make a new vmap, which keeps no parameters of before a cast or a move."""
        self.network = getattr(loss, self.name)
        self._vmapped = vmapped(loss, self.network)

    def online(self, tensordict: TensorDictBase) -> Tensor:
        params = self.params
        return self._values(tensordict, params if is_grad_enabled() else params.detach())

    def target(self, tensordict: TensorDictBase) -> Tensor:
        return self._values(tensordict, self.target_params)

    def _values(self, tensordict: TensorDictBase, params: Any) -> Tensor:
        data = tensordict.select(*self.network.in_keys, strict=False)
        return self._vmapped(data, params).get(self.loss.tensor_keys.action_value)


class SwappedActor(ForeignNetwork):
    """Actor: its deterministic action, actions that it draws, or its logits."""

    def online(self, tensordict: TensorDictBase) -> tuple[TensorDictBase, Tensor]:
        return self._act(tensordict, self.params)

    def target(self, tensordict: TensorDictBase) -> tuple[TensorDictBase, Tensor]:
        return self._act(tensordict, self.target_params)

    def _act(self, tensordict: TensorDictBase, params: Any) -> tuple[TensorDictBase, Tensor]:
        loss = self.loss
        read = [*self.network.in_keys, *getattr(loss, loss.critic_name).in_keys]
        with set_exploration_type(loss.deterministic_sampling_mode):
            data = self.swapped(tensordict.select(*read, strict=False), params)
        return data, data.get(loss.tensor_keys.action)

    def sample(self, tensordict: TensorDictBase, *, shows: bool = False) -> tuple[Tensor, Tensor]:
        """Reparameterized action and its log-density.

        An actor writes the parameters of its distribution into what it reads: into ``tensordict``
        itself if ``shows``.
        """
        with (
            set_exploration_type(ExplorationType.RANDOM),
            set_composite_lp_aggregate(True),
            self.params.to_module(self.network, preserve_module_state=False),
        ):
            data = tensordict if shows else tensordict.copy()
            return rsample_and_log_prob(self.network.get_dist(data))

    def log_probs(self, tensordict: TensorDictBase) -> Tensor:
        """log pi of every action, ``[*B, n]``."""
        with self.params.to_module(self.network, preserve_module_state=False):
            return self.network.get_dist(tensordict.copy()).logits


def vmapped(loss: LossModule, network: TensorDictModuleBase) -> Any:
    """``network`` over the stacked parameters of its second argument."""
    options = {"randomness": loss.vmap_randomness, "pseudo_vmap": loss.deactivate_vmap}
    return _vmap_func(network, (None, 0), **options)
