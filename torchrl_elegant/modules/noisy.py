"""A deterministic actor that explores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor
from torchrl.envs.utils import ExplorationType, exploration_type

from torchrl_elegant.modules.deterministic import DeterministicActor
from torchrl_elegant.modules.noise import Noise, make_noise


class NoisyActor(TensorDictModuleBase):
    """``actor``, and under ``ExplorationType.RANDOM``, or with none set, ``noise`` on its action.

    It is TorchRL's sequence of an actor and an exploration module with a method ``act``, so that
    collectors need no TensorDict for it. What leaves the bounds is clipped. The actor is the one
    that was given, not a copy: what a loss learns is what is played.

    >>> import torch
    >>> from tensordict import TensorDict
    >>> from torchrl_elegant.modules.noise import GaussianNoise
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
        """An untrained one from what ``spec_dict`` gave."""
        return cls(DeterministicActor(**actor), make_noise(**noise))

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        if self._explores():
            self._restart_where_it_begins(tensordict)
        action = self.act(*(tensordict.get(key) for key in self.in_keys))
        return tensordict.set(self.out_keys[0], action)

    def act(self, *observation: Tensor) -> Tensor:
        """The action at observations given in the order of ``in_keys``."""
        action = self.actor.act(*observation)
        return self.actor.clip(self.noise(action)) if self._explores() else action

    def restart(self, rows: Tensor) -> None:
        """Let the noise begin anew in the ``rows`` ``[*B]`` whose episode ended."""
        self.noise.restart(rows)

    def spec_dict(self) -> dict[str, Any]:
        """Plain data from which ``from_spec`` builds the same."""
        return {**self.actor.spec_dict(), "noise": self.noise.spec_dict()}

    def _restart_where_it_begins(self, tensordict: TensorDictBase) -> None:
        """TorchRL's own rollouts do not say where an episode ended, but what they carry does."""
        first = tensordict.get("is_init", None)
        if first is None and (count := tensordict.get("step_count", None)) is not None:
            first = count == 0
        if first is not None:
            self.restart(first.squeeze(-1))

    @staticmethod
    def _explores() -> bool:
        return exploration_type() in (None, ExplorationType.RANDOM)
