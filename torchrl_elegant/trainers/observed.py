"""What a plain Gymnasium environment observes, as an actor reads it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from tensordict import NestedKey, TensorDict
from torch.nn.functional import one_hot

from torchrl_elegant.functional import is_image


class Observed:
    """Turns arrays, or mappings of arrays, into an actor's TensorDict.

    Args:
        keys: what the actor reads.
        shapes: the shape of each entry, where it is known.
        device: where the actor is.

    >>> observed = Observed(["room"], {"room": (3,)}, torch.device("cpu"))
    >>> observed({"room": 1, "clock": 0.5})["room"].tolist()
    [0.0, 1.0, 0.0]
    """

    def __init__(
        self,
        keys: Sequence[NestedKey],
        shapes: Mapping[NestedKey, Sequence[int]],
        device: torch.device,
    ) -> None:
        self._keys, self._device = list(keys), device
        self._shapes = {key: tuple(shape) for key, shape in shapes.items()}

    def __call__(self, observation: Any) -> TensorDict:
        if not isinstance(observation, Mapping):
            (key,) = self._keys
            return TensorDict({key: self._tensor(key, observation)})
        data = TensorDict()
        for key in self._keys:
            value = observation
            for name in (key,) if isinstance(key, str) else key:
                value = value[name]
            data.set(key, self._tensor(key, value))
        return data

    def _tensor(self, key: NestedKey, value: Any) -> torch.Tensor:
        tensor = torch.as_tensor(np.asarray(value), device=self._device)
        shape = self._shapes.get(key, ())
        size = math.prod(shape)
        if tensor.ndim == 0:
            # Environments hand on a single number as a vector, a choice among many as one-hot.
            tensor = one_hot(tensor, size) if size > 1 else tensor.reshape(1)
        # The bytes of a picture are for its encoder to scale.
        whole = not tensor.is_floating_point() and (size == 1 or is_image(shape))
        return tensor if whole else tensor.float()
