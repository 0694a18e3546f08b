"""Evaluation: the deterministic policy on environments of its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count as count_from

import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModuleBase
from torch import Tensor
from torchrl._utils import logger as torchrl_logger
from torchrl.envs import EnvBase
from torchrl.envs.utils import ExplorationType, set_exploration_type

from torchrl_elegant.collectors.rollout.policy_calls import direct_call
from torchrl_elegant.envs import EnvKeys, GymnasiumEnv
from torchrl_elegant.trainers.random_streams import streams_kept

# Steps between two checks for a stop, and steps after which a missing end of episodes is logged.
_LOOK, _LONG = 200, 100_000


class PlayStopped(Exception):
    """Episodes were left before their end, because somebody asked to stop."""


def play(
    env: GymnasiumEnv,
    policy: TensorDictModuleBase,
    episodes: int,
    should_stop: Callable[[], bool] = lambda: False,
) -> list[tuple[float, int]]:
    """Return and length of ``episodes`` whole episodes, all with the policy's best action.

    ``should_stop`` is asked now and then; ``PlayStopped`` is raised where it says so.

    How many each environment plays is settled beforehand. Were the first to finish counted, short
    episodes would count too often.

    >>> from torchrl_elegant.envs import make_env
    >>> from torchrl_elegant.modules import build_stochastic_actor
    >>> env = make_env("Pendulum-v1", 2, env_kwargs={"max_episode_steps": 7})
    >>> [length for _, length in play(env, build_stochastic_actor(env), 3)]
    [7, 7, 7]
    """
    left = _shares(episodes, env.num_envs)
    active = [row for row, count in enumerate(left) if count]
    choose = _chooser(env, policy)
    length, total = env.next_arrays["step_count"], env.next_arrays["episode_reward"]
    ended: list[tuple[float, int]] = []
    env.reset_numpy(active)
    with torch.inference_mode(), set_exploration_type(ExplorationType.DETERMINISTIC):
        for step in count_from(1):
            if not active:
                break
            _look(step, ended, should_stop)
            if not env.step_numpy(choose().cpu().numpy(), active):
                continue
            for row in set(env.done_rows()).intersection(active):
                ended.append((float(total.reshape(-1)[row]), int(length.reshape(-1)[row])))
                left[row] -= 1
                if left[row]:
                    env.reset_numpy([row])
            active = [row for row in active if left[row]]
    return ended


def play_batched(
    env: EnvBase,
    policy: TensorDictModuleBase,
    episodes: int,
    should_stop: Callable[[], bool] = lambda: False,
) -> list[tuple[float, int]]:
    """``play`` for any TorchRL environment, single or batched, on its own device."""
    keys, rows = EnvKeys.of(env), env.batch_size.numel()
    left = torch.tensor(_shares(episodes, rows), device=env.device)
    total = torch.zeros(rows, dtype=torch.float64, device=env.device)
    length = torch.zeros_like(left)
    ended: list[tuple[float, int]] = []
    # Not in inference mode: a shared environment goes on with its tensors in training.
    with torch.no_grad(), set_exploration_type(ExplorationType.DETERMINISTIC):
        data = env.reset()
        for step in count_from(1):
            if len(ended) == episodes:
                break
            _look(step, ended, should_stop)
            stepped, data = env.step_and_maybe_reset(policy(data))
            after = stepped.get("next")
            total += after.get(keys.reward).reshape(rows)
            length += 1
            done = after.get(keys.done).reshape(rows)
            counted = done & (left > 0)
            ended += zip(total[counted].tolist(), length[counted].tolist(), strict=True)
            left -= counted.to(left)
            total.masked_fill_(done, 0.0)
            length.masked_fill_(done, 0)
    return ended


def _shares(episodes: int, rows: int) -> list[int]:
    """Episodes of each environment, which are settled before the first is played."""
    return [episodes // rows + (row < episodes % rows) for row in range(rows)]


def _look(step: int, ended: Sequence[object], should_stop: Callable[[], bool]) -> None:
    if step % _LOOK == 0 and should_stop():
        raise PlayStopped
    if step % _LONG == 0 and not ended:
        torchrl_logger.warning(
            "evaluation has not seen an episode end in %d steps: `env` must end its episodes, for "
            "example with env_kwargs.max_episode_steps=1000",
            step,
        )


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

    @property
    def return_mean(self) -> float:
        return sum(self.returns) / len(self.returns)

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
    """

    def __init__(self, env: EnvBase, policy: TensorDictModuleBase, *, episodes: int) -> None:
        self._env, self._policy, self._episodes = env, policy, episodes

    def evaluate(self, should_stop: Callable[[], bool] = lambda: False) -> Evaluation:
        """Play the episodes; the random streams of training are left where they were.

        ``PlayStopped`` ends it where ``should_stop`` says so.
        """
        with streams_kept():
            if isinstance(self._env, GymnasiumEnv):
                ended = play(self._env, self._policy, self._episodes, should_stop)
            else:
                ended = play_batched(self._env, self._policy, self._episodes, should_stop)
        returns, lengths = zip(*ended, strict=True)
        return Evaluation(returns=returns, lengths=lengths)


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
