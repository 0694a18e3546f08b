"""Networks as data: programs of PyTorch's core operations.

``torch.export`` turns what a network computes into operations on tensors. Its own file format is
not used: ``torch.export.load`` unpickles, evaluates texts as expressions and looks functions up by
any path below ``torch``, so that a stranger's file could run code. Here a program is plain data in
a policy file that is read with ``weights_only=True``. Operations are those that PyTorch marks as
core (about 190, all of them arithmetic on tensors, none touches files) and a few on whole numbers.
Anything else is refused when a program is captured and again when it is read.
"""

from __future__ import annotations

import inspect
import operator
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

# Operations on sizes of a batch, which are whole numbers.
_ON_NUMBERS: dict[str, Callable[..., Any]] = {
    name: vars(operator)[name]
    for name in ("add", "sub", "mul", "floordiv", "truediv", "neg", "mod", "getitem")
}
# Types of arguments that are neither numbers, texts nor tensors, by the name of their type.
_NAMED: dict[type, str] = {
    torch.dtype: "dtype",
    torch.layout: "layout",
    torch.memory_format: "memory_format",
}


class Program(nn.Module):
    """Run of a captured program on any number of rows, on the device of its tensors.

    Args:
        inputs: names of the inputs.
        tensors: name, shape and dtype of each parameter, buffer and constant.
        nodes: name, operation, arguments and keyword arguments of each step.
        outputs: what is given back.

    >>> linear = nn.Linear(3, 1).eval()
    >>> captured = Captured(linear, [torch.zeros(2, 3)])
    >>> program = Program(**captured.page)
    >>> _ = program.load_state_dict(captured.state(linear))
    >>> program(torch.zeros(7, 3))[0].shape
    torch.Size([7, 1])
    """

    def __init__(
        self,
        *,
        inputs: Sequence[str],
        tensors: Sequence[Sequence[Any]],
        nodes: Sequence[Sequence[Any]],
        outputs: Sequence[Any],
    ) -> None:
        super().__init__()
        self._inputs, self._outputs = list(inputs), list(outputs)
        self._names = [name for name, _, _ in tensors]
        self._nodes = [(name, _operation(op), args, kwargs) for name, op, args, kwargs in nodes]
        for index, (_, shape, dtype) in enumerate(tensors):
            empty = torch.empty(tuple(shape), dtype=_named("dtype", dtype))
            self.register_buffer(str(index), empty)

    def forward(self, *inputs: Tensor) -> list[Tensor]:
        values: dict[str, Any] = dict(zip(self._inputs, inputs, strict=True))
        values |= zip(self._names, self.buffers(), strict=True)
        device = inputs[0].device
        for name, function, args, kwargs in self._nodes:
            args, kwargs = _read(args, values, device), _read(kwargs, values, device)
            values[name] = function(*args, **kwargs)
        return _read(self._outputs, values, device)


class Captured:
    """Program of a module: ``page`` has the arguments of ``Program``.

    Args:
        function: in evaluation mode; gives a tensor or a tuple of tensors.
        inputs: examples with rows in front.
    """

    def __init__(self, function: nn.Module, inputs: Sequence[Tensor]) -> None:
        rows = ({0: torch.export.Dim("rows", min=1)},) * len(inputs)
        # A signature with a star has one name for all inputs.
        names = inspect.signature(function.forward).parameters.values()
        star = next((item.name for item in names if item.kind is item.VAR_POSITIONAL), None)
        with warnings.catch_warnings(), torch.no_grad():
            # torch's own, on what it will do differently one day.
            warnings.simplefilter("ignore", FutureWarning)
            exported = torch.export.export(
                function,
                tuple(inputs),
                dynamic_shapes=rows if star is None else {star: rows},
                strict=False,
            ).run_decompositions()
        signature = exported.graph_signature
        if changed := [*signature.buffers_to_mutate.values(), *signature.user_inputs_to_mutate]:
            raise ValueError(f"it changes `{changed[0]}` while it is called")
        self._sources = {
            **signature.inputs_to_parameters,
            **signature.inputs_to_buffers,
            **signature.inputs_to_lifted_tensor_constants,
        }
        self._constants = dict(exported.constants)
        state = self._tensors(function)
        self.page = {
            "inputs": list(signature.user_inputs),
            "tensors": [[n, list(x.shape), _name_of(x.dtype)] for n, x in state.items()],
            "nodes": list(_nodes(exported.graph)),
            "outputs": _written([*exported.graph.output_node().args[0]]),
        }

    def state(self, function: nn.Module) -> dict[str, Tensor]:
        """State of the program with the present weights of the module."""
        values = self._tensors(function).values()
        return {str(index): value.detach() for index, value in enumerate(values)}

    def _tensors(self, function: nn.Module) -> dict[str, Tensor]:
        live: dict[str, Tensor] = {**dict(function.named_parameters(remove_duplicate=False))}
        live |= dict(function.named_buffers(remove_duplicate=False))
        return {
            name: live[source] if source in live else self._constants[source]
            for name, source in self._sources.items()
        }


