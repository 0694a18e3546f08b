"""Recording: what a function does to tensors, as a graph of plain operations."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import (
    disable_proxy_modes_tracing,
    get_proxy_mode,
    get_proxy_slot,
    make_fx,
)
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

#: Random operations that read the shape of a tensor and not its numbers, and what fills another.
_LIKE: dict[Any, Callable[..., Tensor]] = {
    torch.ops.aten.randn_like.default: Tensor.normal_,
    torch.ops.aten.rand_like.default: Tensor.uniform_,
}


class CannotRecord(RuntimeError):
    """The function does something that a graph of tensors cannot hold."""


@dataclass(frozen=True)
class Draw:
    """Draws what an operation has drawn: ``fill`` puts numbers into a tensor that ``fresh`` makes.

    Without ``fill``, ``fresh`` draws by itself, from the global stream alone.
    """

    fresh: Callable[[], Tensor]
    fill: Callable[..., Tensor] | None = None

    def __call__(self) -> Tensor:
        return self.fresh() if self.fill is None else self.fill(self.fresh(), generator=None)

    def of_each(self, generators: Sequence[torch.Generator]) -> Tensor:
        """Numbers that the operation draws from each of several generators, ``[P, *shape]``."""
        one = self.fresh()
        if self.fill is None or not one.is_contiguous():
            raise CannotRecord(
                "it draws random numbers that no generator of a member can give; draw them by "
                "torch.randn_like"
            )
        drawn = one.new_empty(len(generators), *one.shape)
        for row, generator in zip(drawn.unbind(0), generators, strict=True):
            self.fill(row, generator=generator)
        return drawn


@dataclass(frozen=True, kw_only=True)
class Recording:
    """Operations of one call; each further call with tensors of the same shapes is the same.

    Args:
        graph: takes ``given``, then ``held``, then what ``draws`` give, each as its own argument,
            and returns all results.
        held: tensors that the function read or changed without being given them, such as
            parameters. They are read anew at each call.
        draws: functions that draw the random numbers of a call, in the order of the function's own
            draws. So the same random state gives the same numbers.
        used: for each tensor that the function was given, whether the graph takes it.
        asked: held tensors by whose numbers the function decided something, and these numbers.
    """

    graph: fx.GraphModule
    held: list[Tensor]
    draws: list[Draw]
    used: list[bool]
    asked: list[tuple[Tensor, Tensor]]

    def holds(self) -> bool:
        """True if the function would decide as it did when it was recorded."""
        return all(torch.equal(tensor, then) for tensor, then in self.asked)

    def arguments(self, given: Sequence[Tensor]) -> list[Tensor]:
        """Arguments of the graph for one call, with random numbers of its own."""
        return [*given, *self.held, *(draw() for draw in self.draws)]


class _Recording(TorchFunctionMode):
    """Refuses to read numbers from tensors: in the graph they would never change again.

    To ask whether constants are in order is no such reading, and distributions do it at each call.
    """

    reads = (
        *(Tensor.item, Tensor.tolist, Tensor.__float__, Tensor.__int__, Tensor.__index__),
        *(Tensor.__complex__, Tensor.numpy, Tensor.__array__),
    )

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in self.reads:
            raise _reads_a_number()
        if func is not Tensor.__bool__:
            return func(*args, **(kwargs or {}))
        _HERE.asking += 1
        try:
            return func(*args)
        finally:
            _HERE.asking -= 1


class _Operations(TorchDispatchMode):
    """Sees readings that PyTorch's own code makes, below all of its transforms.

    ``asked`` collects the held tensors that a decision rests on.
    """

    reads = (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.equal.default)

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Tensor] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func not in self.reads:
            return func(*args, **(kwargs or {}))
        roots = _roots(args[0])
        if not _HERE.asking or roots is None or any(root.requires_grad for root in roots):
            raise _reads_a_number()
        self.asked += roots
        with disable_proxy_modes_tracing():
            return func(*args)


class _Here(threading.local):
    recordings = 0
    asking = 0


_HERE = _Here()


def _reads_a_number() -> CannotRecord:
    return CannotRecord("it reads a number from a tensor")


def _roots(tensor: Tensor) -> list[Tensor] | None:
    """Held tensors that ``tensor`` was computed from; None if from others that change."""
    mode: Any = get_proxy_mode()
    slot = get_proxy_slot(tensor, mode.tracer, None)
    if slot is None:
        return [tensor]
    roots, waiting, seen = [], [slot.proxy.node], set()
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        if node.op == "placeholder" or _is_random(node):
            return None
        if node.op == "get_attr" and not _is_constant(node):
            roots.append(getattr(mode.tracer.root, str(node.target)))
        waiting += node.all_input_nodes
    return roots


@contextmanager
def _no_other_random_numbers() -> Iterator[None]:
    """Refuse numbers drawn by Python or NumPy, which would stay as they are."""
    before, arrays = random.getstate(), np.random.get_state()  # noqa: NPY002
    yield
    after = np.random.get_state()  # noqa: NPY002
    if random.getstate() != before or not all(map(np.array_equal, arrays, after)):
        random.setstate(before)
        np.random.set_state(arrays)  # noqa: NPY002
        raise CannotRecord("it draws random numbers by Python or NumPy; draw them by PyTorch")


def is_recording() -> bool:
    """True inside the function that ``record`` calls: numbers must stay in their tensors.

    >>> is_recording()
    False
    """
    return _HERE.recordings > 0


def record(function: Callable[..., list[Tensor]], given: Sequence[Tensor]) -> Recording:
    """Call ``function`` with the tensors ``given`` and record all that it does to tensors.

    The call is a real one: it draws random numbers and changes what the function changes. Numbers
    of Python, constants, and what is decided by them, become part of the graph. What the function
    decides by numbers in the tensors that it is given cannot be recorded, and raises.

    >>> weight = torch.ones(2)
    >>> recording = record(lambda x: [weight * x + torch.randn(2)], [torch.zeros(2)])
    >>> [tuple(held.shape) for held in recording.held], len(recording.draws)
    ([(2,)], 1)
    >>> _ = weight.fill_(3.0)
    >>> noise = torch.zeros(2)
    >>> recording.graph(torch.ones(2), weight, noise)[0].tolist()
    [3.0, 3.0]
    """
    module, operations = _trace(function, given)
    asked = {id(each): each.detach() for each in operations.asked}
    graph = module.graph
    _require_fixed_shapes(graph)
    last = [node for node in graph.nodes if node.op == "placeholder"][-1]
    held: dict[int, tuple[Tensor, fx.Node]] = {}
    for node in [each for each in graph.nodes if each.op == "get_attr"]:
        tensor = getattr(module, node.target)
        if _is_constant(node):
            continue
        if id(tensor) not in held:
            last = _argument(graph, last, f"held_{len(held)}")
            held[id(tensor)] = (tensor, last)
        replace_node(graph, node, held[id(tensor)][1])
    draws = _hand_in_draws(graph, last)
    graph.eliminate_dead_code()
    used = []
    for node in [each for each in graph.nodes if each.op == "placeholder"][: len(given)]:
        used.append(bool(node.users))
        if not node.users:
            graph.erase_node(node)
    graph.set_codegen(fx.graph.CodeGen())
    return Recording(
        graph=fx.GraphModule(module, graph),
        # Detached: they share memory with the parameters, and nothing records gradients again.
        held=[tensor.detach() for tensor, _ in held.values()],
        draws=draws,
        used=used,
        asked=[(each, each.clone()) for each in asked.values()],
    )


def _trace(
    function: Callable[..., list[Tensor]], given: Sequence[Tensor]
) -> tuple[fx.GraphModule, _Operations]:
    operations = _Operations()

    def seen(*values: Tensor) -> list[Tensor]:
        with operations:
            return function(*values)

    _HERE.recordings += 1
    try:
        with _Recording(), _no_other_random_numbers():
            # Detached: one tensor given twice is two arguments.
            module = make_fx(seen)(*(each.detach() for each in given))
    finally:
        _HERE.recordings -= 1
    return module, operations


def _hand_in_draws(graph: fx.Graph, last: fx.Node) -> list[Draw]:
    """Make arguments after ``last`` of all random numbers, and give what draws them."""
    draws: list[Draw] = []
    for node in [each for each in graph.nodes if _is_random(each)]:
        draws.append(_draw(node))
        last = _argument(graph, last, f"drawn_{len(draws)}")
        last.meta = dict(node.meta)
        filled = node.args[0] if node.target._schema.is_mutable else None
        if filled is None:
            replace_node(graph, node, last)
            continue
        with graph.inserting_before(node):
            # The tensor may be part of another, or be held.
            copied = graph.call_function(torch.ops.aten.copy_.default, (filled, last))
        replace_node(graph, node, copied)
    return draws


def _require_fixed_shapes(graph: fx.Graph) -> None:
    """Refuse operations whose results have as many rows as the numbers say."""
    for node in graph.nodes:
        target = node.target
        if not isinstance(target, torch._ops.OpOverload):
            continue
        found = torch.Tag.dynamic_output_shape in target.tags
        if target is torch.ops.aten.index.Tensor:
            indices = [index for index in node.args[1] if index is not None]
            found = any(index.meta["val"].dtype == torch.bool for index in indices)
        if found:
            raise CannotRecord(f"it selects rows by their numbers ({target})")


def _is_constant(node: fx.Node) -> bool:
    """True for tensors that the function made of numbers of Python."""
    copies = (torch.ops.aten.lift_fresh_copy.default, torch.ops.aten.lift_fresh.default)
    return all(user.target in copies for user in node.users)


def _argument(graph: fx.Graph, last: fx.Node, name: str) -> fx.Node:
    with graph.inserting_after(last):
        return graph.placeholder(name)


def replace_node(graph: fx.Graph, node: fx.Node, other: fx.Node) -> None:
    """Put ``other``, which is in ``graph`` already, in the place of ``node``."""
    other.meta = dict(node.meta)
    node.replace_all_uses_with(other)
    graph.erase_node(node)


def _is_random(node: fx.Node) -> bool:
    overload = node.target
    tags = overload.tags if isinstance(overload, torch._ops.OpOverload) else ()
    return torch.Tag.nondeterministic_seeded in tags


def _draw(node: fx.Node) -> Draw:
    """Function that draws what ``node`` draws."""
    made = node.meta.get("tensor_meta", None)
    target: Any = node.target
    args, kwargs = node.args, dict(node.kwargs)
    if not node.all_input_nodes:
        return Draw(partial(target, *args, **kwargs))
    fills = target._schema.is_mutable and node.all_input_nodes == [args[0]]
    if made is None or not (fills or target in _LIKE):
        raise CannotRecord(
            f"it draws random numbers by {target}, which reads other tensors; draw them by "
            "torch.randn_like, and compute with them"
        )
    device, rest = node.meta["val"].device, args[1:]

    def fresh() -> Tensor:
        # The order of the numbers follows the strides.
        return torch.empty_strided(made.shape, made.stride, dtype=made.dtype, device=device)

    if target in _LIKE:
        return Draw(fresh, _LIKE[target])
    settings = {name: value for name, value in kwargs.items() if name != "generator"}
    return Draw(
        fresh, lambda tensor, generator: target(tensor, *rest, **settings, generator=generator)
    )
