"""What a run counts and averages."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from tensordict import TensorDictBase
from torch import Tensor


class Averages:
    """Running means of an update's terms, kept on their device until somebody asks.

    >>> import torch
    >>> averages = Averages()
    >>> averages.add({"loss": torch.tensor(1.0)})
    >>> averages.add({"loss": torch.tensor(3.0), "extra": torch.tensor(5.0)})
    >>> averages.take()
    {'loss': 2.0, 'extra': 5.0}
    """

    def __init__(self) -> None:
        # By set of names: an update with the actor has more terms than one without.
        self._sums: dict[tuple[str, ...], tuple[list[Tensor], list[int]]] = {}

    def add(self, terms: Mapping[str, Tensor] | TensorDictBase) -> None:
        names, values = tuple(terms.keys()), list(terms.values())
        known = self._sums.get(names)
        if known is None:
            self._sums[names] = ([value.clone() for value in values], [1])
            return
        torch._foreach_add_(known[0], values)
        known[1][0] += 1

    def finite(self) -> bool:
        """Whether everything noted since the last call of ``take`` is a finite number."""
        sums = [total for sums, _ in self._sums.values() for total in sums]
        # One question in all: on a GPU every answer has to be waited for.
        return not sums or bool(torch.stack([total.isfinite() for total in sums]).all())

    def take(self) -> dict[str, float]:
        """The means since the last call."""
        totals: dict[str, float] = {}
        counts: dict[str, int] = {}
        for names, (sums, (count,)) in self._sums.items():
            for name, total in zip(names, sums, strict=True):
                totals[name] = totals.get(name, 0.0) + total.item()
                counts[name] = counts.get(name, 0) + count
        self._sums.clear()
        return {name: total / counts[name] for name, total in totals.items()}


class Progress:
    """Counters of a run that outlive its process."""

    def __init__(self) -> None:
        self.frames = 0
        self.seconds = 0.0
        self.best_return = -math.inf
        self.evaluated_at = -1
        # Updates owed for the frames at the moment of saving.
        self.debt = 0.0

    def state_dict(self) -> dict[str, Any]:
        return dict(vars(self))

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        vars(self).update(state_dict)
