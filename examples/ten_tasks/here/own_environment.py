import gymnasium
import numpy as np

from torchrl_elegant import SACConfig, train


class Reach(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-2.0, 2.0, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = self.np_random.uniform(-1, 1, 1).astype(np.float32)
        return self.place, {}

    def step(self, action):
        self.place = np.clip(self.place + 0.1 * action, -2, 2).astype(np.float32)
        return self.place, -abs(self.place.item()), False, False, {}


def make():
    return gymnasium.wrappers.TimeLimit(Reach(), 50)


train(SACConfig(), make, total_frames=2_000)
