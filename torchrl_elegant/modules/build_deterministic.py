"""The deterministic actor from an environment's specs."""

from __future__ import annotations

from collections.abc import Sequence

from torchrl.envs import EnvBase

from torchrl_elegant.modules.actions import bounded_action
from torchrl_elegant.modules.build import observation_shapes
from torchrl_elegant.modules.deterministic import DeterministicActor


def build_deterministic_actor(
    env: EnvBase, *, num_cells: Sequence[int] = (256, 256), activation: str = "relu"
) -> DeterministicActor:
    """A deterministic actor that fits ``env``.

    >>> from torchrl.envs import GymEnv
    >>> build_deterministic_actor(GymEnv("Pendulum-v1"), num_cells=(8,)).high.tolist()
    [2.0]
    """
    key, spec = bounded_action(env, algorithm="a deterministic actor")
    actor = DeterministicActor(
        observation=observation_shapes(env),
        low=spec.space.low,
        high=spec.space.high,
        num_cells=num_cells,
        activation=activation,
        action_key=key,
    )
    return actor.to(env.device) if env.device is not None else actor
