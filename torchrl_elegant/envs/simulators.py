"""Several Gymnasium environments stepped in a loop, their values kept in numpy arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import gymnasium
import numpy as np

from torchrl_elegant.envs.spaces import (
    DiscreteActions,
    action_codec,
    environment_name,
    observation_leaves,
)


class Simulators:
    """Gymnasium environments of equal spaces, and the live arrays that hold their present values.

    `root` is what a policy sees, `next` the same arrays and the reward: after `step` they hold
    the outcome, the true final one where an episode ended; after `reset` the first observation.
    All have a leading dimension over the environments and are overwritten in place.

    Args:
        factories: callables that each return a `gymnasium.Env`.
        seeds: one per environment or None, used at its next reset.
        discrete_actions: how discrete actions are written.

    >>> from functools import partial
    >>> two = Simulators(
    ...     factories=[partial(gymnasium.make, "CartPole-v1")] * 2,
    ...     seeds=[1, 2],
    ...     discrete_actions="categorical",
    ... )
    >>> two.reset()
    >>> two.step(np.array([0, 1])), two.next["reward"].tolist()
    (False, [[1.0], [1.0]])
    """

    def __init__(
        self,
        *,
        factories: Sequence[Callable[[], gymnasium.Env]],
        seeds: Sequence[int | None],
        discrete_actions: DiscreteActions,
    ) -> None:
        self.pending_seeds = [*seeds]
        self._envs: list[gymnasium.Env] = []
        try:
            for factory in factories:
                self._envs.append(_checked(factory(), self._envs))
            first = self._envs[0]
            self.name = environment_name(first)
            self.leaves = observation_leaves(first.observation_space, env_name=self.name)
            self.codec = action_codec(
                first.action_space, discrete_actions=discrete_actions, env_name=self.name
            )
        except BaseException:
            self.close()
            raise
        self._make_arrays(len(self._envs))
        decode = self.codec.decode
        #: A batch of actions -> one per environment, in the form its action space has.
        self.decode: Callable[[np.ndarray], Iterable[Any]] = decode
        if isinstance(first.action_space, gymnasium.spaces.Discrete):
            # An environment checks a Python int in half the time that a numpy one takes.
            self.decode = lambda action: decode(action).tolist()

    @property
    def envs(self) -> Sequence[gymnasium.Env]:
        """The environments; whoever steps them past `step` keeps the live arrays true."""
        return self._envs

    def __len__(self) -> int:
        return len(self._envs)

    def _make_arrays(self, count: int) -> None:
        observations = {
            leaf.key: np.zeros((count, *leaf.spec.shape), leaf.dtype) for leaf in self.leaves
        }
        self._writes = [(leaf.write, observations[leaf.key]) for leaf in self.leaves]
        # The common case, one array, is written without a call per environment.
        only = self.leaves[0]
        plain = not only.source and only.offsets is None
        self._plain_array = observations["observation"] if plain else None
        self._reward = np.zeros((count, 1), np.float32)
        self._terminated, self._truncated, self._done = np.zeros((3, count, 1), np.bool_)
        self._step_count = np.zeros((count, 1), np.int64)
        self._episode_reward = np.zeros((count, 1), np.float32)
        self.root = {
            **observations,
            "step_count": self._step_count,
            "episode_reward": self._episode_reward,
            "done": self._done,
            "terminated": self._terminated,
            "truncated": self._truncated,
        }
        self.next = {**self.root, "reward": self._reward}

    def step(self, action: np.ndarray, rows: Sequence[int] | None = None) -> bool:
        """Steps all environments, or those of `rows`; returns whether an episode ended.

        The caller then copies the final values and calls `reset(done_rows())`.
        """
        actions = [*self.decode(action)]
        envs, reward, plain = self._envs, self._reward, self._plain_array
        terminations, truncations = self._terminated, self._truncated
        if rows is not None:
            # An environment that waits earns nothing and keeps its last observation.
            reward[:] = 0.0
        any_done = False
        for i in range(len(envs)) if rows is None else rows:
            observation, reward[i, 0], terminated, truncated, _ = envs[i].step(actions[i])
            if plain is not None:
                plain[i] = observation
            else:
                self._write(i, observation)
            terminations[i, 0], truncations[i, 0] = terminated, truncated
            if terminated or truncated:
                any_done = True
        np.logical_or(terminations, truncations, out=self._done)
        reward += 0.0  # a zero has no sign, as in TorchRL's own environments
        self._episode_reward += reward
        if rows is None:
            self._step_count += 1
        else:
            self._step_count[rows] += 1
        return any_done

    def reset(self, rows: Iterable[int] | None = None, **kwargs: Any) -> None:
        """Starts new episodes in all environments, or in those of `rows`."""
        for i in range(len(self._envs)) if rows is None else rows:
            self._write(i, self.reset_one(i, **kwargs))
            self._terminated[i] = self._truncated[i] = self._done[i] = False
            self._step_count[i] = 0
            self._episode_reward[i] = 0.0

    def reset_one(self, row: int, **kwargs: Any) -> Any:
        """Starts an episode of one environment and returns its first observation, not written."""
        # A seed belongs to one reset: with it again, every episode would be the same.
        seed, self.pending_seeds[row] = self.pending_seeds[row], None
        return self._envs[row].reset(seed=seed, **kwargs)[0]

    def done_rows(self) -> list[int]:
        """The environments whose last step ended an episode."""
        return self._done.reshape(-1).nonzero()[0].tolist()

    def close(self) -> None:
        """Closes every environment; a second time does nothing."""
        while self._envs:
            self._envs.pop().close()

    def _write(self, row: int, observation: Any) -> None:
        for write, array in self._writes:
            write(array, row, observation)


def _checked(env: Any, earlier: Sequence[gymnasium.Env]) -> gymnasium.Env:
    if not isinstance(env, gymnasium.Env):
        raise TypeError(
            f"`factories` must return gymnasium.Env, got `{type(env).__name__}`; "
            "for a TorchRL environment use make_env"
        )
    for name in ("observation_space", "action_space") if earlier else ():
        if getattr(env, name) != getattr(earlier[0], name):
            raise ValueError(
                f"`factories` must agree on `{name}`, got `{getattr(env, name)}` from number "
                f"{len(earlier)} and `{getattr(earlier[0], name)}` from number 0"
            )
    return env
