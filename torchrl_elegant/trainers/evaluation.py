"""Evaluation: the deterministic policy on environments of its own."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count as count_from
from typing import Any, NamedTuple

import numpy as np
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModuleBase
from torch import Tensor
from torchrl.envs import EnvBase, TransformedEnv
from torchrl.envs.utils import ExplorationType, set_exploration_type

from torchrl_elegant.collectors.rollout.policy_calls import direct_call
from torchrl_elegant.envs import BOOKKEEPING_KEYS, GymnasiumEnv, Outcome
from torchrl_elegant.functional import junk_of
from torchrl_elegant.modules import RestartsRows, own_state
from torchrl_elegant.trainers.random_streams import streams_kept
from torchrl_elegant.trainers.run_config import RunConfig

logger = logging.getLogger(__name__)

# Steps between two checks for a stop.
_LOOK = 200
_MOST = RunConfig.max_eval_steps


class PlayStopped(Exception):
    """Episodes were left before their end, because somebody asked to stop."""


def play(
    env: GymnasiumEnv,
    policy: TensorDictModuleBase,
    episodes: int,
    should_stop: Callable[[], bool] = lambda: False,
    *,
    max_steps: int = _MOST,
) -> list[tuple[float, int]]:
    """Return and length of ``episodes`` whole episodes, all with the policy's best action.

    ``should_stop`` is asked now and then; ``PlayStopped`` is raised where it says so. An episode
    that has not ended after ``max_steps`` counts with what it has by then: a policy that never
    fails must not stop a run.

    How many each environment plays is settled beforehand. Were the first to finish counted, short
    episodes would count too often.

    >>> from torchrl_elegant.envs import make_env
    >>> from torchrl_elegant.modules import build_stochastic_actor
    >>> env = make_env("Pendulum-v1", 2, env_kwargs={"max_episode_steps": 7})
    >>> [length for _, length in play(env, build_stochastic_actor(env), 3)]
    [7, 7, 7]
    """
    left = shares_of(episodes, env.num_envs)
    policy, restart = _acting(policy)
    active = [row for row, count in enumerate(left) if count]
    choose, check, cap = _chooser(env, policy), _value_check(env), _Cap(env, max_steps)
    lengths = env.next_arrays["step_count"].reshape(-1)
    total = env.next_arrays["episode_reward"].reshape(-1)
    ended: list[tuple[float, int]] = []
    env.reset_numpy(active)
    check(0)
    with torch.inference_mode(), set_exploration_type(ExplorationType.DETERMINISTIC):
        for step in count_from(1):
            if not active:
                break
            _look(step, should_stop)
            done = env.step_numpy(choose().cpu().numpy(), active)
            check(step)
            # Nothing can have been too long before so many steps.
            over = {*env.done_rows()} if done else set()
            if step >= max_steps:
                over |= cap.rows(lengths, {*active} - over)
            for row in over.intersection(active):
                ended.append((float(total[row]), int(lengths[row])))
                left[row] -= 1
                if left[row]:
                    env.reset_numpy([row])
            if over:
                active = [row for row in active if left[row]]
                check(step)
                ends = [row in over for row in range(env.num_envs)]
                restart(torch.tensor(ends).view(env.batch_size))
    return ended


class Played(NamedTuple):
    """Episode of one row of an environment; ``groups`` has the return of each group of agents."""

    row: int
    value: float
    length: int
    groups: tuple[float, ...]


def play_rows(
    env: EnvBase,
    policy: TensorDictModuleBase,
    shares: Sequence[int],
    should_stop: Callable[[], bool] = lambda: False,
    *,
    max_steps: int = _MOST,
) -> list[Played]:
    """``play`` for any TorchRL environment on its own device: ``shares`` episodes of each row."""
    outcome, rows, cap = Outcome.of(env), env.batch_size.numel(), _Cap(env, max_steps)
    left, episodes = torch.tensor(shares, device=env.device), sum(shares)
    count = len(outcome.rewards)
    total = torch.zeros(count, rows, dtype=torch.float64, device=env.device)
    length = torch.zeros_like(left)
    rewards, seen = [*outcome.rewards], _float_keys(env)
    policy, restart = _acting(policy)
    ended: list[Played] = []
    # Not in inference mode: a shared environment goes on with its tensors in training.
    with torch.no_grad(), set_exploration_type(ExplorationType.DETERMINISTIC):
        data = env.reset()
        for step in count_from(1):
            if len(ended) == episodes:
                break
            _look(step, should_stop)
            _require_finite(env, data, seen, step - 1)
            stepped, data = env.step_and_maybe_reset(_decided(env, policy, data, step))
            after = stepped.get("next")
            _require_finite(env, after, rewards, step)
            total += outcome.rewards_of(after).reshape(count, rows)
            length += 1
            done = after.get(outcome.done).reshape(rows)
            if step >= max_steps and (long := ~done & (left > 0) & (length >= max_steps)).any():
                cap.say()
                data, done = _restarted(env, data, long), done | long
            restart(done.view(env.batch_size))
            counted = done & (left > 0)
            if (junk := junk_of(stepped)) is not None:
                counted &= ~junk.reshape(rows)
            found = (x.tolist() for x in (counted.nonzero(), total.T[counted], length[counted]))
            ended += [
                Played(row, sum(values) / count, size, tuple(values))
                for (row,), values, size in zip(*found, strict=True)
            ]
            left -= counted.to(left)
            total.masked_fill_(done, 0.0)
            length.masked_fill_(done, 0)
    return ended


def shares_of(episodes: int, rows: int) -> list[int]:
    """Episodes of each environment, which are settled before the first is played."""
    return [episodes // rows + (row < episodes % rows) for row in range(rows)]


def _look(step: int, should_stop: Callable[[], bool]) -> None:
    if step % _LOOK == 0 and should_stop():
        raise PlayStopped


class _Cap:
    """Bound on the steps of an episode, with one warning for an evaluation."""

    def __init__(self, env: EnvBase, max_steps: int) -> None:
        self._name, self._max, self._said = _name(env), max_steps, False

    def rows(self, lengths: np.ndarray, active: Iterable[int]) -> set[int]:
        """Environments whose episode is as long as it may be."""
        found = {row for row in active if lengths[row] >= self._max}
        if found:
            self.say()
        return found

    def say(self) -> None:
        if not self._said:
            self._said = True
            logger.warning(
                "an evaluation episode of %s had no end after %d steps, and counts with its return "
                "so far: give the environment a time limit, for example "
                "env_kwargs.max_episode_steps=1000, or set max_eval_steps",
                self._name,
                self._max,
            )


def _acting(
    policy: TensorDictModuleBase,
) -> tuple[TensorDictModuleBase, Callable[[Tensor], None]]:
    """The policy with a state of its own, and what tells it the rows whose episode is over."""
    own = own_state(policy)
    if own is not policy and isinstance(own, RestartsRows):
        return own, own.restart
    return own, lambda rows: None  # What it may carry is that of training.


def _restarted(env: EnvBase, data: Any, rows: Tensor) -> Any:
    """``data`` with new episodes in ``rows``."""
    for key in env.reset_keys:
        above = () if isinstance(key, str) else key[:-1]
        data.set(key, rows.view_as(data.get((*above, "done"))))
    return env.reset(data)


def _decided(env: EnvBase, policy: TensorDictModuleBase, data: Any, step: int) -> Any:
    chosen = policy(data)
    numbers = [key for key in env.action_keys if chosen.get(key).is_floating_point()]
    _require_finite(env, chosen, numbers, step - 1)
    return chosen


def _float_keys(env: EnvBase) -> list[Any]:
    specs = env.full_observation_spec.items(True, True)
    floats = [key for key, spec in specs if spec.dtype is not None and spec.dtype.is_floating_point]
    return [key for key in floats if key not in BOOKKEEPING_KEYS]


def _require_finite(env: EnvBase, data: Any, keys: Sequence[Any], step: int) -> None:
    for key in keys:
        values = data.get(key)
        if not bool(values.isfinite().all()):
            _raise_not_finite(env, key, values.reshape(env.batch_size.numel(), -1).cpu(), step)


def _value_check(env: GymnasiumEnv) -> Callable[[int], None]:
    """A check of the rewards and observations in the arrays of ``env``, after so many steps."""
    arrays = [
        (key, array)
        for key, array in env.next_arrays.items()
        if array.dtype.kind == "f" and key not in BOOKKEEPING_KEYS
    ]

    def check(step: int) -> None:
        for key, array in arrays:
            # One sum in place of a mask; huge values may overflow in it, and are told apart below.
            if not math.isfinite(array.sum()) and not np.isfinite(array).all():
                rows = torch.from_numpy(array.reshape(env.num_envs, -1))
                _raise_not_finite(env, key, rows, step)

    return check


def _raise_not_finite(env: EnvBase, key: Any, rows: Tensor, step: int) -> None:
    row, column = (~rows.isfinite()).nonzero()[0].tolist()
    source = f"sub environment {row} of {_name(env)}"
    raise not_finite(key, rows[row, column].item(), source, f"step {step} of an evaluation")


def not_finite(key: Any, value: float, source: str, moment: str) -> FloatingPointError:
    """The error for a value of an environment or a policy in an episode that nobody learns from."""
    return FloatingPointError(
        f"`{key}` must be finite, got `{value}` from {source} at {moment}; mend the simulator, or "
        "clean the value in a wrapper"
    )


def _name(env: EnvBase) -> str:
    if isinstance(env, GymnasiumEnv):
        return env.env_name
    # TorchRL's own wrapper says nothing of what it holds.
    return _name(env.base_env) if isinstance(env, TransformedEnv) else type(env).__name__


def _chooser(env: GymnasiumEnv, policy: TensorDictModuleBase) -> Callable[[], Tensor]:
    """A function from the present observations to actions."""
    device = next((param.device for param in policy.parameters()), torch.device("cpu"))
    # Views of the arrays that the simulators write.
    seen = {key: torch.from_numpy(env.root_arrays[key]) for key in env.root_arrays}
    direct = direct_call(policy, list(seen))
    if direct is not None and direct.writes[0] == "action":
        inputs = [seen[key] for key in direct.reads]

        def act() -> Tensor:
            result = direct.act(*(value.to(device) for value in inputs))
            return result[0] if isinstance(result, tuple) else result

        return act

    def call() -> Tensor:
        # Copies: a policy may change what it is given.
        copies = {key: value.to(device, copy=True) for key, value in seen.items()}
        return policy(TensorDict(copies, env.batch_size)).get("action")

    return call


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Returns and lengths of whole episodes, and what they say of the mean.

    >>> evaluation = Evaluation(returns=(1.0, 2.0, 3.0), lengths=(5, 5, 5))
    >>> evaluation.return_mean, evaluation.return_std
    (2.0, 1.0)
    """

    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    #: Returns of each group of agents, where there are several.
    groups: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    @property
    def return_mean(self) -> float:
        return sum(self.returns) / len(self.returns)

    @property
    def group_means(self) -> dict[str, float]:
        """Mean return of each group of agents, by ``return_<group>``."""
        return {f"return_{name}": sum(x) / len(x) for name, x in self.groups.items()}

    @property
    def return_std(self) -> float:
        """Standard deviation over episodes; zero for a single one."""
        if len(self.returns) < 2:
            return 0.0
        spread = sum((value - self.return_mean) ** 2 for value in self.returns)
        return math.sqrt(spread / (len(self.returns) - 1))

    @property
    def return_ci95(self) -> float:
        """Half width of the 95 % confidence interval of the mean, by Student's t."""
        count = len(self.returns)
        if count < 2:
            return math.inf
        return student_t95(count - 1) * self.return_std / math.sqrt(count)

    @property
    def length_mean(self) -> float:
        return sum(self.lengths) / len(self.lengths)


