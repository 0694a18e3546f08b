"""Memory over time: a GRU, its TensorDict module, and actors that act with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from tensordict import NestedKey, TensorDictBase, unravel_key
from tensordict.nn import TensorDictModuleBase
from torch import Tensor, nn
from torch.nn import functional as F
from torchrl.data import Composite, Unbounded
from torchrl.envs import TensorDictPrimer
from torchrl.modules import recurrent_mode

from torchrl_elegant.functional import gru_states
from torchrl_elegant.modules.direct_calls import RestartsRows, rows_that_begin
from torchrl_elegant.modules.inputs import Inputs

# Name under which a network holds the memory that it reads.
_PLACE = "memory"


class GRU(nn.Module):
    """Gated recurrent unit for single steps and for whole sequences.

    It computes what ``torch.nn.GRU`` computes, over any further dimensions between time and
    features, such as the agents of a team. A sequence takes one matrix product for all inputs, and
    a lean loop for the states (``functional.gru_states``). Weights are orthogonal, biases zero.

    >>> import torch
    >>> gru = GRU(in_features=3, hidden_size=8)
    >>> gru.step(torch.zeros(5, 3), torch.zeros(5, 8)).shape
    torch.Size([5, 8])
    >>> gru.unroll(torch.zeros(5, 7, 2, 3), torch.zeros(5, 2, 8)).shape
    torch.Size([5, 7, 2, 8])
    """

    def __init__(self, *, in_features: int, hidden_size: int) -> None:
        super().__init__()
        if hidden_size < 1:
            raise ValueError(f"`hidden_size` must be at least 1, got `{hidden_size}`")
        self.hidden_size = hidden_size
        self.cell = nn.GRUCell(in_features, hidden_size)
        for param in self.cell.parameters():
            if param.ndim == 1:
                nn.init.zeros_(param)
                continue
            for gate in param.data.chunk(3):
                nn.init.orthogonal_(gate)

    def step(self, x: Tensor, state: Tensor) -> Tensor:
        """Next state ``[*B, H]`` of inputs ``[*B, F]`` and states ``[*B, H]``."""
        if x.ndim == 2:
            return self.cell(x, state)
        flat = self.cell(x.reshape(-1, x.shape[-1]), state.reshape(-1, state.shape[-1]))
        return flat.view(state.shape)

    def unroll(self, x: Tensor, state: Tensor, begins: Tensor | None = None) -> Tensor:
        """States after each step, ``[B, T, *n, H]``.

        Args:
            x: inputs ``[B, T, *n, F]``.
            state: state before the first step, ``[B, *n, H]``.
            begins: flags ``[B, T]``; where one is True, the state before that step is zero.
        """
        cell, (batch, steps, *more) = self.cell, x.shape[:-1]
        in_time = x.transpose(0, 1).reshape(steps, -1, x.shape[-1])
        gates = F.linear(in_time, cell.weight_ih, cell.bias_ih)
        keep = None
        if begins is not None:
            flags = begins.t().view(steps, batch, *[1] * len(more))
            keep = (~flags.expand(steps, batch, *more)).reshape(steps, -1, 1).to(gates.dtype)
        first = state.reshape(-1, self.hidden_size)
        states = gru_states(gates, first, cell.weight_hh, cell.bias_hh, keep)
        return states.view(steps, batch, *more, self.hidden_size).transpose(0, 1)


class Memory(TensorDictModuleBase):
    """GRU over the entries of an observation, under TorchRL's keys of recurrent modules.

    It reads the observation, the state and ``is_init``, and writes the state after the step, once
    as a feature for the network behind it and once under ``next``. A row is one step. In TorchRL's
    recurrent mode (``set_recurrent_mode``), in which its losses call their networks, the last batch
    dimension is time, the first state of each sequence counts, and ``is_init`` zeroes states inside
    one. ``primer`` makes the transform that gives an environment its first states; TorchRL's
    ``InitTracker`` writes ``is_init``.

    TorchRL's ``GRUModule`` does the same with a state ``[*B, layers, H]`` and for observations
    ``[*B, F]`` alone; here dimensions between batch and features pass through, and sequences that
    hold several episodes are not taken apart (``benchmarks/recurrent.py`` has the measured ratio).

    Args:
        observation: shape of each observation entry, by key; ``Inputs`` joins them.
        hidden_size: size of the state.
        out_key: entry of the feature.
        state_key: entry of the state.
        ids: agents whose number it reads beside the observation (``Inputs``); 0 for none.

    >>> import torch
    >>> from tensordict import TensorDict
    >>> memory = Memory(observation={"observation": (3,)}, hidden_size=8)
    >>> memory.in_keys
    ['observation', 'recurrent_state', 'is_init']
    >>> first = {"recurrent_state": torch.zeros(5, 8), "is_init": torch.ones(5, 1).bool()}
    >>> data = memory(TensorDict({"observation": torch.zeros(5, 3), **first}, [5]))
    >>> data["memory"].shape, data["next", "recurrent_state"].shape
    (torch.Size([5, 8]), torch.Size([5, 8]))
    """

    def __init__(
        self,
        *,
        observation: Mapping[NestedKey, Sequence[int]],
        hidden_size: int = 64,
        out_key: NestedKey = "memory",
        state_key: NestedKey = "recurrent_state",
        ids: int = 0,
    ) -> None:
        super().__init__()
        self.inputs, self._ids = Inputs(observation, ids=ids), ids
        self.gru = GRU(in_features=self.inputs.features, hidden_size=hidden_size)
        self.hidden_size = hidden_size
        self.out_key, self.state_key = unravel_key(out_key), unravel_key(state_key)
        self.in_keys = [*self.inputs.keys, self.state_key, "is_init"]
        self.out_keys = [self.out_key, unravel_key(("next", self.state_key))]

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        x, begins = self.join(tensordict), tensordict.get("is_init").squeeze(-1)
        state = tensordict.get(self.state_key, None)
        if state is None:
            state = x.new_zeros(*x.shape[:-1], self.hidden_size)
        if recurrent_mode():
            time = tensordict.ndim - 1
            first = state.select(time, 0)
            rows = x.shape[:time]
            after = self.gru.unroll(
                x.reshape(-1, *x.shape[time:]),
                first.reshape(rows.numel(), *first.shape[time:]),
                begins.reshape(rows.numel(), -1),
            ).reshape(state.shape)
        else:
            after = self.gru.step(x, zeroed(state, begins))
        for key in self.out_keys:
            tensordict.set(key, after)
        return tensordict

    def join(self, tensordict: TensorDictBase) -> Tensor:
        """Inputs of the GRU, ``[*B, F]``."""
        return self.inputs.join([tensordict.get(key) for key in self.inputs.keys])

    def primer(
        self, batch_size: Sequence[int] = (), agents: Sequence[int] = ()
    ) -> TensorDictPrimer:
        """Transform that gives an environment of this ``batch_size`` zeros as its first states."""
        shape = (*batch_size, *agents, self.hidden_size)
        spec = Composite(shape=batch_size)
        spec[self.state_key] = Unbounded(shape)
        return TensorDictPrimer(spec, default_value=0.0)

    def spec_dict(self) -> dict[str, Any]:
        """Plain data from which the same architecture can be built."""
        return {
            "observation": self.inputs.spec_dict(),
            "hidden_size": self.hidden_size,
            "out_key": self.out_key,
            "state_key": self.state_key,
            "ids": self._ids,
        }


def zeroed(state: Tensor, rows: Tensor) -> Tensor:
    """``state`` ``[*B, ...]`` with zeros in the ``rows`` ``[*B]`` that are True."""
    rows = rows.to(state.device)
    return state.masked_fill(rows.view(*rows.shape, *[1] * (state.ndim - rows.ndim)), 0.0)


def give_memory(network: nn.Module, memory: Memory) -> None:
    """Put ``memory`` into the network that reads its feature, so that both learn as one.

    >>> from torchrl_elegant.modules.value import StateValue
    >>> memory = Memory(observation={"observation": (3,)}, hidden_size=8)
    >>> critic = StateValue(observation={"memory": (8,)})
    >>> give_memory(critic, memory)
    >>> memory_of(critic) is memory
    True
    """
    network.add_module(_PLACE, memory)


def memory_of(network: nn.Module) -> Memory:
    """The memory that a network, or an actor around one, reads; ValueError without one."""
    return _find(network)[1]


def _find(network: nn.Module) -> tuple[str, Memory]:
    for name, part in network.named_modules():
        if isinstance(part, Memory):
            return name, part
    raise ValueError(
        f"`network` must have a memory, got `{type(network).__name__}` without; call give_memory"
    )


class RecurrentActor(TensorDictModuleBase):
    """Actor that carries the state of its memory from step to step, row by row.

    It stands wherever an actor without memory would: it reads observations and writes, beside the
    action, each state as it was before the step, from which losses over sequences start again.
    Collectors tell it by ``restart`` where an episode ended. Called with a TensorDict it sees
    beginnings by ``is_init`` or ``step_count``. The states are not saved: a copy, and a call with
    another number of rows, begins anew.

    Args:
        actor: reads the feature of the memory that it holds (``give_memory``).
        beside: memories of other networks, such as critics, whose states are written, too.

    >>> import torch
    >>> from tensordict import TensorDict
    >>> from torchrl_elegant.modules.categorical import CategoricalActor
    >>> actor = CategoricalActor(observation={"memory": (8,)}, choices=2)
    >>> give_memory(actor, Memory(observation={"observation": (3,)}, hidden_size=8))
    >>> policy = RecurrentActor(actor)
    >>> policy.in_keys, policy.out_keys
    (['observation'], ['action', 'action_log_prob', 'recurrent_state'])
    >>> data = TensorDict({"observation": torch.randn(5, 3)}, [5])
    >>> policy(data)["recurrent_state"].any().item(), policy(data)["recurrent_state"].any().item()
    (False, True)
    """

    def __init__(self, actor: Any, beside: Sequence[Memory] = ()) -> None:
        super().__init__()
        self.actor, self.beside = actor, nn.ModuleList(beside)
        # In a list, which registers nothing: the first is a part of the actor already.
        self._memories = [memory_of(actor), *beside]
        self._states: list[Tensor] | None = None
        self._shares = False
        features = {memory.out_key for memory in self._memories}
        seen = [key for memory in self._memories for key in memory.inputs.keys]
        seen += [key for key in actor.in_keys if unravel_key(key) not in features]
        self.in_keys = list(dict.fromkeys(seen))
        self.out_keys = [*actor.out_keys, *(memory.state_key for memory in self._memories)]

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        begins = rows_that_begin(tensordict)
        if begins is not None:
            self.restart(begins)
        results = self.act(*(tensordict.get(key) for key in self.in_keys))
        for key, value in zip(self.out_keys, results, strict=True):
            tensordict.set(key, value)
        return tensordict

    def act(self, *observation: Tensor) -> tuple[Tensor, ...]:
        """Values of ``out_keys`` at observations in the order of ``in_keys``."""
        seen = dict(zip(self.in_keys, observation, strict=True))
        inputs = [m.inputs.join([seen[key] for key in m.inputs.keys]) for m in self._memories]
        before = self._states_for(inputs)
        after = [
            memory.gru.step(x, state)
            for memory, x, state in zip(self._memories, inputs, before, strict=True)
        ]
        # Never in place: they may have been made in inference mode.
        self._states = [state.detach() for state in after]
        seen[self._memories[0].out_key] = after[0]
        chosen = self.actor.act(*(seen[unravel_key(key)] for key in self.actor.in_keys))
        return (*(chosen if isinstance(chosen, tuple) else (chosen,)), *before)

    def _states_for(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        states = self._states
        shapes = [
            (*x.shape[:-1], m.hidden_size) for x, m in zip(inputs, self._memories, strict=True)
        ]
        if states is None or any(
            state.shape != shape or state.device != x.device
            for state, shape, x in zip(states, shapes, inputs, strict=True)
        ):
            return [x.new_zeros(shape) for x, shape in zip(inputs, shapes, strict=True)]
        return states

    def restart(self, rows: Tensor | None = None) -> None:
        """Begin anew in the ``rows`` ``[*B]`` that are True; None: in all."""
        states = self._states
        if rows is None or states is None or states[0].shape[: rows.ndim] != rows.shape:
            self._states = None  # States of another shape begin anew by themselves.
        else:
            self._states = [zeroed(state, rows) for state in states]
        if rows is not None and not self._shares and isinstance(self.actor, RestartsRows):
            self.actor.restart(rows)

    def afresh(self) -> RecurrentActor:
        """The same actor with a state of its own, for somebody else's episodes."""
        other = RecurrentActor(self.actor)
        other._shares = True  # What the actor inside carries is this one's.
        return other

    def spec_dict(self) -> dict[str, Any]:
        """Plain data from which ``from_spec`` builds the same architecture."""
        place, memory = _find(self.actor)
        return {
            **memory.spec_dict(),
            "actor": type(self.actor).__name__,
            "actor_spec": self.actor.spec_dict(),
            "place": place.removesuffix(_PLACE).removesuffix("."),
            "beside": [cast(Memory, each).spec_dict() for each in self.beside],
        }

    @classmethod
    def from_spec(
        cls,
        builders: Mapping[str, Callable[..., TensorDictModuleBase]],
        *,
        actor: str,
        actor_spec: Mapping[str, Any],
        place: str,
        beside: Sequence[Mapping[str, Any]],
        **memory: Any,
    ) -> RecurrentActor:
        """Builds what ``spec_dict`` describes, the actor with the builder of its class's name."""
        built = builders[actor](**actor_spec)
        give_memory(built.get_submodule(place), Memory(**memory))
        return cls(built, [Memory(**spec) for spec in beside])

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_states": None}
