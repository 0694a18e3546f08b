"""Evaluation: the deterministic policy on environments of its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count as count_from

import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor
from torchrl._utils import logger as torchrl_logger
from torchrl.collectors import Evaluator
from torchrl.envs import EnvBase
from torchrl.envs.utils import ExplorationType, set_exploration_type

from torchrl_elegant.collectors import SyncCollector
from torchrl_elegant.envs import GymnasiumEnv

# Steps between two looks at whether to stop, and those after which an episode without an end is
# told of.
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
    count = env.num_envs
    left = [episodes // count + (row < episodes % count) for row in range(count)]
    active = [row for row in range(count) if left[row]]
    choose = _chooser(env, policy)
    length, total = env.next_arrays["step_count"], env.next_arrays["episode_reward"]
    ended: list[tuple[float, int]] = []
    env.reset_numpy(active)
    with torch.inference_mode(), set_exploration_type(ExplorationType.DETERMINISTIC):
        for step in count_from(1):
            if not active:
                break
            if step % _LOOK == 0 and should_stop():
                raise PlayStopped
            if step % _LONG == 0 and not ended:
                torchrl_logger.warning(
                    "evaluation has not seen an episode end in %d steps: `env` must end its "
                    "episodes, for example with env_kwargs.max_episode_steps=1000",
                    step,
                )
            if not env.step_numpy(choose().cpu().numpy(), active):
                continue
            for row in set(env.done_rows()).intersection(active):
                ended.append((float(total.reshape(-1)[row]), int(length.reshape(-1)[row])))
                left[row] -= 1
                if left[row]:
                    env.reset_numpy([row])
            active = [row for row in active if left[row]]
    return ended


def _chooser(env: GymnasiumEnv, policy: TensorDictModuleBase) -> Callable[[], Tensor]:
    """A function from the present observations to actions."""
    device = next((param.device for param in policy.parameters()), torch.device("cpu"))
    # Views of the arrays that the simulators write.
    seen = {key: torch.from_numpy(env.root_arrays[key]) for key in env.root_arrays}
    if hasattr(policy, "act") and policy.out_keys[0] == "action":
        inputs = [seen[key] for key in policy.in_keys]

        def act() -> Tensor:
            result = policy.act(*(value.to(device) for value in inputs))
            return result[0] if isinstance(result, tuple) else result

        return act

    def call() -> Tensor:
        # Copies: a policy may change what it is given.
        copies = {key: value.to(device, copy=True) for key, value in seen.items()}
        return policy(TensorDict(copies, env.batch_size)).get("action")

    return call


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
