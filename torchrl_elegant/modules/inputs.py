"""Several observation entries as one vector."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from tensordict import NestedKey
from torch import Tensor


class Inputs:
    """Joins the entries of an observation, in the order of their keys.

    >>> import torch
    >>> inputs = Inputs({"arm": (2, 2), "goal": (3,)})
    >>> inputs.features, inputs.join([torch.zeros(5, 2, 2), torch.zeros(5, 3)]).shape
    (7, torch.Size([5, 7]))
    """

    def __init__(self, shapes: Mapping[NestedKey, Sequence[int]]) -> None:
        self.shapes = {key: tuple(shape) for key, shape in shapes.items()}
        self.keys = list(self.shapes)
        self.features = sum(torch.Size(shape).numel() for shape in self.shapes.values())
        self._dims = [len(shape) for shape in self.shapes.values()]
        self._plain = self._dims == [1]

    def join(self, observation: Sequence[Tensor]) -> Tensor:
        """One float vector ``[*B, features]``."""
        if self._plain:
            x = observation[0]
        else:
            parts = [
                x.unsqueeze(-1) if not dims else x.flatten(-dims) if dims > 1 else x
                for x, dims in zip(observation, self._dims, strict=True)
            ]
            x = parts[0] if len(parts) == 1 else torch.cat(parts, -1)
        return x if x.is_floating_point() else x.to(torch.get_default_dtype())

    def spec_dict(self) -> dict[NestedKey, list[int]]:
        """The shapes as plain data."""
        return {key: list(shape) for key, shape in self.shapes.items()}
