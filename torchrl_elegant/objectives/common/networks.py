"""How a loss calls its networks: directly where they are this package's, through vmap where not.

Both kinds share one face, so that a loss is written once. ``online`` gives values that train the
critics, ``frozen`` values that train only the action, ``target`` values that train nothing; all are
``[N, *B]``. Where told so, ``target`` evaluates only the members at given indices and ``frozen``
only the first so many.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import torch
from tensordict import NestedKey, TensorDictBase
from tensordict.nn import set_composite_lp_aggregate
from torch import Tensor
from torchrl.envs.utils import ExplorationType, set_exploration_type
from torchrl.modules.distributions.utils import rsample_and_log_prob
from torchrl.objectives import LossModule
from torchrl.objectives.utils import _vmap_func

from torchrl_elegant.modules import EnsembleCritic, SquashedGaussianActor


class DirectCritic:
    """Calls an ``EnsembleCritic`` itself: no parameter swap, no vmap, no TensorDict."""

    def __init__(self, loss: LossModule) -> None:
        self.network: EnsembleCritic = loss.qvalue_network
        self.delayed = deepcopy(self.network)

    def bind(self, loss: LossModule) -> None:
        """Make both copies read the tensors that optimisers and target updaters write."""
        loss.qvalue_network_params.to_module(self.network, preserve_module_state=False)
        name = "target_qvalue_network_params"
        # Looked up past the attribute, which warns until an updater is there: none can be yet.
        target = loss._modules[name] if name in loss._modules else getattr(loss, name)
        target.to_module(self.delayed, preserve_module_state=False)

    def online(self, tensordict: TensorDictBase, action: Tensor) -> Tensor:
        return self.network.values(self._observation(tensordict), action)

    def frozen(
        self, tensordict: TensorDictBase, action: Tensor, first: int | None = None
    ) -> Tensor:
        return self.network.frozen_values(self._observation(tensordict), action, first)

    def target(
        self, tensordict: TensorDictBase, action: Tensor, members: Tensor | None = None
    ) -> Tensor:
        return self.delayed.values(self._observation(tensordict), action, members)

    def _observation(self, tensordict: TensorDictBase) -> list[Tensor]:
        return [tensordict.get(key) for key in self.network.in_keys[:-1]]


class StackedCritic:
    """Calls any TorchRL Q network through vmap over its stacked parameters."""

    def __init__(self, loss: LossModule) -> None:
        self.loss = loss

    def bind(self, loss: LossModule) -> None:
        """Forget detached parameters: a cast or a move has replaced them."""
        self._call = _vmap_func(
            loss.qvalue_network,
            (None, 0),
            randomness=loss.vmap_randomness,
            pseudo_vmap=loss.deactivate_vmap,
        )

    def online(self, tensordict: TensorDictBase, action: Tensor) -> Tensor:
        return self._values(tensordict, action, self.loss.qvalue_network_params)

    def frozen(
        self, tensordict: TensorDictBase, action: Tensor, first: int | None = None
    ) -> Tensor:
        params = self.loss.qvalue_network_params.detach()
        return self._values(tensordict, action, params if first is None else params[:first])

    def target(
        self, tensordict: TensorDictBase, action: Tensor, members: Tensor | None = None
    ) -> Tensor:
        params = self.loss.target_qvalue_network_params
        return self._values(tensordict, action, params if members is None else params[members])

    def _values(self, tensordict: TensorDictBase, action: Tensor, params) -> Tensor:
        keys = self.loss.tensor_keys
        data = tensordict.select(*self.loss.qvalue_network.in_keys, strict=False)
        data.set(keys.action, action)
        return self._call(data, params).get(keys.state_action_value).squeeze(-1)


class SingleCritic(StackedCritic):
    """Calls one TorchRL Q network, whose parameters are not stacked."""

    def bind(self, loss: LossModule) -> None:
        """Nothing to keep: parameters are put in at each call."""

    def online(self, tensordict: TensorDictBase, action: Tensor) -> Tensor:
        # As TorchRL's DDPG has it: whatever an actor wrote beside the action is data, too.
        data = tensordict.select(*self.loss.qvalue_network.in_keys, strict=False).detach()
        return super().online(data, action)

    def _call(self, tensordict: TensorDictBase, params) -> TensorDictBase:
        with params.to_module(self.loss.qvalue_network, preserve_module_state=False):
            return self.loss.qvalue_network(tensordict)

    def _values(self, tensordict: TensorDictBase, action: Tensor, params) -> Tensor:
        return super()._values(tensordict, action, params).unsqueeze(0)


def critic_caller(loss: LossModule) -> DirectCritic | StackedCritic:
    """The right way to call ``loss.qvalue_network``; ``bind_networks`` makes it ready."""
    if isinstance(loss.qvalue_network, EnsembleCritic):
        return DirectCritic(loss)
    return SingleCritic(loss) if loss.num_qvalue_nets is None else StackedCritic(loss)


def bind_networks(loss: LossModule, critic: DirectCritic | StackedCritic) -> None:
    """Make the networks that are called directly hold the loss's own tensors.

    Casts and moves replace buffers, and TensorDict copies parameters apart from their module: after
    either, a network called past its ``*_params`` would read tensors that nothing trains.
    """
    if isinstance(loss.actor_network, SquashedGaussianActor):
        loss.actor_network_params.to_module(loss.actor_network, preserve_module_state=False)
    if "_actor" in vars(loss):
        loss._actor.bind(loss)
    critic.bind(loss)


def sample_action(loss: LossModule, tensordict: TensorDictBase) -> tuple[Tensor, Tensor]:
    """A reparameterised action of the actor and its log-density, ``[*B, A]`` and ``[*B]``."""
    actor = loss.actor_network
    if isinstance(actor, SquashedGaussianActor):
        return actor.sample([tensordict.get(key) for key in actor.in_keys])
    with (
        set_exploration_type(ExplorationType.RANDOM),
        set_composite_lp_aggregate(True),
        loss.actor_network_params.to_module(actor, preserve_module_state=False),
    ):
        # A copy, because the actor writes what its distribution is made of beside its input.
        return rsample_and_log_prob(actor.get_dist(tensordict.copy()))


def has_value(after: TensorDictBase, keys: Any, read: Sequence[NestedKey]) -> Tensor:
    """Which next states have a value, ``[*B]``: not terminated, and of those at which an episode
    was cut short the ones whose entries ``read`` are finite.

    >>> from types import SimpleNamespace
    >>> from tensordict import TensorDict
    >>> done, terminated = torch.tensor([[[0], [1], [1], [1]], [[0], [0], [0], [1]]]).bool()
    >>> seen = torch.tensor([[0.0], [0.0], [torch.nan], [0.0]])
    >>> after = TensorDict({"x": seen, "done": done, "terminated": terminated}, [4])
    >>> has_value(after, SimpleNamespace(done="done", terminated="terminated"), ["x"]).tolist()
    [True, True, False, False]
    """
    gone = after.get(keys.terminated, after.get(keys.done)).squeeze(-1)
    ended = after.get(keys.done, gone.unsqueeze(-1)).squeeze(-1)
    seen = [after.get(key).isfinite().reshape(*after.shape, -1).all(-1) for key in read]
    return ~(gone | (ended & ~torch.stack(seen).all(0)))


def scatter_valid(values: Tensor, valid: Tensor) -> Tensor:
    """Put values computed on valid rows only back into place, zeros elsewhere."""
    return values.new_zeros(valid.shape).masked_scatter(valid, values)
