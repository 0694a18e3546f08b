"""`EnvKeys`: the entries of an environment that losses, statistics and folds read."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from tensordict import NestedKey, TensorDictBase, unravel_key
from torch import Tensor
from torchrl.envs import EnvBase

from torchrl_elegant.functional import path_of


@dataclass(frozen=True, kw_only=True)
class EnvKeys:
    """Keys of action, reward and end-of-episode flags; all but the action stand under `next`.

    >>> from torchrl_elegant.envs.make import make_env
    >>> EnvKeys.of(make_env("Pendulum-v1")).truncated
    'truncated'
    """

    action: NestedKey = "action"
    reward: NestedKey = "reward"
    done: NestedKey = "done"
    terminated: NestedKey = "terminated"
    truncated: NestedKey = "truncated"

    @classmethod
    def of(cls, env: EnvBase) -> EnvKeys:
        """The keys in the specs of `env`, which must have one action and one reward.

        Of several done flags it takes the one nearest to the reward, at its level or above.
        """
        reward = _only(env.reward_keys, "reward")
        shape = tuple(env.full_reward_spec[reward].shape[len(env.batch_size) :])
        if shape not in ((), (1,)):
            raise ValueError(
                f"`env` must have one agent, got rewards of shape {shape} in {reward!r}; choose an "
                "algorithm for teams, such as mappo, maddpg or qmix"
            )
        return cls._at(env, _only(env.action_keys, "action"), reward)

    @classmethod
    def of_group(cls, env: EnvBase, action: NestedKey) -> EnvKeys:
        """The keys of the group of agents that acts by the entry `action`.

        Its reward is the one beside the action; without it, that of the whole environment.
        """
        above = path_of(action)[:-1]
        rewards = [path_of(key) for key in env.reward_keys]
        fitting = [key for key in rewards if key[:-1] == above[: len(key) - 1]]
        if not fitting:
            raise ValueError(
                f"`env` must have a reward beside the action {action!r} or above it, got "
                f"{env.reward_keys}; rename it with RenameTransform"
            )
        return cls._at(env, unravel_key(action), unravel_key(max(fitting, key=len)))

    @classmethod
    def _at(cls, env: EnvBase, action: NestedKey, reward: NestedKey) -> EnvKeys:
        above = path_of(reward)[:-1]
        levels = [path_of(key)[:-1] for key in env.done_keys]
        levels = [level for level in levels if level == above[: len(level)]]
        if not levels:
            raise ValueError(
                f"`env` must have a done flag at the level of its reward or above, got the reward "
                f"{reward!r} and the flags {env.done_keys}; rename them with RenameTransform"
            )
        level = max(levels, key=len)
        flags = {name: unravel_key((*level, name)) for name in ("done", "terminated", "truncated")}
        return cls(action=action, reward=reward, **flags)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Entries under `next` that tell the return of an episode, and its end.

    The reward of a step is the mean over the agents of a group, and then over the groups.

    >>> from torchrl_elegant.envs.make import make_env
    >>> outcome = Outcome.of(make_env("Pendulum-v1"))
    >>> outcome.rewards, outcome.done
    (('reward',), 'done')
    """

    rewards: tuple[NestedKey, ...] = ("reward",)
    done: NestedKey = "done"

    @classmethod
    def of(cls, env: EnvBase) -> Outcome:
        """The entries of `env`, whose episodes must end for all agents at once."""
        done = min(map(unravel_key, env.done_keys), key=lambda key: len(path_of(key)))
        shape = tuple(env.full_done_spec[done].shape[len(env.batch_size) :])
        if shape not in ((), (1,)):
            raise ValueError(
                f"`env` must have one done flag for all its agents, got flags of shape {shape} in "
                f"{done!r}; add one at the root in a transform"
            )
        return cls(rewards=tuple(map(unravel_key, env.reward_keys)), done=done)

    @property
    def groups(self) -> list[str]:
        """Names of the groups, where there are several."""
        paths = [path_of(key)[:-1] for key in self.rewards]
        return ["_".join(path) for path in paths] if len(paths) > 1 else []

    def reward(self, after: TensorDictBase) -> Tensor:
        """Reward of each step, `[*B]`, from what stands under `next`."""
        each = self.rewards_of(after)
        return each[0] if len(each) == 1 else each.mean(0)

    def rewards_of(self, after: TensorDictBase) -> Tensor:
        """Mean reward of the agents of each group, `[groups, *B]`."""
        found = [after.get(key) for key in self.rewards]
        means = [x if x.ndim == after.ndim else x.flatten(after.ndim).mean(-1) for x in found]
        return torch.stack(means)


def _only(keys: list[NestedKey], kind: str) -> NestedKey:
    if len(keys) != 1:
        raise ValueError(
            f"`env` must have one {kind}, got {keys}; learn from one group of agents, or join the "
            "entries in a transform"
        )
    return unravel_key(keys[0])
