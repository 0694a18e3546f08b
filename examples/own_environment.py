"""An environment of your own: a point that moves to a goal on a line.

Run it: ``python examples/own_environment.py``, or from the command line by the factory's name:
``torchrl-elegant train env=examples.own_environment:make env_kwargs.speed=0.2 total_frames=3_000``.
"""

import gymnasium
import numpy as np

from torchrl_elegant import SACConfig, train


class Reach(gymnasium.Env):
    """The point sees its place and the goal's; its action is a velocity."""

    observation_space = gymnasium.spaces.Box(-2.0, 2.0, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, speed: float = 0.1):
        self.speed = speed

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)  # seeds self.np_random
        self.place, self.goal = self.np_random.uniform(-1, 1, 2)
        return self._observe(), {}

    def step(self, action):
        self.place = float(np.clip(self.place + self.speed * action[0], -2, 2))
        distance = abs(self.place - self.goal)
        arrived = bool(distance < 0.02)  # terminated: nothing comes after it
        return self._observe(), -distance, arrived, False, {}

    def _observe(self):
        return np.array([self.place, self.goal], np.float32)


def make(speed: float = 0.1) -> gymnasium.Env:
    """Make one environment; the time limit ends episodes by truncation."""
    return gymnasium.wrappers.TimeLimit(Reach(speed), max_episode_steps=50)


def main(total_frames: int = 3_000) -> float:
    """Train, and give the return of the last evaluation."""
    config = SACConfig(num_cells=(32, 32), batch_size=64, warmup=500, actor_lr=1e-3, critic_lr=1e-3)
    return train(config, make, total_frames=total_frames, threads=1).history[-1]["return_mean"]


if __name__ == "__main__":
    print(f"return of the last evaluation: {main():.1f}")
