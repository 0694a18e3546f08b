"""From what an actor writes to what a plain Gymnasium environment takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from torchrl_elegant.trainers.values import UsageError


class PlainActions:
    """Actions in an environment's own units, as the metadata of a policy file describes them.

    >>> actions = PlainActions({"discrete_actions": "one_hot", "action_start": 5})
    >>> actions(np.array([0, 1, 0])).item()
    6
    """

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        low, high = metadata.get("action_low"), metadata.get("action_high")
        if (low is None) != (high is None):
            raise UsageError(f"`action_low`, `action_high` must come together, got {low}, {high}")
        self._low, self._high = (None if x is None else np.asarray(x) for x in (low, high))
        self._form = metadata.get("discrete_actions")
        if self._form not in (None, "one_hot", "categorical"):
            raise UsageError(f"`discrete_actions` must be one_hot, categorical, got {self._form!r}")
        self._start = np.asarray(metadata.get("action_start", 0))
        self._sizes = metadata.get("action_sizes")

    def __call__(self, action: np.ndarray) -> np.ndarray:
        if self._form is not None:
            return self._chosen(action)
        if self._low is None or self._high is None:
            return action
        # Exact at both ends, unlike centre + scale, so that rounding never leaves the bounds.
        part = (np.clip(action, -1.0, 1.0) + 1) / 2
        return (self._low * (1 - part) + self._high * part).astype(self._low.dtype)

    def _chosen(self, action: np.ndarray) -> np.ndarray:
        if self._sizes is None:
            return (action.argmax(-1) if self._form == "one_hot" else action) + self._start
        if self._form == "one_hot":
            blocks = np.split(action, np.cumsum(self._sizes)[:-1], axis=-1)
            action = np.stack([block.argmax(-1) for block in blocks], -1)
        return action.reshape(*action.shape[:-1], *self._start.shape) + self._start
