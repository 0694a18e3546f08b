"""Several observation entries as one vector."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from tensordict import NestedKey
from torch import Tensor, nn

from torchrl_elegant.functional import is_image
from torchrl_elegant.modules.encoder import ConvEncoder

# In place of a number of dimensions to flatten.
_IMAGE = -1


class Inputs(nn.Module):
    """Joins the entries of an observation, in the order of their keys.

    An entry of three dimensions is a picture and goes through a ``ConvEncoder`` of its own; any
    other is flattened. Without pictures there is nothing to learn and nothing to store.

    >>> import torch
    >>> inputs = Inputs({"arm": (2, 2), "goal": (3,)})
    >>> inputs.features, inputs.join([torch.zeros(5, 2, 2), torch.zeros(5, 3)]).shape
    (7, torch.Size([5, 7]))
    >>> Inputs({"camera": (3, 16, 16), "goal": (3,)}).features
    131
    """

    def __init__(self, shapes: Mapping[NestedKey, Sequence[int]]) -> None:
        super().__init__()
        self.shapes = {key: tuple(shape) for key, shape in shapes.items()}
        self.keys = list(self.shapes)
        every = self.shapes.values()
        self._dims = [_IMAGE if is_image(shape) else len(shape) for shape in every]
        self._plain = self._dims == [1]
        self._sees = _IMAGE in self._dims
        encoders = [ConvEncoder(shape=shape) for shape in every if is_image(shape)]
        self.encoders = nn.ModuleList(encoders)
        flat = sum(torch.Size(shape).numel() for shape in every if not is_image(shape))
        self.features = flat + sum(encoder.features for encoder in encoders)

    def join(self, observation: Sequence[Tensor]) -> Tensor:
        """One float vector ``[*B, features]``."""
        parts = observation if self._plain else self.parts(observation)
        x = parts[0] if len(parts) == 1 else torch.cat(tuple(parts), -1)
        return x if x.is_floating_point() else x.to(torch.get_default_dtype())

    def parts(self, observation: Sequence[Tensor]) -> list[Tensor]:
        """Each entry as a vector of its own."""
        encoders = iter(self.encoders) if self._sees else iter(())
        return [
            next(encoders)(x) if dims == _IMAGE else _flat(x, dims)
            for x, dims in zip(observation, self._dims, strict=True)
        ]

    def frozen_parts(self, observation: Sequence[Tensor]) -> list[Tensor]:
        """As ``parts``; no gradient reaches the encoders."""
        if not self._sees:
            return self.parts(observation)
        with torch.no_grad():
            return self.parts(observation)

    def spec_dict(self) -> dict[NestedKey, list[int]]:
        """The shapes as plain data."""
        return {key: list(shape) for key, shape in self.shapes.items()}


def _flat(x: Tensor, dims: int) -> Tensor:
    if dims == 1:
        return x
    return x.flatten(-dims) if dims else x.unsqueeze(-1)
