"""Inputs of a network: vectors and pictures joined to one vector."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

import torch
from tensordict import NestedKey
from torch import Tensor, nn
from torch.nn import functional as F

from torchrl_elegant.functional import has_channels_last, is_image

# Channels out, kernel, stride, padding of each convolution; number of features.
_Table = tuple[tuple[int, int, int, int], ...]
_NATURE: tuple[_Table, int] = (((32, 8, 4, 0), (64, 4, 2, 0), (64, 3, 1, 0)), 512)
_SMALL: tuple[_Table, int] = (((16, 3, 2, 1), (32, 3, 2, 1)), 128)
# Smallest side that the three convolutions can take.
_NATURE_SIDE = 36
# Pictures at a time without gradients: a whole rollout at once would fill the memory.
_CHUNK = 256


class ConvEncoder(nn.Module):
    """Convolutions and one linear layer over pictures of one shape.

    From 36 pixels a side on, the network of Mnih et al. 2015 (doi:10.1038/nature14236), section
    "Model architecture", with 512 features. Smaller pictures get two convolutions of stride 2 and
    128 features. Bytes are read as numbers in [0, 1], other types as they are.

    Args:
        shape: shape of a picture, channels first or last (``has_channels_last``).

    >>> import torch
    >>> encoder = ConvEncoder(shape=(84, 84, 3))
    >>> encoder(torch.zeros(5, 2, 84, 84, 3, dtype=torch.uint8)).shape
    torch.Size([5, 2, 512])
    """

    def __init__(self, *, shape: Sequence[int]) -> None:
        super().__init__()
        if not is_image(shape) or min(shape) < 1:
            raise ValueError(f"`shape` must hold three positive sizes, got `{tuple(shape)}`")
        self._channels_last = has_channels_last(shape)
        height, width, channels = shape if self._channels_last else (*shape[1:], shape[0])
        nature = min(height, width) >= _NATURE_SIDE
        self._table, self.features = _NATURE if nature else _SMALL
        convolutions: list[nn.Conv2d] = []
        for out, kernel, stride, padding in self._table:
            convolutions.append(nn.Conv2d(channels, out, kernel, stride, padding))
            height, width = ((n + 2 * padding - kernel) // stride + 1 for n in (height, width))
            channels = out
        self.convolutions = nn.ModuleList(convolutions)
        self.linear = nn.Linear(channels * height * width, self.features)
        for param in self.parameters():
            if param.ndim == 1:
                nn.init.zeros_(param)
            else:
                nn.init.orthogonal_(param, math.sqrt(2.0))

    def forward(self, image: Tensor) -> Tensor:
        """``[*B, *shape]`` -> ``[*B, features]``."""
        x = image.reshape(-1, *image.shape[-3:])
        # An exported program takes batches of any size.
        whole = torch.is_grad_enabled() or torch.compiler.is_exporting()
        if whole or len(x) <= _CHUNK:
            encoded = self._encode(x)
        else:
            encoded = torch.cat([self._encode(part) for part in x.split(_CHUNK)])
        return encoded.reshape(*image.shape[:-3], self.features)

    def _encode(self, x: Tensor) -> Tensor:
        if self._channels_last:
            x = x.permute(0, 3, 1, 2)
        # Scaling the weights is cheaper than scaling the pixels.
        scale = 1.0 / 255.0 if x.dtype == torch.uint8 else None
        x = x.to(self.linear.weight.dtype)
        convolutions = cast("Iterable[nn.Conv2d]", self.convolutions)
        for layer, (_, _, stride, padding) in zip(convolutions, self._table, strict=True):
            weight = layer.weight if scale is None else layer.weight * scale
            scale = None
            x = torch.relu_(F.conv2d(x, weight, layer.bias, stride, padding))
        return torch.relu_(F.linear(x.flatten(1), self.linear.weight, self.linear.bias))


# Stands for a picture among the numbers of dimensions to flatten.
_IMAGE = -1


class Inputs(nn.Module):
    """Joins the entries of an observation, in the order of their keys.

    An entry of three dimensions is a picture and goes through a ``ConvEncoder`` of its own; any
    other is flattened. Without pictures it has no parameters. With ``ids`` the agents are the last
    dimension of the batch, and the number of each, of so many, comes last as one-hot.

    >>> import torch
    >>> inputs = Inputs({"arm": (2, 2), "goal": (3,)})
    >>> inputs.features, inputs.join([torch.zeros(5, 2, 2), torch.zeros(5, 3)]).shape
    (7, torch.Size([5, 7]))
    >>> Inputs({"camera": (3, 16, 16), "goal": (3,)}).features
    131
    """

    def __init__(self, shapes: Mapping[NestedKey, Sequence[int]], *, ids: int = 0) -> None:
        super().__init__()
        self._ids = ids
        self.shapes = {key: tuple(shape) for key, shape in shapes.items()}
        self.keys = list(self.shapes)
        every = self.shapes.values()
        self._dims = [_IMAGE if is_image(shape) else len(shape) for shape in every]
        self._plain = self._dims == [1] and not ids
        self._sees = _IMAGE in self._dims
        encoders = [ConvEncoder(shape=shape) for shape in every if is_image(shape)]
        self.encoders = nn.ModuleList(encoders)
        flat = sum(torch.Size(shape).numel() for shape in every if not is_image(shape))
        self.features = flat + sum(encoder.features for encoder in encoders) + ids

    def join(self, observation: Sequence[Tensor]) -> Tensor:
        """Join the entries to one float vector ``[*B, features]``."""
        parts = observation if self._plain else self.parts(observation)
        x = parts[0] if len(parts) == 1 else torch.cat(tuple(parts), -1)
        return x if x.is_floating_point() else x.to(torch.get_default_dtype())

    def parts(self, observation: Sequence[Tensor]) -> list[Tensor]:
        """Turn each entry into a vector."""
        encoders = iter(self.encoders) if self._sees else iter(())
        parts = [
            next(encoders)(x) if dims == _IMAGE else _flat(x, dims)
            for x, dims in zip(observation, self._dims, strict=True)
        ]
        if self._ids:
            number = torch.eye(self._ids, device=parts[0].device)
            parts.append(number.expand(*parts[0].shape[:-1], -1))
        return parts

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
