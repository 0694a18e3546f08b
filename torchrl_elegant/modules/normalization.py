"""Normalized observations: running mean and spread as buffers, and an actor that reads them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from tensordict import NestedKey, TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor, nn
from torchrl.envs import EnvBase

from torchrl_elegant.modules.build import observation_shapes
from torchrl_elegant.modules.direct_calls import RestartsRows, own_state

CLIP = 10.0


class ObservationNorm(nn.Module):
    """``(x - mean) / std``, clipped at 10, for some entries of an observation.

    Mean and scale are buffers, so that they go wherever a policy's weights go. Only ``fit`` changes
    them.

    Args:
        shapes: shape of each entry, by key.

    >>> norm = ObservationNorm({"observation": (2,)})
    >>> norm.fit("observation", torch.tensor([1.0, 0.0]), torch.tensor([4.0, 0.0]))
    >>> norm("observation", torch.tensor([5.0, 0.5])).tolist()
    [2.0, 0.5]
    """

    def __init__(self, shapes: Mapping[NestedKey, Sequence[int]]) -> None:
        super().__init__()
        self.shapes = {key: tuple(shape) for key, shape in shapes.items()}
        self._names = {key: str(index) for index, key in enumerate(self.shapes)}
        for key, name in self._names.items():
            self.register_buffer(f"mean_{name}", torch.zeros(self.shapes[key]))
            self.register_buffer(f"scale_{name}", torch.ones(self.shapes[key]))

    def fit(self, key: NestedKey, mean: Tensor, variance: Tensor) -> None:
        """Takes over mean and variance; the scale of a number that never varied stays one."""
        # Float32 leaves a constant this far from its own mean.
        noise = mean.abs() * torch.finfo(torch.float32).eps
        std = variance.sqrt()
        scale = torch.where(std > noise, std, torch.ones_like(std)).reciprocal()
        name = self._names[key]
        getattr(self, f"mean_{name}").copy_(mean)
        getattr(self, f"scale_{name}").copy_(scale)

    def scales(self, key: NestedKey) -> tuple[Tensor, Tensor]:
        """Mean and factor of one entry, as copies in float64."""
        name = self._names[key]
        mean, scale = getattr(self, f"mean_{name}"), getattr(self, f"scale_{name}")
        return mean.double(), scale.double()

    def forward(self, key: NestedKey, value: Tensor) -> Tensor:
        """Normalizes one entry ``[*B, *shape]``; an entry that is not in ``shapes`` is left."""
        if key not in self._names:
            return value
        name = self._names[key]
        mean, scale = getattr(self, f"mean_{name}"), getattr(self, f"scale_{name}")
        return ((value - mean) * scale).clamp(-CLIP, CLIP)


class NormalizedActor(TensorDictModuleBase):
    """An actor that takes raw observations and shows ``actor`` normalized ones.

    It stands wherever ``actor`` would; losses call ``actor`` itself, on batches that went through
    the same ``norm``, which may hold entries that only a critic reads.

    Args:
        actor: takes normalized observations.
        norm: normalizes them.

    >>> from tensordict import TensorDict
    >>> from torchrl_elegant.modules.bounded_actor import SquashedGaussianActor
    >>> shapes = {"observation": (3,)}
    >>> actor = SquashedGaussianActor(observation=shapes, low=[-1.0], high=[1.0])
    >>> policy = NormalizedActor(actor, ObservationNorm(shapes))
    >>> policy(TensorDict({"observation": torch.zeros(5, 3)}, [5]))["action"].shape
    torch.Size([5, 1])
    """

    def __init__(self, actor: TensorDictModuleBase, norm: ObservationNorm) -> None:
        super().__init__()
        self.actor, self.norm = actor, norm
        self.in_keys, self.out_keys = list(actor.in_keys), list(actor.out_keys)
        if isinstance(actor, RestartsRows):
            # Collectors tell an actor with noise where an episode ended.
            self.restart = actor.restart

    def act(self, *observation: Tensor) -> Any:
        """Calls ``actor.act``, without a TensorDict."""
        pairs = zip(self.in_keys, observation, strict=True)
        return self.actor.act(*(self.norm(key, value) for key, value in pairs))

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        seen = tensordict.copy()
        for key in self.in_keys:
            seen.set(key, self.norm(key, tensordict.get(key)))
        acted = self.actor(seen)
        for key in self.out_keys:
            tensordict.set(key, acted.get(key))
        return tensordict

    def afresh(self) -> NormalizedActor:
        """The same actor with a state of its own, where the actor inside has one."""
        own = own_state(self.actor)
        return self if own is self.actor else NormalizedActor(own, self.norm)

    def spec_dict(self) -> dict[str, Any]:
        """Plain data from which ``from_spec`` builds the same architecture."""
        return {
            **self.actor.spec_dict(),
            "normalized_actor": type(self.actor).__name__,
            "normalized_shapes": {key: list(shape) for key, shape in self.norm.shapes.items()},
        }

    @classmethod
    def from_spec(
        cls,
        builders: Mapping[str, Callable[..., TensorDictModuleBase]],
        *,
        normalized_actor: str,
        normalized_shapes: Mapping[NestedKey, Sequence[int]],
        **spec: Any,
    ) -> NormalizedActor:
        """Builds what ``spec_dict`` describes, the actor with the builder of its class's name."""
        return cls(builders[normalized_actor](**spec), ObservationNorm(normalized_shapes))


def normalizable(
    env: EnvBase, in_keys: Sequence[NestedKey] | None = None
) -> dict[NestedKey, tuple[int, ...]]:
    """Lists shapes of the observations that are vectors of floating-point numbers.

    Args:
        env: the environment.
        in_keys: entries to look at, for example those of actor and critic, in any order and
            repeated or not; None for all but counters.

    >>> from torchrl_elegant.envs import make_env
    >>> normalizable(make_env("Pendulum-v1"))
    {'observation': (3,)}
    """
    specs, shapes = env.observation_spec_unbatched, observation_shapes(env, in_keys)
    found = {
        key: shape
        for key, shape in shapes.items()
        if len(shape) <= 1 and specs[key].dtype.is_floating_point
    }
    if not found:
        raise ValueError(
            "`normalize_observation` must be false without an observation that is a vector of "
            f"floating-point numbers, got entries of shapes `{list(shapes.values())}`"
        )
    return found