class PolicyEvaluator:
    """Play whole episodes with a policy's best actions; every episode counts once.

    How many episodes each of several environments plays is settled beforehand (``play``). TorchRL's
    ``Evaluator`` counts the first to finish, so that short episodes would count too often.

    Args:
        env: an environment with its own seed, or one that is shared with training.
        policy: evaluated in deterministic mode; the object itself, so that its present weights
            count.
        episodes: how many.
        max_steps: steps after which an episode without an end counts as it is.
    """

    def __init__(
        self,
        env: EnvBase,
        policy: TensorDictModuleBase,
        *,
        episodes: int,
        max_steps: int = _MOST,
    ) -> None:
        self._env, self._policy, self._episodes = env, policy, episodes
        self._max_steps = max_steps

    def evaluate(self, should_stop: Callable[[], bool] = lambda: False) -> Evaluation:
        """Play the episodes; the random streams of training are left where they were.

        ``PlayStopped`` ends it where ``should_stop`` says so.
        """
        env, policy, most = self._env, self._policy, self._max_steps
        groups: dict[str, tuple[float, ...]] = {}
        with streams_kept():
            if isinstance(env, GymnasiumEnv):
                ended = play(env, policy, self._episodes, should_stop, max_steps=most)
            else:
                shares = shares_of(self._episodes, env.batch_size.numel())
                played = play_rows(env, policy, shares, should_stop, max_steps=most)
                ended = [(each.value, each.length) for each in played]
                each = zip(*(one.groups for one in played), strict=True)
                groups = dict(zip(Outcome.of(env).groups, each, strict=False))
        returns, lengths = zip(*ended, strict=True)
        # Finite rewards can have a sum that is not.
        for value, length in ended:
            if not math.isfinite(value):
                raise FloatingPointError(
                    f"`return` must be finite, got `{value}` from {_name(env)} in an evaluation "
                    f"episode of {length} steps; make its rewards smaller in a wrapper"
                )
        return Evaluation(returns=returns, lengths=lengths, groups=groups)


def student_t95(freedom: int) -> float:
    """97.5 % quantile of Student's t (Abramowitz and Stegun 1964, 26.7.5); exact for 1 and 2.

    >>> round(student_t95(9), 2), round(student_t95(19), 2)
    (2.26, 2.09)
    """
    exact: Sequence[float] = (12.706, 4.303)
    if freedom <= len(exact):
        return exact[freedom - 1]
    z = 1.959964
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / freedom + second / freedom**2 + third / freedom**3
