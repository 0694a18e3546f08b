"""Some leaves of a TensorDict, read and written in a fixed order without its per-call checks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from tensordict import TensorDictBase
from tensordict.base import NO_DEFAULT

Key = str | tuple[str, ...]


class Leaves:
    """Reads and writes the entries under some keys; a step of a fast simulator has time for little.

    `TensorDict.get` and `set` take 1 us for a nested key, ten times as long as the look into the
    dictionary behind them, and a multi-agent step asks for some twenty keys.

    >>> from tensordict import TensorDict
    >>> leaves = Leaves(["done", ("agents", "reward")])
    >>> data = TensorDict({"done": torch.zeros(2, 1), "agents": {"info": torch.ones(2, 3)}}, [2])
    >>> leaves.read(data)
    [tensor([[0.],
            [0.]]), None]
    >>> leaves.write(data, [torch.ones(2, 1), torch.zeros(2, 3)])
    >>> data["agents", "reward"].shape
    torch.Size([2, 3])
    """

    def __init__(self, keys: Iterable[Key]) -> None:
        nodes: dict[tuple[str, ...], list[str]] = {}
        for key in keys:
            *node, name = (key,) if isinstance(key, str) else key
            nodes.setdefault(tuple(node), []).append(name)
        self._nodes = [*nodes.items()]
        self.keys: list[Key] = [
            (*node, name) if node else name for node, names in self._nodes for name in names
        ]

    def read(self, data: TensorDictBase) -> list[Any]:
        """The entries in the order of `keys`; None for those that are not there."""
        values: list[Any] = []
        for path, names in self._nodes:
            node: Any = data
            for part in path:
                node = None if node is None else node._get_str(part, None)
            if node is None:
                values += [None] * len(names)
            else:
                values += [node._get_str(name, None) for name in names]
        return values

    def write(self, data: TensorDictBase, values: Sequence[torch.Tensor]) -> None:
        """Puts the values, in the order of `keys`, in place of what is there."""
        at = 0
        for path, names in self._nodes:
            node = data
            for part in path:
                node = node._get_str(part, NO_DEFAULT)
            for name in names:
                node._set_str(name, values[at], validated=True, inplace=False)
                at += 1
