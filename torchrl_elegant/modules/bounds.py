"""Actions that lie between two bounds."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class BoundedAction(nn.Module):
    """What actors share whose action lies between ``low`` and ``high``, two buffers.

    >>> class Middle(BoundedAction):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self._set_bounds([0.0], [4.0])
    >>> middle = Middle()
    >>> middle._scale(torch.zeros(1)).item(), middle.clip(torch.full((1,), 9.0)).item()
    (2.0, 4.0)
    """

    low: Tensor
    high: Tensor

    def clip(self, action: Tensor) -> Tensor:
        """The nearest action within the bounds."""
        if self._unit_bounds:
            return action.clamp(-1.0, 1.0)
        return action.clamp(self.low, self.high)

    def _set_bounds(self, low: Tensor | Sequence[float], high: Tensor | Sequence[float]) -> None:
        low, high = (torch.as_tensor(x, dtype=torch.float32).clone() for x in (low, high))
        if not bool((torch.isfinite(low) & torch.isfinite(high) & (low < high)).all()):
            raise ValueError(
                f"`low` and `high` must be finite with low < high, got `{low.tolist()}` and "
                f"`{high.tolist()}`; this actor needs a bounded action space"
            )
        self.register_buffer("low", low)
        self.register_buffer("high", high)
        self._unit_bounds = bool((low == -1).all() and (high == 1).all())
        self.action_shape = low.shape

    def _scale(self, action: Tensor) -> Tensor:
        """From -1 to 1 in a flat vector to between the bounds in the action's shape."""
        action = action if len(self.action_shape) < 2 else action.unflatten(-1, self.action_shape)
        if self._unit_bounds:
            return action
        half = (self.high - self.low) * 0.5
        return torch.addcmul(self.low + half, action, half)
