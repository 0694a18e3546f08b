"""Direct calls of this package's networks: no parameter swap, no vmap, no TensorDict.

TorchRL's usual networks are called through ``torchrl_networks``, all others through
``foreign_networks``; the classes there have the same methods.
``online`` values train the critics, ``frozen`` values train only the action, and ``target`` values
train nothing. Values of an ensemble are ``[N, *B]``.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from tensordict import NestedKey, TensorDictBase
from torch import Tensor
from torchrl.objectives import LossModule

from torchrl_elegant.functional import chosen, path_of, reduce_members
from torchrl_elegant.modules import (
    CategoricalActor,
    DeterministicActor,
    EnsembleCritic,
    Memory,
    QNetwork,
    SquashedGaussianActor,
)
from torchrl_elegant.objectives.common.bound_networks import Seat, Watched
from torchrl_elegant.objectives.off_policy import foreign_networks as foreign
from torchrl_elegant.objectives.off_policy import torchrl_networks


class OwnNetwork:
    """Network of a loss and its delayed copy, which both hold the loss's own tensors.

    Casts and moves replace tensors, and TensorDict copies parameters apart from their module. After
    either, ``bind`` is called again; otherwise the network would read tensors that nothing trains.
    While other tensors stand in for the loss's, ``network`` and ``delayed`` are doubles with those.
    """

    def __init__(self, loss: LossModule, name: str) -> None:
        self.name = name
        network = getattr(loss, name)
        self._online, self._target = Seat(network), Seat(deepcopy(network))
        self._delayed_keys = {key: _delayed(key) for key in _memory_in(network)}

    def bind(self, loss: LossModule) -> None:
        """Make both copies read the tensors that optimizers and target updaters write."""
        online, target = foreign.parameters_of(loss, self.name)
        seen: dict[str, Watched] = loss._watched
        watched = seen[f"{self.name}_params"]
        self._online.bind(watched, online)
        # Without a delay the targets are the online parameters.
        delayed = seen.get(f"target_{self.name}_params", watched)
        self._target.bind(delayed, target)

    @property
    def network(self) -> Any:
        return self._online.taken()

    @property
    def delayed(self) -> Any:
        return self._target.taken(detached=True)

    @property
    def keys(self) -> list[NestedKey]:
        """Entries of an observation that the network reads."""
        return self._online.network.in_keys

    def inputs(self, tensordict: TensorDictBase) -> list[Tensor]:
        return [tensordict.get(key) for key in self.keys]

    def delayed_inputs(self, tensordict: TensorDictBase) -> list[Tensor]:
        """Inputs of the delayed copy: features come from the delayed memory."""
        keys, swapped = self.keys, self._delayed_keys
        return [tensordict.get(swapped.get(key, key) if swapped else key) for key in keys]

    def memories(self) -> dict[NestedKey, Memory]:
        """Memory of the network by the entry that it reads; empty without one."""
        return _memory_in(self.network)

    def delayed_memories(self) -> dict[NestedKey, Memory]:
        """Memory of the delayed copy, by the entry that the delayed network reads."""
        found = _memory_in(self.delayed).items()
        return {self._delayed_keys[key]: memory for key, memory in found}


class OwnEnsemble(OwnNetwork):
    """``EnsembleCritic``: Q(s, a) of all members, or of some."""

    def online(self, tensordict: TensorDictBase, action: Tensor) -> Tensor:
        return self.network.values(self.inputs(tensordict), action)

    def frozen(
        self, tensordict: TensorDictBase, action: Tensor, first: int | None = None
    ) -> Tensor:
        return self.network.frozen_values(self.inputs(tensordict), action, first)

    def target(
        self, tensordict: TensorDictBase, action: Tensor, members: Tensor | None = None
    ) -> Tensor:
        return self.delayed.values(self.delayed_inputs(tensordict), action, members)

    def online_logits(self, tensordict: TensorDictBase, action: Tensor) -> Tensor:
        """Outputs of a ``DistributionalCritic``, ``[N, *B, K]``."""
        return self.network.logits(self.inputs(tensordict), action)

    def target_logits(
        self, tensordict: TensorDictBase, action: Tensor, members: Tensor | None = None
    ) -> Tensor:
        """Outputs of the delayed copy of a ``DistributionalCritic``, ``[N, *B, K]``."""
        return self.delayed.logits(self.delayed_inputs(tensordict), action, members)

    @property
    def keys(self) -> list[NestedKey]:
        return self._online.network.in_keys[:-1]  # the last is the action


class OwnQNetwork(OwnNetwork):
    """``QNetwork``: Q(s, .) of all members, ``[N, *B, n]``."""

    def online(self, tensordict: TensorDictBase) -> Tensor:
        return self.network.values(self.inputs(tensordict))

    def target(self, tensordict: TensorDictBase) -> Tensor:
        return self.delayed.values(self.delayed_inputs(tensordict))

    def online_and_next(self, tensordict: TensorDictBase) -> tuple[Tensor, TensorDictBase]:
        """Values, and the next steps, into which this network writes nothing."""
        return self.online(tensordict), tensordict.get("next")

    def best(self, tensordict: TensorDictBase) -> Tensor:
        """max_a min_i Q_i(s, a) of the targets, ``[*B]``."""
        return reduce_members(self.target(tensordict), "min").amax(-1)

    def best_of_online(self, tensordict: TensorDictBase) -> Tensor:
        """Minimum of the targets at the action that the online members prefer, ``[*B]``."""
        index = self.online(tensordict).mean(0).argmax(-1)
        return chosen(reduce_members(self.target(tensordict), "min"), index, "categorical")


class OwnActor(OwnNetwork):
    """``DeterministicActor``: the action and the entries beside which it is judged."""

    def online(self, tensordict: TensorDictBase) -> tuple[TensorDictBase, Tensor]:
        return tensordict, self.network.act(*self.inputs(tensordict))

    def target(self, tensordict: TensorDictBase) -> tuple[TensorDictBase, Tensor]:
        return tensordict, self.delayed.act(*self.delayed_inputs(tensordict))


class OwnSampler(OwnNetwork):
    """Stochastic actor: actions that it draws, or the log-probabilities of all its actions."""

    def __init__(self, loss: LossModule, name: str) -> None:
        self.name, self._online = name, Seat(getattr(loss, name))

    def delayed_memories(self) -> dict[NestedKey, Memory]:
        """None: a sampler has no delayed copy."""
        return {}

    def bind(self, loss: LossModule) -> None:
        params, _ = foreign.parameters_of(loss, self.name)
        self._online.bind(loss._watched[f"{self.name}_params"], params)

    def sample(self, tensordict: TensorDictBase, *, shows: bool = False) -> tuple[Tensor, Tensor]:
        """Reparameterized action and its log-density, ``[*B, A]`` and ``[*B]``; writes nothing."""
        return self.network.sample(self.inputs(tensordict))

    def log_probs(self, tensordict: TensorDictBase) -> Tensor:
        """log pi of every action, ``[*B, n]``."""
        network = self.network
        return network.head_of(network.output(self.inputs(tensordict))).log_probs


def _memory_in(network: Any) -> dict[NestedKey, Memory]:
    memories = [part for part in network.children() if isinstance(part, Memory)]
    return {memory.out_key: memory for memory in memories}


def _delayed(key: NestedKey) -> NestedKey:
    *above, name = path_of(key)
    return (*above, f"delayed_{name}") if above else f"delayed_{name}"


def critic_calls(loss: LossModule, name: str, *, stacked: bool) -> Any:
    """Calls of a critic of states and actions; a foreign one may be ``stacked``."""
    if isinstance(getattr(loss, name), EnsembleCritic):
        return OwnEnsemble(loss, name)
    plain = (foreign.StackedCritic if stacked else foreign.SingleCritic)(loss, name)
    return torchrl_networks.lean_critic(plain, stacked=stacked)


def q_network_calls(loss: LossModule, name: str, *, stacked: bool) -> Any:
    """Calls of a critic that gives a value for each action."""
    if isinstance(getattr(loss, name), QNetwork):
        return OwnQNetwork(loss, name)
    plain = (foreign.StackedQNetwork if stacked else foreign.SingleQNetwork)(loss, name)
    return torchrl_networks.lean_q_network(plain, stacked=stacked)


def actor_calls(loss: LossModule, name: str = "actor_network") -> Any:
    """Calls of an actor of any kind."""
    actor = getattr(loss, name)
    if isinstance(actor, DeterministicActor):
        return OwnActor(loss, name)
    if isinstance(actor, SquashedGaussianActor | CategoricalActor):
        return OwnSampler(loss, name)
    return torchrl_networks.lean_actor(foreign.SwappedActor(loss, name))
