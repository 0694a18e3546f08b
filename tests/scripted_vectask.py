"""A scripted simulator with the interface of IsaacGymEnvs' VecTask, in each style of its resets.

It keeps to Python 3.6 and torch, so that it runs under the interpreter of a server, too.
"""

import random
import time

import numpy as np
import torch

LIMIT = 5
HANGS = 0.4375  # action that never ends
SLOW = 0.3125  # action that takes half a second


def falls_at(row, episode):
    """Steps after which a row falls; a time limit may come before, or at the same time."""
    return 2 + (3 * row + 2 * episode) % 5


class ScriptedTask(object):  # noqa: UP004
    """Observation: row, episode, steps, last action; reward: 10 episode + steps + action.

    All buffers are live, as in a VecTask: a step writes into what the last one returned.
    """

    max_episode_length = LIMIT

    def __init__(self, resets, num_envs=6, num_states=0):
        self.resets, self.num_envs, self.num_states = resets, num_envs, num_states
        self.num_obs, self.num_acts = 4, 1
        self.device = self.rl_device = "cpu"
        self.obs_buf = torch.zeros(num_envs, 4)
        self.states_buf = torch.zeros(num_envs, num_states)
        self.rew_buf = torch.zeros(num_envs)
        self.reset_buf = torch.ones(num_envs, dtype=torch.long)
        self.progress_buf = torch.zeros(num_envs, dtype=torch.long)
        self.episode = torch.zeros(num_envs, dtype=torch.long)
        self.action = torch.zeros(num_envs)
        self.terminate = torch.zeros(num_envs, dtype=torch.long)
        self.row = torch.arange(num_envs)
        self.extras, self.obs_dict = {}, {}

    def step(self, actions):
        if actions[0, 0] == HANGS:
            time.sleep(600)
        if actions[0, 0] == SLOW:
            time.sleep(0.5)
        self.action.copy_(actions[:, 0])
        if self.resets == "pre_physics":
            self._reset_marked()
        self.progress_buf.add_(1)
        if self.resets == "post_physics":
            self._reset_marked()
        if self.resets != "same_step":
            self._observe()
        self._judge()
        if self.resets == "same_step":
            self.reset_idx(self.reset_buf.nonzero(as_tuple=False).flatten())
            self._observe()
        time_outs = (self.progress_buf >= LIMIT - 1) & (self.reset_buf != 0)
        self.extras["time_outs"] = time_outs
        if self.resets == "manual":
            self.extras["terminate"] = self.terminate
        return self._shown(), self.rew_buf, self.reset_buf, self.extras

    def reset(self):
        return self._shown()

    def reset_idx(self, rows):
        self.progress_buf[rows] = 0
        self.episode[rows] += 1
        self.action[rows] = 0.0
        self.reset_buf[rows] = 1 if self.resets == "same_step" else 0

    def reset_done(self):
        rows = self.reset_buf.nonzero(as_tuple=False).flatten()
        self.reset_idx(rows)
        self._observe()
        return self._shown(), rows

    def _reset_marked(self):
        rows = self.reset_buf.nonzero(as_tuple=False).flatten()
        action = self.action[rows]
        self.reset_idx(rows)
        if self.resets == "pre_physics":
            self.action[rows] = action  # the first step of the new episode takes it

    def _observe(self):
        seen = [self.row.float(), self.episode.float(), self.progress_buf.float(), self.action]
        self.obs_buf.copy_(torch.stack(seen, -1))
        self.states_buf.copy_(2.0 * self.obs_buf[:, : self.num_states])

    def _judge(self):
        fallen = self.progress_buf >= falls_at(self.row, self.episode)
        timed_out = self.progress_buf >= LIMIT - 1
        self.rew_buf.copy_(10.0 * self.episode.float() + self.progress_buf.float() + self.action)
        self.reset_buf.copy_(fallen | timed_out)
        self.terminate.copy_(fallen & ~timed_out)

    def _shown(self):
        self.obs_dict["obs"] = self.obs_buf
        if self.num_states:
            self.obs_dict["states"] = self.states_buf
        return self.obs_dict


class DrawnTask(ScriptedTask):
    """Shows a number of Python's, of NumPy's and of torch's stream."""

    def __init__(self):
        super(DrawnTask, self).__init__("manual", num_envs=1)  # noqa: UP008

    def _observe(self):
        drawn = [random.random(), np.random.rand(), float(torch.rand(1)), 0.0]  # noqa: NPY002
        self.obs_buf.copy_(torch.tensor([drawn]))