def _nodes(graph: torch.fx.Graph) -> Iterator[list[Any]]:
    for node in graph.nodes:
        if node.op in ("placeholder", "output"):
            continue
        name = _operation_name(node)
        if not node.users and name.startswith("aten._assert"):
            continue  # It holds for the network, and its example, that were captured.
        if node.op != "call_function":
            raise ValueError(f"it takes `{node.target}` from outside of its parameters")
        _operation(name)
        yield [node.name, name, _written([*node.args]), _written(dict(node.kwargs))]


def _operation_name(node: torch.fx.Node) -> str:
    target: Any = node.target
    if isinstance(target, torch._ops.OpOverload):
        return f"{target.namespace}.{target._schema.name.split('::')[1]}.{target._overloadname}"
    return f"number.{getattr(target, '__name__', target)}"


def _operation(name: str) -> Callable[..., Any]:
    """The operation of this name; ValueError unless it is one of those that are known as safe."""
    space, _, rest = name.partition(".")
    if space == "number" and rest in _ON_NUMBERS:
        return _ON_NUMBERS[rest]
    if space == "aten" and rest.replace(".", "_").isidentifier():
        packet, _, overload = rest.partition(".")
        # The registry of operations is read by name: that is what it is for.
        found = getattr(getattr(torch.ops.aten, packet, None), overload, None)
        if isinstance(found, torch._ops.OpOverload) and torch.Tag.core in found.tags:
            return found
    raise ValueError(f"it uses the operation `{name}`, which is not one of PyTorch's core ones")


def _written(value: Any) -> Any:
    """Arguments as plain data; what is not a number, a text or a list becomes a tuple."""
    if isinstance(value, torch.fx.Node):
        return ("node", value.name)
    if isinstance(value, torch.device):
        return ("device",)
    if type(value) in _NAMED:
        return (_NAMED[type(value)], _name_of(value))
    if isinstance(value, (list, tuple)):
        return [_written(item) for item in value]
    if isinstance(value, dict):
        return {key: _written(item) for key, item in value.items()}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise ValueError(f"it gives an operation a value of type `{type(value).__name__}`")


def _read(value: Any, values: Mapping[str, Any], device: torch.device) -> Any:
    if isinstance(value, list):
        return [_read(item, values, device) for item in value]
    if isinstance(value, dict):
        return {key: _read(item, values, device) for key, item in value.items()}
    if not isinstance(value, tuple):
        return value
    kind = value[0]
    if kind == "node":
        return values[value[1]]
    return device if kind == "device" else _named(kind, value[1])


def _name_of(value: Any) -> str:
    return str(value).removeprefix("torch.")


def _named(kind: str, name: str) -> Any:
    # `vars` and the type keep a stranger's text from naming anything else of torch.
    found, kinds = vars(torch).get(name), {word: kind for kind, word in _NAMED.items()}
    if kind not in kinds or not isinstance(found, kinds[kind]):
        raise ValueError(f"it names `{name}` as its {kind}")
    return found
