"""Time-major memory for what a policy writes beside the observations."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from torchrl_elegant.collectors.layout import Layout


class Outputs:
    """The policy's entries of one rollout, one row per step.

    Args:
        frames: steps of a rollout.
        keys: in the order in which `write` gets their values; one is `"action"`.
        action: an action of all environments, for its shape and dtype.
        known: examples of other entries, which every batch then has, written or not.

    >>> outputs = Outputs(frames=2, keys=["action", "value"], action=torch.zeros(1, 3), known={})
    >>> outputs.begin()
    >>> for t in range(2):
    ...     _ = outputs.write(t, (torch.full((1, 3), float(t)), torch.ones(1)))
    >>> entries = outputs.entries(Layout(batch_dims=1))
    >>> entries["action",][..., 0].tolist(), entries["value",].shape
    ([[0.0, 1.0]], torch.Size([1, 2]))
    """

    def __init__(
        self, *, frames: int, keys: Sequence[str], action: Tensor, known: dict[str, Tensor]
    ) -> None:
        self.keys, self._frames, self._known = [*keys], frames, known
        self._rows: list[list[Tensor]] = []
        self._tables: dict[str, Tensor] = {}
        self._action = self._table("action", action)
        for key, example in known.items():
            self._table(key, example)
        self._called = False

    def _table(self, key: str, example: Tensor) -> list[Tensor]:
        if key not in self._tables:
            self._tables[key] = torch.zeros(self._frames, *example.shape, dtype=example.dtype)
        return list(self._tables[key].unbind(0))

    def begin(self) -> None:
        """Forgets whether the policy was called."""
        self._called = False

    def write_action(self, t: int, action: Tensor) -> Tensor:
        """Writes an action by itself; returns it."""
        self._action[t].copy_(action)
        return action

    def write(self, t: int, values: Sequence[Tensor]) -> Tensor:
        """Writes what the policy gave at step `t`; returns the action."""
        self._called = True
        if not self._rows:
            if isinstance(values, Tensor):
                raise TypeError(
                    f"`act` must return a tuple, one tensor for each of {self.keys}, got `Tensor`"
                )
            examples = zip(self.keys, values, strict=True)
            self._rows = [self._table(key, value) for key, value in examples]
            self._position = self.keys.index("action")
        for rows, value in zip(self._rows, values, strict=True):
            rows[t].copy_(value)
        return values[self._position]

    def entries(self, layout: Layout) -> dict[tuple[str, ...], Tensor]:
        """The action, and what the policy wrote if it was called at all."""
        written = self._tables if self._called else {"action", *self._known}
        return {(key,): layout.turned(self._tables[key]) for key in self._tables if key in written}
