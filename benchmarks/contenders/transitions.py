"""Transitions that every contender's replay buffer is filled with."""

from __future__ import annotations

import gymnasium
import numpy as np

from contenders.case import OffPolicyCase


def random_transitions(case: OffPolicyCase) -> dict[str, np.ndarray]:
    """``case.filled`` transitions of the random policy, the same for every contender."""
    env = gymnasium.make(case.env)
    env.action_space.seed(case.seed)
    observation, _ = env.reset(seed=case.seed)
    rows: list[tuple] = []
    while len(rows) < case.filled:
        action = env.action_space.sample()
        following, reward, terminated, truncated, _ = env.step(action)
        rows.append((observation, action, following, reward, terminated))
        observation = following
        if terminated or truncated:
            observation, _ = env.reset()
    env.close()
    discrete = isinstance(env.action_space, gymnasium.spaces.Discrete)
    types = {"terminated": bool, "action": np.int64 if discrete else np.float32}
    names = ("observation", "action", "next_observation", "reward", "terminated")
    return {
        name: np.asarray(column, dtype=types.get(name, np.float32))
        for name, column in zip(names, zip(*rows, strict=True), strict=True)
    }
