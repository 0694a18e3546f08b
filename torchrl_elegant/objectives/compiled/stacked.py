"""One function of equal modules, computed for several of them at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

from torchrl_elegant.objectives.compiled.compiler import compile_graph
from torchrl_elegant.objectives.compiled.recording import CannotRecord, Recording

#: Gives the stack ``[P, *shape]`` of which a module's own tensor is a row.
StackOf = Callable[[Tensor], Tensor]


class StackedCall:
    """Function that was recorded over one of P equal modules, for all P.

    Its graph is that of the recording under ``torch.vmap``: the same equations, with a batched
    product in the place of each product. Every tensor has a leading dimension over the members.
    Each member draws its random numbers from a generator of its own, in the order and in the shapes
    in which the function alone would draw them.

    Args:
        recording: over a module whose tensors are rows of stacks.
        stack_of: finds these stacks.
        compile: compile the graph at the first call.

    >>> from torchrl_elegant.objectives.compiled.recording import record
    >>> weights = torch.tensor([[1.0], [2.0]])
    >>> recording = record(lambda x: [weights[0] * x], [torch.ones(1)])
    >>> call = StackedCall(recording, lambda row: weights)
    >>> call([torch.tensor([[3.0], [4.0]])], members=slice(0, 2))[0].tolist()
    [[3.0], [8.0]]
    """

    def __init__(self, recording: Recording, stack_of: StackOf, *, compile: bool = False) -> None:
        if recording.asked:
            raise CannotRecord("it decides by numbers, which differ between members")
        self.used = recording.used
        self._graph, self._draws = recording.graph, recording.draws
        self._stacks = [stack_of(tensor) for tensor in recording.held]
        self._held: dict[tuple[int, int], list[Tensor]] = {}
        self._compile = compile
        self._runs: dict[int, Callable[..., list[Tensor]]] = {}

    @torch.no_grad()
    def __call__(
        self,
        given: Sequence[Tensor],
        generators: Sequence[torch.Generator] = (),
        *,
        members: slice,
    ) -> list[Tensor]:
        """Results ``[M, ...]`` of some members, for their arguments ``[M, ...]``.

        ``given`` has what the graph takes (``used``), ``generators`` one for each of the members.
        """
        place = (members.start, members.stop)
        if place not in self._held:
            self._held[place] = [stack[members] for stack in self._stacks]
        drawn = [draw.of_each(generators) for draw in self._draws]
        arguments = [*given, *self._held[place], *drawn]
        count = members.stop - members.start
        if count not in self._runs:
            self._runs[count] = self._batched(arguments)
        return self._runs[count](*arguments)

    def _batched(self, arguments: list[Tensor]) -> Callable[..., list[Tensor]]:
        # The trace is a real call: it must not change what the graph changes.
        copies = [each.clone() for each in arguments]
        graph: Any = torch.vmap(torch.func.functionalize(_results_of(self._graph)))
        module = make_fx(graph)(*copies)
        _drop_idle(module)
        return compile_graph(module, arguments) if self._compile else module


def _results_of(graph: fx.GraphModule) -> Callable[..., list[Tensor]]:
    def call(*arguments: Tensor) -> list[Tensor]:
        return graph(*arguments)

    return call


def _drop_idle(module: fx.GraphModule) -> None:
    """Remove views of the whole and factors of one, which vmap leaves in a graph."""
    graph, aten = module.graph, torch.ops.aten
    for node in list(graph.nodes):
        if node.target in (aten.expand.default, aten.view.default):
            idle = node.args[0].meta["val"].shape == node.meta["val"].shape
        else:
            idle = node.target is aten.mul.Scalar and node.args[1] == 1
        if idle:
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
    graph.eliminate_dead_code()
    module.recompile()
