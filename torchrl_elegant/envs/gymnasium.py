"""`GymnasiumEnv`: N Gymnasium simulators as one batched TorchRL environment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import gymnasium
import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase
from torchrl.data import Bounded, Categorical, Composite, TensorSpec, Unbounded

from torchrl_elegant.config.machine import within_memory
from torchrl_elegant.envs.older_gym import (
    first_observation,
    gymnasium_reset,
    is_of_older_gym,
    refuse_short_step,
)
from torchrl_elegant.envs.spaces import (
    DiscreteActions,
    action_codec,
    environment_name,
    observation_leaves,
    random_allowed,
)
from torchrl_elegant.envs.wrap import CompleteEnv
from torchrl_elegant.functional import action_mask_of


class Simulators:
    """Gymnasium environments with the same spaces, and arrays that hold their current values.

    `root` holds the arrays that a policy sees; `next` holds the same ones and the reward. After
    `step` they contain the outcome, which is the true final observation where an episode ended;
    after `reset` the first observation. All have a leading dimension over the environments and are
    overwritten in place.

    Args:
        factories: callables that each return a `gymnasium.Env`.
        seeds: one per environment or None, used at its next reset.
        discrete_actions: form of discrete actions.

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
            for factory in within_memory("num_envs", factories):
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
        #: Turns a batch of actions into one per environment, in the form of its action space.
        self.decode: Callable[[np.ndarray], Iterable[Any]] = decode
        if isinstance(first.action_space, gymnasium.spaces.Discrete):
            # An environment checks a Python int twice as fast as a numpy one.
            self.decode = lambda action: decode(action).tolist()

    @property
    def envs(self) -> Sequence[gymnasium.Env]:
        """The environments; a caller that steps them directly must update the arrays itself."""
        return self._envs

    def __len__(self) -> int:
        return len(self._envs)

    def _make_arrays(self, count: int) -> None:
        observations = {
            leaf.key: np.zeros((count, *leaf.spec.shape), leaf.dtype) for leaf in self.leaves
        }
        self._writes = [(leaf.write, observations[leaf.key]) for leaf in self.leaves]
        # The common case of one array is written without a call per environment.
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
        try:
            for i in range(len(envs)) if rows is None else rows:
                observation, reward[i, 0], terminated, truncated, _ = envs[i].step(actions[i])
                if plain is not None:
                    plain[i] = observation
                else:
                    self._write(i, observation)
                terminations[i, 0], truncations[i, 0] = terminated, truncated
                if terminated or truncated:
                    any_done = True
        except (ValueError, TypeError) as error:
            refuse_short_step(error, envs[0])
            raise
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
        """Starts an episode of one environment; returns its observation without writing it."""
        # A seed is used once: with the same one again, every episode would be the same.
        seed, self.pending_seeds[row] = self.pending_seeds[row], None
        env = self._envs[row]
        with gymnasium_reset(env):
            result = env.reset(seed=seed, **kwargs)
        return first_observation(result, env)

    def done_rows(self) -> list[int]:
        """Lists the environments whose last step ended an episode."""
        return self._done.reshape(-1).nonzero()[0].tolist()

    def close(self) -> None:
        """Closes every environment; a second time does nothing."""
        while self._envs:
            self._envs.pop().close()

    def _write(self, row: int, observation: Any) -> None:
        for write, array in self._writes:
            write(array, row, observation)


def _checked(env: Any, earlier: Sequence[gymnasium.Env]) -> gymnasium.Env:
    if is_of_older_gym(env) and not isinstance(env, gymnasium.Env):
        raise TypeError(
            f"`env` must be a gymnasium.Env, got `{type(env).__name__}` of the older package gym; "
            "return shimmy.GymV21CompatibilityV0(env=...) of the package shimmy around it"
        )
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


#: A key of a TensorDict and the live array behind it.
Arrays = Mapping[str | tuple[str, ...], np.ndarray]


