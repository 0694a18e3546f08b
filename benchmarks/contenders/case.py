"""What is timed, said once for all contenders. Needs the standard library and numpy alone."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Case:
    """One thing to time.

    ``kind`` is ``"update"`` (gradient updates on a filled buffer, a unit is one update) or
    ``"loop"`` (collection and training, one update per frame, a unit is one frame). ``group`` is
    the number of updates asked for in one call, and of frames collected before as many updates.
    """

    slug: str
    title: str
    kind: str
    env: str
    width: int
    batch: int
    threads: int
    learning_rate: float = 3e-4
    gamma: float = 0.99
    tau: float = 0.005
    buffer: int = 100_000
    filled: int = 5_000
    group: int = 1
    seed: int = 0

    @property
    def unit(self) -> str:
        return "updates/s" if self.kind == "update" else "frames/s"


def random_transitions(case: Case) -> dict[str, object]:
    """``case.filled`` transitions of the random policy, the same for every contender."""
    import gymnasium
    import numpy as np

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
    names = ("observation", "action", "next_observation", "reward", "terminated")
    return {
        name: np.asarray(column, dtype=bool if name == "terminated" else np.float32)
        for name, column in zip(names, zip(*rows, strict=True), strict=True)
    }
