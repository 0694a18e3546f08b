"""Steps of VMAS environments through their own interface.

TorchRL's wrapper makes four TensorDicts for each agent, and at a reset looks at the mask row by
row; both are avoided here.
"""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDictBase
from torchrl.envs import EnvBase
from torchrl.envs.libs.vmas import VmasEnv, VmasWrapper

from torchrl_elegant.collectors.rollout.env_steps import Key, Leaves


def is_plain_vmas(env: EnvBase) -> bool:
    """Tells whether `env` is TorchRL's wrapper itself, over agents with one observation tensor.

    >>> from torchrl.envs import PendulumEnv
    >>> is_plain_vmas(PendulumEnv())
    False
    """
    if type(env) not in (VmasEnv, VmasWrapper):
        return False
    expected: set[Key] = {"done", "terminated"}
    for group in env.group_map:
        expected |= {(group, "observation"), (group, "reward")}
    keys = set(env.full_observation_spec.keys(True, True)) | {*env.done_keys, *env.reward_keys}
    infos = {key for key in keys - expected if len(key) == 3 and key[1] == "info"}
    return keys == expected | infos and not env._env.dict_spaces


class VmasStepper:
    """Steps and resets a VMAS environment, in lists of leaves.

    Args:
        env: an environment for which `is_plain_vmas` holds.
    """

    resets_by_mask = False

    def __init__(self, env: VmasWrapper) -> None:
        self._env, self._simulator = env, env._env
        self.roots = Leaves([*env._observation_keys_step_mdp, *env.done_keys])
        self.nexts = Leaves([*self.roots.keys, *env.reward_keys])
        numbers = env.agent_names_to_indices_map
        groups = env.group_map.items()
        self._agents = {group: [numbers[name] for name in names] for group, names in groups}

    def step(self, data: TensorDictBase) -> list[torch.Tensor]:
        """Steps with the actions in `data`; returns the outcome in the order of `nexts`."""
        actions: list[Any] = [None] * self._env.n_agents
        for group, agents in self._agents.items():
            chosen = self._env.read_action(data.get((group, "action")), group=group)
            for agent, action in zip(agents, chosen, strict=True):
                actions[agent] = action
        observations, rewards, done, infos = self._simulator.step(actions)
        values = self._values(observations, done, infos)
        for group, agents in self._agents.items():
            values[group, "reward"] = self._stack([rewards[agent] for agent in agents])
        return [values[key] for key in self.nexts.keys]

    def reset(self, data: TensorDictBase, done: torch.Tensor) -> None:
        """Resets the rows that are done, and writes their new roots into `data`."""
        rows = done.reshape(-1)
        indices = rows.nonzero().flatten().tolist()
        if len(indices) == len(rows):
            self._simulator.reset(return_observations=False)
        else:
            for index in indices:
                self._simulator.reset_at(index, return_observations=False)
        observations, done, infos = self._simulator.get_from_scenario(
            get_observations=True, get_infos=True, get_rewards=False, get_dones=True
        )
        new = self._values(observations, done, infos)
        # Rows that go on keep the step's values: a scenario may add noise to observations.
        merged = [
            torch.where(rows.view(-1, *[1] * (now.ndim - 1)), new[key], now)
            for key, now in zip(self.roots.keys, self.roots.read(data), strict=True)
        ]
        self.roots.write(data, merged)

    def _values(
        self,
        observations: list[torch.Tensor],
        done: torch.Tensor,
        infos: list[dict[str, torch.Tensor]],
    ) -> dict[Key, torch.Tensor]:
        done = done.unsqueeze(-1)
        values: dict[Key, torch.Tensor] = {"done": done, "terminated": done.clone()}
        for group, agents in self._agents.items():
            values[group, "observation"] = self._stack([observations[agent] for agent in agents])
            for name in infos[agents[0]]:
                parts = [infos[agent][name].to(torch.float32) for agent in agents]
                values[group, "info", name] = self._stack(parts)
        return values

    @staticmethod
    def _stack(parts: list[torch.Tensor]) -> torch.Tensor:
        """[n] or [n, k] of each agent -> [n, agents, 1 or k]."""
        stacked = torch.stack(parts, 1)
        return stacked.unsqueeze(-1) if stacked.ndim == 2 else stacked
