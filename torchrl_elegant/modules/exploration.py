"""Exploration noise on continuous actions, and the actor that adds it."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor, nn
from torchrl.envs.utils import ExplorationType, exploration_type

from torchrl_elegant.modules.bounded_actor import DeterministicActor
from torchrl_elegant.modules.direct_calls import rows_that_begin
from torchrl_elegant.modules.recurrent import zeroed


class Noise(nn.Module):
    """Noise on actions ``[*B, *A]``, in their own units, drawn for each row by itself.

    Its ``scale`` is a buffer, so it travels to collector processes with the policy's weights.
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
        """Add noise to the action."""

    @abstractmethod
    def spec_dict(self) -> dict[str, Any]:
        """Plain data from which ``make_noise`` makes the same noise."""

    def restart(self, rows: Tensor) -> None:
        """Forget the state in the ``rows`` ``[*B]`` that are True."""


class GaussianNoise(Noise):
    """Independent noise at every step, ``a + sigma eps`` (Fujimoto et al. 2018, section 6.1).

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


class MixedNoise(Noise):
    r"""Independent noise whose spread differs between rows, and is drawn anew for each episode.

    With a row's :math:`\sigma` uniform in [``least``, ``std``] the action is
    :math:`a + \sigma \epsilon` (Seo et al. 2025, arXiv:2505.22642, section 2): among thousands of
    environments some explore far and others hardly at all.

    The spreads are not saved: a copy or a pickle draws its own, and so does a call with actions of
    another shape. Collectors call ``restart`` where an episode ends.

    Args:
        std: largest spread.
        least: smallest spread.

    >>> noise, still = MixedNoise(std=0.5, least=0.1), torch.zeros(4, 10_000)
    >>> spread = noise(still).std(-1)
    >>> bool((spread.min() > 0.09) & (spread.max() < 0.51)), len(spread.unique())
    (True, 4)
    """

    def __init__(self, *, std: float = 0.4, least: float = 0.0) -> None:
        super().__init__(name="std", scale=std)
        if not 0.0 <= least <= std:
            raise ValueError(f"`least` must lie between 0 and std ({std}), got `{least}`")
        self.least = float(least)
        self._part: Tensor | None = None  # of the way from `least` to `std`, `[*B, 1]`

    def forward(self, action: Tensor) -> Tensor:
        part = self._part
        if part is None or part.shape[:-1] != action.shape[:-1] or part.device != action.device:
            self._part = part = torch.rand_like(action[..., :1])
        return action + torch.randn_like(action) * torch.lerp(
            torch.full_like(part, self.least), self.scale.expand_as(part), part
        )

    def restart(self, rows: Tensor) -> None:
        part = self._part
        if part is None or part.shape[: rows.ndim] != rows.shape:
            return  # Actions of another shape draw anew by themselves.
        rows = rows.to(part.device).view(*rows.shape, *[1] * (part.ndim - rows.ndim))
        self._part = torch.where(rows, torch.rand_like(part), part)

    def spec_dict(self) -> dict[str, Any]:
        return {"kind": "mixed", "std": self.scale.item(), "least": self.least}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_part": None}


class OrnsteinUhlenbeckNoise(Noise):
    """Noise correlated in time (Uhlenbeck and Ornstein 1930; Lillicrap et al. 2015, section 7).

    ``x <- x - theta x dt + sigma sqrt(dt) eps``, from 0 where an episode begins; the action is
    ``a + x``.

    ``x`` has a row for each row of the actions, so no two environments share it. It is not saved: a
    copy or a pickle, and so every collector process, starts with an ``x`` of its own, and so does a
    call with actions of another shape. Collectors call ``restart`` where an episode ends; after a
    reset from outside the old ``x`` goes on.

    Args:
        theta: rate at which it returns to 0, per unit of time.
        sigma: strength; in the long run the standard deviation is about ``sigma / sqrt(2 theta)``.
        dt: time between two steps, below ``2 / theta``, beyond which it diverges.

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
        self._state = zeroed(state, rows)

    def spec_dict(self) -> dict[str, Any]:
        return {"kind": "ou", "theta": self.theta, "sigma": self.scale.item(), "dt": self.dt}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_state": None}


NOISES: dict[str, type[Noise]] = {
    "gaussian": GaussianNoise,
    "mixed": MixedNoise,
    "ou": OrnsteinUhlenbeckNoise,
}


def make_noise(*, kind: str, **options: Any) -> Noise:
    """Makes the noise that a ``spec_dict`` describes.

    >>> make_noise(kind="gaussian", std=0.25).spec_dict()
    {'kind': 'gaussian', 'std': 0.25}
    """
    if kind not in NOISES:
        raise ValueError(f"`kind` must be one of {sorted(NOISES)}, got `{kind}`")
    return NOISES[kind](**options)


class NoisyActor(TensorDictModuleBase):
    """An actor that adds ``noise`` to the action of ``actor``.

    It does so under ``ExplorationType.RANDOM`` or with no type set, and clips the action to the
    bounds. It works as TorchRL's sequence of an actor and an exploration module, and has a method
    ``act``, so that collectors call it without a TensorDict. It holds the given actor, not a copy.

    >>> import torch
    >>> from tensordict import TensorDict
    >>> from torchrl_elegant.modules.exploration import GaussianNoise
    >>> actor = DeterministicActor(observation={"observation": (3,)}, low=[-1.0], high=[1.0])
    >>> noisy, data = NoisyActor(actor, GaussianNoise(std=9.0)), torch.zeros(5, 3)
    >>> noisy(TensorDict({"observation": data}, [5]))["action"].abs().max().item()
    1.0
    """

    def __init__(self, actor: DeterministicActor, noise: Noise) -> None:
        super().__init__()
        self.actor, self.noise = actor, noise
        self.in_keys, self.out_keys = list(actor.in_keys), list(actor.out_keys)

    @classmethod
    def from_spec(cls, *, noise: Mapping[str, Any], **actor: Any) -> NoisyActor:
        """Builds an untrained one from a ``spec_dict``."""
        return cls(DeterministicActor(**actor), make_noise(**noise))

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        if self._explores():
            begins = rows_that_begin(tensordict)
            if begins is not None:
                self.restart(begins)
        action = self.act(*(tensordict.get(key) for key in self.in_keys))
        return tensordict.set(self.out_keys[0], action)

    def act(self, *observation: Tensor) -> Tensor:
        """The action at observations given in the order of ``in_keys``."""
        action = self.actor.act(*observation)
        return self.actor.clip(self.noise(action)) if self._explores() else action

    def restart(self, rows: Tensor) -> None:
        """Restart the noise in the ``rows`` ``[*B]`` whose episode ended."""
        self.noise.restart(rows)

    def spec_dict(self) -> dict[str, Any]:
        """Plain data from which ``from_spec`` builds the same architecture."""
        return {**self.actor.spec_dict(), "noise": self.noise.spec_dict()}

    @staticmethod
    def _explores() -> bool:
        return exploration_type() in (None, ExplorationType.RANDOM)
