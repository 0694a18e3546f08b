"""Mean and spread of numbers that drift, as they have been of late."""

from __future__ import annotations

import torch
from torch import Tensor, nn

# Numbers that hardly differ are measured by their size instead: noise is not blown up.
_LEAST_SPREAD = 0.1
_AT_FIRST = {"mean": 0.0, "variance": 1.0, "count": 0.0}


class RunningScale(nn.Module):
    """Exact over the first ``window`` numbers, an average that forgets from then on.

    With a batch's share s of all that counts, mean and variance move by (West 1979)

    ``mu += s (mu_b - mu)``, ``var <- (1 - s) (var + s (mu_b - mu)^2) + s var_b``

    Before the first number they are 0 and 1.

    >>> scale = RunningScale(window=100)
    >>> scale.observe(torch.tensor([1.0, 3.0]), torch.tensor([True, True]))
    >>> scale.mean.item(), scale.spread.item()
    (2.0, 1.0)
    """

    mean: Tensor
    variance: Tensor
    count: Tensor

    def __init__(self, *, window: int) -> None:
        super().__init__()
        if window < 1:
            raise ValueError(f"`window` must be at least 1, got `{window}`")
        self.window = window
        for name, value in _AT_FIRST.items():
            self.register_buffer(name, torch.tensor(value))

    @property
    def spread(self) -> Tensor:
        """Standard deviation; at least a tenth of the mean, whatever its sign."""
        least = (_LEAST_SPREAD * self.mean.abs()).clamp(min=1e-8)
        return self.variance.sqrt().maximum(least)

    def reset(self) -> None:
        """Forget all numbers."""
        for name, value in _AT_FIRST.items():
            getattr(self, name).fill_(value)

    @torch.no_grad()
    def observe(self, values: Tensor, counts: Tensor) -> None:
        """Take in those of ``values`` that count; nothing waits for a GPU."""
        values, number = values.to(self.mean.dtype), counts.sum()
        whole = number.clamp(min=1)
        mean = (values * counts).sum() / whole
        variance = ((values - mean).square() * counts).sum() / whole
        most = number.clamp(min=self.window)
        share = number / (self.count + number).clamp(min=1).minimum(most)
        apart = mean - self.mean
        self.variance.copy_(torch.lerp(self.variance + share * apart.square(), variance, share))
        self.mean.add_(share * apart)
        self.count.add_(number)
