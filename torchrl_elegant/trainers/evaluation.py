"""Evaluation: the deterministic policy on environments of its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torchrl.collectors import Evaluator
from torchrl.envs import EnvBase

from torchrl_elegant.collectors import SyncCollector
from torchrl_elegant.envs import GymnasiumEnv
from torchrl_elegant.trainers.play import play

# Environments that share one call of the policy: more save little, and each costs its memory.
_TOGETHER = 16


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


def evaluation_env(make: Callable[[int], EnvBase], episodes: int) -> EnvBase:
    """Environments to play ``episodes`` in: as many as are stepped together, or one."""
    env = make(1)
    together = min(episodes, _TOGETHER)
    if together == 1 or not isinstance(env, GymnasiumEnv):
        return env
    env.close()
    return make(together)


class PolicyEvaluator:
    """Plays whole episodes with a policy's best actions; every episode counts once.

    Over a ``GymnasiumEnv`` several simulators are stepped together (``play``). Any other
    environment is played by TorchRL's ``Evaluator``, one episode after another: of episodes that
    run side by side the short ones finish first and count too often.

    Args:
        env: an environment with its own seed, used for nothing else; of batch size 1 unless it is
            a ``GymnasiumEnv``.
        policy: evaluated in deterministic mode; the object itself, so that its present weights
            count.
        episodes: how many.
    """

    def __init__(self, env: EnvBase, policy: TensorDictModuleBase, *, episodes: int) -> None:
        self._env, self._policy, self._episodes = env, policy, episodes
        on_gpu = env.device is not None and env.device.type == "cuda"
        self._gpus = [env.device] if on_gpu else []
        self._evaluator: Evaluator | None = None
        if isinstance(env, GymnasiumEnv):
            return
        if env.batch_size.numel() != 1:
            raise ValueError(f"`env` must be a single environment, got {env.batch_size.numel()}")
        self._result: Evaluation | None = None
        self._evaluator = Evaluator(
            env,
            policy,
            num_trajectories=episodes,
            frames_per_batch=1,
            collector_cls=SyncCollector,
            collector_kwargs={"traj_format": "cat", "auto_register_policy_transforms": False},
            metrics_fn=self._take,
        )

    def evaluate(self, should_stop: Callable[[], bool] = lambda: False) -> Evaluation:
        """Play the episodes; the random streams of training are left where they were.

        Over a ``GymnasiumEnv`` ``PlayStopped`` ends it where ``should_stop`` says so.
        """
        with torch.random.fork_rng(devices=self._gpus):
            if isinstance(self._env, GymnasiumEnv):
                ended = play(self._env, self._policy, self._episodes, should_stop)
                returns, lengths = zip(*ended, strict=True)
                return Evaluation(returns=returns, lengths=lengths)
            assert self._evaluator is not None
            self._evaluator.evaluate()
        assert self._result is not None
        return self._result

    def shutdown(self) -> None:
        """Close the environment; may be called twice."""
        if self._evaluator is not None:
            self._evaluator.shutdown()
        elif not self._env.is_closed:
            self._env.close()

    def _take(self, episodes: TensorDictBase) -> dict[str, float]:
        ended = episodes.get("next")[episodes.get(("next", "done")).squeeze(-1)]
        self._result = Evaluation(
            returns=tuple(ended.get("episode_reward").reshape(-1).tolist()),
            lengths=tuple(ended.get("step_count").reshape(-1).tolist()),
        )
        return {}


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
