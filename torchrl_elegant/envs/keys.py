"""`EnvKeys`: the entries of an environment that losses, statistics and folds read."""

from __future__ import annotations

from dataclasses import dataclass

from tensordict import NestedKey, unravel_key
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
                f"`env` must have one agent, got rewards of shape {shape} in {reward!r}; a team "
                "needs an algorithm for teams"
            )
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
        return cls(action=_only(env.action_keys, "action"), reward=reward, **flags)


def _only(keys: list[NestedKey], kind: str) -> NestedKey:
    if len(keys) != 1:
        raise ValueError(
            f"`env` must have one {kind}, got {keys}; learn from one group of agents, or join the "
            "entries in a transform"
        )
    return unravel_key(keys[0])