def sub_seeds(seed: int, count: int) -> list[int]:
    """Derives one independent seed per sub environment, the same for every backend.

    >>> sub_seeds(0, 2)
    [2968811710, 3677149159]
    """
    return np.random.SeedSequence(seed).generate_state(count).tolist()


class GymnasiumEnv(CompleteEnv):
    """Steps `len(factories)` Gymnasium environments in a loop and writes one TensorDict.

    Compared with a `SerialEnv` over `GymEnv` it is cheaper (one TensorDict per step for any number
    of environments) and needs no transforms: observations are float32, discrete ones one-hot,
    bounded actions are in [-1, 1], and it counts `step_count` and `episode_reward`. The observation
    at `done` is the true final one. A reset touches only the sub environments asked for, so no row
    joins two episodes.

    Fast collectors call `step_numpy` and `reset_numpy`, which work on arrays.

    Args:
        factories: callables that each return a `gymnasium.Env`; all must have the same spaces.
        batched: `"batched"` gives batch size `[len(factories)]`, `"single"` gives `[]` and
            takes one factory.
        seeds: one seed per sub environment, used at its next reset.
        device: device of the TensorDicts; the simulators stay in host memory.
        discrete_actions: form in which the policy writes discrete actions.

    >>> from functools import partial
    >>> env = GymnasiumEnv(factories=[partial(gymnasium.make, "CartPole-v1")] * 2, seeds=[1, 2])
    >>> env.rollout(3)["next", "step_count"].squeeze(-1).tolist()
    [[1, 2, 3], [1, 2, 3]]
    """

    def __init__(
        self,
        *,
        factories: Sequence[Callable[[], gymnasium.Env]],
        batched: Literal["batched", "single"] = "batched",
        seeds: Sequence[int] | None = None,
        device: torch.device | str | None = None,
        discrete_actions: DiscreteActions = "one_hot",
    ) -> None:
        _validate(factories, batched, seeds, discrete_actions)
        batch_size = [len(factories)] if batched == "batched" else []
        super().__init__(device=device, batch_size=batch_size)
        self.is_closed = False
        self._simulators = Simulators(
            factories=factories,
            seeds=seeds or [None] * len(factories),
            discrete_actions=discrete_actions,
        )
        self._num_envs = len(factories)
        self.env_name = self._simulators.name
        codec = self._simulators.codec
        self.action_low, self.action_high = codec.low, codec.high
        view = (lambda array: array) if self.batch_size else (lambda array: array[0])
        #: Arrays in the shape of the environment's tensors, overwritten by every step.
        self.root_arrays: Arrays = {k: view(a) for k, a in self._simulators.root.items()}
        self.next_arrays: Arrays = {k: view(a) for k, a in self._simulators.next.items()}
        self._root_tensors = {k: torch.from_numpy(a) for k, a in self.root_arrays.items()}
        self._next_tensors = {k: torch.from_numpy(a) for k, a in self.next_arrays.items()}
        self._make_specs(codec.spec)

    @property
    def num_envs(self) -> int:
        return self._num_envs

    @property
    def simulators(self) -> Simulators:
        """The simulators, for collectors that step them directly."""
        return self._simulators

    def _make_specs(self, action_spec: TensorSpec) -> None:
        def batch(spec: TensorSpec) -> TensorSpec:
            return spec.expand(*self.batch_size, *spec.shape)

        def composite(**specs: TensorSpec) -> Composite:
            made = Composite(specs, shape=self.batch_size)
            return made if self.device is None else made.to(self.device)

        largest = torch.iinfo(torch.int64).max
        observation = Composite(
            step_count=batch(Bounded(0, largest, (1,), dtype=torch.int64)),
            episode_reward=batch(Unbounded((1,), dtype=torch.float32)),
            shape=self.batch_size,
        )
        for leaf in self._simulators.leaves:
            observation[leaf.key] = batch(leaf.spec)
        flag = batch(Categorical(2, shape=(1,), dtype=torch.bool))
        self.observation_spec = observation if self.device is None else observation.to(self.device)
        self.action_spec = composite(action=batch(action_spec))
        self.reward_spec = composite(reward=batch(Unbounded((1,), dtype=torch.float32)))
        self.done_spec = composite(
            done=flag.clone(), terminated=flag.clone(), truncated=flag.clone()
        )

    def step_numpy(self, action: np.ndarray, rows: Sequence[int] | None = None) -> bool:
        """Steps the sub environments (of `rows`, or all) and fills `next_arrays`.

        Returns whether any of them is done: the caller then calls `reset_numpy(done_rows())`,
        after it has copied the final values.
        """
        return self._simulators.step(action if self.batch_size else action[None], rows)

    def reset_numpy(self, rows: Iterable[int] | None = None, **kwargs: Any) -> None:
        """Resets the sub environments of `rows` (or all) and fills their part of `root_arrays`."""
        self._simulators.reset(rows, **kwargs)

    def done_rows(self) -> list[int]:
        """Lists the sub environments whose last step ended an episode."""
        return self._simulators.done_rows()

    def rand_action(self, tensordict: TensorDictBase | None = None) -> TensorDictBase:
        """Draws actions, of discrete ones only those that an entry `action_mask` allows."""
        mask = None if tensordict is None else action_mask_of(self)
        if tensordict is None or mask is None:
            return super().rand_action(tensordict)
        drawn = random_allowed(self.action_spec_unbatched, tensordict.get(mask))
        return tensordict.set("action", drawn)

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        rows = self._rows(tensordict.get("_step", None))
        self.step_numpy(tensordict.get("action").detach().cpu().numpy(), rows)
        return self._snapshot(self._next_tensors)

    def _reset(
        self, tensordict: TensorDictBase | None = None, *, seed: int | None = None, **kwargs: Any
    ) -> TensorDictBase:
        if seed is not None:
            self._set_seed(seed)
        mask = None if tensordict is None else tensordict.get("_reset", None)
        self.reset_numpy(self._rows(mask), **kwargs)
        return self._snapshot(self._root_tensors)

    def _rows(self, mask: torch.Tensor | None) -> list[int] | None:
        if mask is None:
            return None
        return mask.reshape(self.num_envs, -1).any(-1).nonzero()[:, 0].tolist()

    def _snapshot(self, tensors: Mapping[str | tuple[str, ...], torch.Tensor]) -> TensorDict:
        # The next step overwrites the arrays, so rows are handed out as copies.
        copies = {key: tensor.clone() for key, tensor in tensors.items()}
        return TensorDict(copies, batch_size=self.batch_size, device=self.device)

    def _set_seed(self, seed: int | None) -> None:
        count = self.num_envs
        seeds = [None] * count if seed is None else sub_seeds(seed, count)
        self._simulators.pending_seeds[:] = seeds

    def close(self, *, raise_if_closed: bool = True) -> None:
        """Closes every sub environment; closing twice does nothing, whatever `raise_if_closed`."""
        self.is_closed = True
        self._simulators.close()


def _validate(
    factories: Sequence[Callable[[], gymnasium.Env]],
    batched: str,
    seeds: Sequence[int] | None,
    discrete_actions: str,
) -> None:
    if not factories:
        raise ValueError("`factories` must hold at least one callable, got none")
    if batched not in ("batched", "single"):
        raise ValueError(f"`batched` must be 'batched' or 'single', got `{batched}`")
    if batched == "single" and len(factories) != 1:
        raise ValueError(f"`factories` must hold one callable if single, got `{len(factories)}`")
    if seeds is not None and len(seeds) != len(factories):
        raise ValueError(f"`seeds` must be one per factory ({len(factories)}), got `{len(seeds)}`")
    if discrete_actions not in ("one_hot", "categorical"):
        raise ValueError(
            f"`discrete_actions` must be 'one_hot' or 'categorical', got `{discrete_actions}`"
        )
