"""State of a module that a recording rests on, beside the numbers in its tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, is_dataclass
from itertools import chain
from operator import attrgetter, is_, itemgetter
from typing import Any

from tensordict import TensorDictParams
from torch import Tensor, nn

# Tables of a `TensorDictParams`, for which others can stand in.
_TABLES = itemgetter("_param_td", "_parameters", "_buffers")
_LEARNS = attrgetter("requires_grad")


@dataclass(frozen=True)
class _Plain:
    """Numbers and names in a table of attributes, as they were."""

    table: dict[str, Any]
    held: dict[str, Any]
    get: Callable[[dict[str, Any]], Any]


class Parts:
    """State of a module at the time of its recording.

    Args:
        module: with all that it is made of, TorchRL's hidden networks included.

    >>> module = nn.Linear(2, 1)
    >>> parts = Parts(module)
    >>> parts.are_the_same(), module.eval().training, parts.are_the_same()
    (True, False, False)
    """

    def __init__(self, module: nn.Module) -> None:
        parts = list(module.modules())
        tables: list[dict[str, Any]] = []
        for part in parts:
            tables += [part._parameters, part._buffers, part._modules]
        # The last is of no module: without it, more at the end would not be seen.
        self._tables = [*filter(None, tables), {"end": object()}]
        self._held = [dict(table) for table in self._tables]
        # Another table stands in for a while, or for good: `to_module`, an entry that is set.
        swapped = [vars(part) for part in parts if isinstance(part, TensorDictParams)]
        self._swapped = swapped
        self._values = [*chain.from_iterable(map(_TABLES, swapped))]
        self._values += chain.from_iterable(map(dict.values, self._tables))
        # Networks of TorchRL's losses are hidden from `modules`.
        hidden = [v for part in parts for v in vars(part).values() if isinstance(v, nn.Module)]
        parts += [inner for each in hidden for inner in each.modules()]
        # Tables of parameters note in themselves how they were last used.
        unique = {id(p): p for p in parts if not isinstance(p, TensorDictParams)}.values()
        self._plain = [plain for part in unique for plain in _plain_attributes(part)]
        self._getters = [(plain.get, plain.table) for plain in self._plain]
        self._numbers = [plain.get(plain.table) for plain in self._plain]
        tensors = [*module.parameters(), *module.buffers()]
        self._tensors, self._state = tensors, _state_of(tensors)
        # So that no other tensor is given their addresses.
        self._memory = [tensor.detach() for tensor in tensors]

    def are_the_same(self) -> bool:
        """True if nothing was assigned, cast, moved, frozen or switched since.

        Every update asks: what can is compared in loops of C, for microseconds in all.
        """
        swapped = chain.from_iterable(map(_TABLES, self._swapped))
        values = chain(swapped, chain.from_iterable(map(dict.values, self._tables)))
        try:
            return (
                all(map(is_, values, self._values))
                and _state_of(self._tensors) == self._state
                and [get(table) for get, table in self._getters] == self._numbers
            )
        except (KeyError, RuntimeError, ValueError):  # a number is gone, or is an array now
            return False

    def bring_back(self) -> list[str]:
        """Names of tensors and numbers that were replaced, and are put back."""
        replaced = []
        for table, held in zip(self._tables, self._held, strict=True):
            for name, value in held.items():
                if isinstance(value, Tensor) and table.get(name) is not value:
                    replaced.append(name)
                    table[name] = value
        for plain in self._plain:
            for name, value in plain.held.items():
                now = plain.table.get(name)
                if now is not value and now != value:
                    replaced.append(name)
                    plain.table[name] = value
        return replaced


def _plain_attributes(part: nn.Module) -> Iterator[_Plain]:
    """Numbers and names among the attributes of ``part`` and its keys."""
    keys = [v for v in vars(part).values() if is_dataclass(v) and not isinstance(v, type)]
    for table in (vars(part), *(vars(each) for each in keys if type(each).__dictoffset__)):
        held = {name: value for name, value in table.items() if _is_plain(value)}
        if held:
            yield _Plain(table, held, itemgetter(*held))


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    return isinstance(value, (int, float, str))


def _state_of(tensors: list[Tensor]) -> list[Any]:
    return [*map(Tensor.data_ptr, tensors), *map(_LEARNS, tensors)]
