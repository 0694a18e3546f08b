"""A task that computes nothing, with the interface of a VecTask; it runs on Python 3.6, too."""

import torch


class StillTask(object):  # noqa: UP004
    """Returns the same buffers at each step: what is left of the time is the way to it."""

    max_episode_length = 1000

    def __init__(self, num_envs, num_obs):
        torch.set_num_threads(1)
        self.num_envs, self.num_obs, self.num_states, self.num_acts = num_envs, num_obs, 0, 8
        self.device = self.rl_device = "cpu"
        self.obs = {"obs": torch.rand(num_envs, num_obs)}
        self.reward, self.reset_buf = torch.rand(num_envs), torch.zeros(num_envs).long()
        self.extras = {"time_outs": torch.zeros(num_envs).bool()}

    def step(self, actions):
        return self.obs, self.reward, self.reset_buf, self.extras
