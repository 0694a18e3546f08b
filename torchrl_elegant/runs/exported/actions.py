"""Plain arrays on both sides of a policy: observations in, actions out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from tensordict import NestedKey, TensorDict
from torch import nn
from torch.nn.functional import one_hot

from torchrl_elegant.config.text import UsageError
from torchrl_elegant.functional import is_image, path_of

# Types of observations by name; a stranger's file can name no others.
_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
        *(torch.float16, torch.float32, torch.float64),
    )
}


class Observed:
    """Turns arrays, or mappings of arrays, into an actor's TensorDict.

    Args:
        keys: what the actor reads.
        shapes: the shape of each entry, where it is known.
        dtypes: the type of each entry, where it is known.

    >>> observed = Observed(["room"], {"room": (3,)})
    >>> observed({"room": 1, "clock": 0.5}, torch.device("cpu"))["room"].tolist()
    [0.0, 1.0, 0.0]
    """

    def __init__(
        self,
        keys: Sequence[NestedKey],
        shapes: Mapping[NestedKey, Sequence[int]],
        dtypes: Mapping[NestedKey, torch.dtype] | None = None,
    ) -> None:
        self.keys, self.dtypes = list(keys), dict(dtypes or {})
        self.shapes = {key: tuple(shape) for key, shape in shapes.items() if key in self.keys}

    @classmethod
    def of(
        cls,
        keys: Sequence[NestedKey],
        metadata: Mapping[str, Any],
        shapes: Mapping[NestedKey, Sequence[int]],
    ) -> Observed:
        """Form of a policy file's observations, with ``shapes`` where it tells nothing of them."""
        told = metadata.get("observation") or {}
        dtypes = {key: _DTYPES[name] for key, (_, name) in told.items() if name in _DTYPES}
        return cls(keys, {**shapes, **{key: shape for key, (shape, _) in told.items()}}, dtypes)

    def __call__(self, observation: Any, device: torch.device) -> TensorDict:
        if not isinstance(observation, Mapping):
            if len(self.keys) != 1:
                raise UsageError(
                    f"`observation` must be a mapping with {self.keys}, got "
                    f"{type(observation).__name__}"
                )
            return TensorDict({self.keys[0]: self._tensor(self.keys[0], observation, device)})
        data = TensorDict()
        for key in self.keys:
            value: Any = observation
            for name in path_of(key):
                if name not in value:
                    raise UsageError(f"`observation` must have {key!r}, got {list(observation)}")
                value = value[name]
            data.set(key, self._tensor(key, value, device))
        return data

    def example(self, rows: int, device: torch.device) -> dict[NestedKey, torch.Tensor]:
        """Rows of zeros for each entry; UsageError where a shape is not known."""
        if unknown := [key for key in self.keys if key not in self.shapes]:
            raise UsageError(
                f"`metadata` must hold `observation` with the shape of {unknown[0]!r}, which the "
                "actor reads, got none"
            )
        return {
            key: torch.zeros((rows, *self.shapes[key]), dtype=self.dtypes.get(key), device=device)
            for key in self.keys
        }

    def _tensor(self, key: NestedKey, value: Any, device: torch.device) -> torch.Tensor:
        tensor = torch.as_tensor(np.asarray(value), device=device)
        shape = self.shapes.get(key, ())
        size = math.prod(shape)
        if tensor.ndim == 0:
            # Environments hand on a single number as a vector, a choice among many as one-hot.
            tensor = one_hot(tensor, size) if size > 1 else tensor.reshape(1)
        if shape and tensor.shape[-len(shape) :] != shape:
            raise UsageError(
                f"`observation` must have shape {shape} for {key!r}, with rows in front or "
                f"without, got {tuple(tensor.shape)}"
            )
        # The bytes of a picture are for its encoder to scale.
        whole = not tensor.is_floating_point() and (size == 1 or is_image(shape))
        if whole:
            return tensor
        # A picture of numbers from 0 to 1 is scaled already, and would be black as bytes.
        scaled = tensor.is_floating_point() and is_image(shape)
        return tensor.to(torch.float32 if scaled else self.dtypes.get(key, torch.float32))


class PlainActions(nn.Module):
    """Actions in an environment's own units, as the metadata of a policy file describes them.

    >>> actions = PlainActions({"discrete_actions": "one_hot", "action_start": 5})
    >>> actions(torch.tensor([0, 1, 0])).item()
    6
    """

    low: torch.Tensor | None
    high: torch.Tensor | None
    start: torch.Tensor

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        super().__init__()
        low, high = metadata.get("action_low"), metadata.get("action_high")
        if (low is None) != (high is None):
            raise UsageError(f"`action_low`, `action_high` must come together, got {low}, {high}")
        start = metadata.get("action_start")
        for name, value in (("low", low), ("high", high), ("start", 0 if start is None else start)):
            tensor = None if value is None else torch.as_tensor(np.asarray(value)).clone()
            self.register_buffer(name, tensor, persistent=False)
        self._form = metadata.get("discrete_actions")
        if self._form not in (None, "one_hot", "categorical"):
            raise UsageError(f"`discrete_actions` must be one_hot, categorical, got {self._form!r}")
        sizes = metadata.get("action_sizes")
        self._sizes = None if sizes is None else [int(size) for size in np.asarray(sizes).flat]

    def forward(self, action: torch.Tensor) -> torch.Tensor:
        if self._form is not None:
            return self._chosen(action)
        if self.low is None or self.high is None:
            return action
        # Exact at both ends, unlike center + scale, so that rounding never leaves the bounds.
        part = (action.clamp(-1.0, 1.0) + 1) / 2
        return (self.low * (1 - part) + self.high * part).to(self.low.dtype)

    def _chosen(self, action: torch.Tensor) -> torch.Tensor:
        one_hots = self._form == "one_hot"
        # Of flags PyTorch finds no largest.
        action = action.to(torch.int64) if one_hots else action
        if self._sizes is None:
            return (action.argmax(-1) if one_hots else action) + self.start
        if one_hots:
            blocks = action.split(self._sizes, -1)
            action = torch.stack([block.argmax(-1) for block in blocks], -1)
        return action.reshape(*action.shape[:-1], *self.start.shape) + self.start
