"""Noise that explores around a deterministic action."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor, nn


class Noise(nn.Module):
    """Added to actions ``[*B, *A]``, in their own units, a draw of its own for each row.

    Its ``scale`` is a buffer: a ramp sets it, and pushes of a policy's weights carry it to
    collector processes.
    """

    scale: Tensor

    def __init__(self, *, name: str, scale: float) -> None:
        super().__init__()
        if not 0.0 <= scale < math.inf:
            raise ValueError(f"`{name}` must be 0 or more and finite, got `{scale}`")
        self.register_buffer("scale", torch.tensor(float(scale)))

    def set_scale(self, scale: float) -> None:
        """Make the noise larger or smaller."""
        self.scale.fill_(scale)

    @abstractmethod
    def forward(self, action: Tensor) -> Tensor:
        """The action with noise on it."""

    @abstractmethod
    def spec_dict(self) -> dict[str, Any]:
        """Plain data from which ``make_noise`` makes the same."""

    def restart(self, rows: Tensor) -> None:
        """Forget what is carried from step to step, for the ``rows`` ``[*B]`` that are True."""


class GaussianNoise(Noise):
    """Independent at every step: ``a + sigma eps`` (Fujimoto et al. 2018, section 6.1).

    >>> import torch
    >>> _ = torch.manual_seed(0)
    >>> GaussianNoise(std=0.5)(torch.zeros(10_000, 1)).std().item().__round__(1)
    0.5
    """

    def __init__(self, *, std: float = 0.1) -> None:
        super().__init__(name="std", scale=std)

    def forward(self, action: Tensor) -> Tensor:
        return torch.addcmul(action, torch.randn_like(action), self.scale)

    def spec_dict(self) -> dict[str, Any]:
        return {"kind": "gaussian", "std": self.scale.item()}


class OrnsteinUhlenbeckNoise(Noise):
    """Noise that drifts (Uhlenbeck and Ornstein 1930; Lillicrap et al. 2015, section 7).

    ``x <- x - theta x dt + sigma sqrt(dt) eps``, from 0 where an episode begins; the action is
    ``a + x``.

    ``x`` has a row for each row of the actions, so no two environments share it. It is no
    parameter: a copy or a pickle, and so every collector process, starts with an ``x`` of its own,
    as does a call with actions of another shape. Collectors call ``restart`` where an episode ends;
    an episode that somebody cuts off from outside, by a reset, goes on with the old ``x``.

    Args:
        theta: how fast it is drawn back to 0, per unit of time.
        sigma: how strongly it is driven; at length its standard deviation is about
            ``sigma / sqrt(2 theta)``.
        dt: time between two steps, below ``2 / theta``, where it would no longer settle.

    >>> import torch
    >>> noise, still = OrnsteinUhlenbeckNoise(sigma=0.2), torch.zeros(4, 1)
    >>> first, second = noise(still), noise(still)
    >>> noise.restart(torch.tensor([True, False, False, False]))
    >>> noise.set_scale(0.0)
    >>> torch.equal(noise(still)[1:], second[1:] * 0.85), noise(still)[0].item()
    (True, 0.0)
    """

    def __init__(self, *, theta: float = 0.15, sigma: float = 0.2, dt: float = 1.0) -> None:
        super().__init__(name="sigma", scale=sigma)
        for name, value in (("theta", theta), ("dt", dt)):
            if not 0.0 < value < math.inf:
                raise ValueError(f"`{name}` must be positive and finite, got `{value}`")
        if theta * dt >= 2.0:
            raise ValueError(f"`dt` must lie below 2 / theta ({2.0 / theta:g}), got `{dt}`")
        self.theta, self.dt = theta, dt
        self._state: Tensor | None = None

    def forward(self, action: Tensor) -> Tensor:
        last = self._state
        if last is None or last.shape != action.shape or last.device != action.device:
            last = torch.zeros_like(action)
        # Never in place: it may have been made in inference mode.
        push = torch.randn_like(action) * (self.scale * math.sqrt(self.dt))
        self._state = last = torch.add(push, last, alpha=1.0 - self.theta * self.dt).detach()
        return action + last

    def restart(self, rows: Tensor) -> None:
        state = self._state
        if state is None or state.shape[: rows.ndim] != rows.shape:
            return  # Actions of another shape start anew by themselves.
        rows = rows.to(state.device).view(*rows.shape, *[1] * (state.ndim - rows.ndim))
        self._state = state.masked_fill(rows, 0.0)

    def spec_dict(self) -> dict[str, Any]:
        return {"kind": "ou", "theta": self.theta, "sigma": self.scale.item(), "dt": self.dt}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_state": None}


NOISES: dict[str, type[Noise]] = {"gaussian": GaussianNoise, "ou": OrnsteinUhlenbeckNoise}


def make_noise(*, kind: str, **options: Any) -> Noise:
    """The noise that a ``spec_dict`` describes.

    >>> make_noise(kind="gaussian", std=0.25).spec_dict()
    {'kind': 'gaussian', 'std': 0.25}
    """
    if kind not in NOISES:
        raise ValueError(f"`kind` must be one of {sorted(NOISES)}, got `{kind}`")
    return NOISES[kind](**options)
