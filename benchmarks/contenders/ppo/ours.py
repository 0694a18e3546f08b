"""torchrl_elegant's PPO, built and run as its training does it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torchrl.envs import ExplorationType

from contenders.case import PPOCase
from torchrl_elegant.algorithms import PPOConfig
from torchrl_elegant.collectors import SyncCollector
from torchrl_elegant.envs import make_env
from torchrl_elegant.runs.monitor import Averages
from torchrl_elegant.runs.on_policy_loop import train_on_policy
from torchrl_elegant.runs.train import keep_freed_blocks
from torchrl_elegant.trainers.clock import Clock
from torchrl_elegant.trainers.rollout_learner import RolloutLearner
from torchrl_elegant.trainers.sources import RolloutSource

PACKAGES = ("torchrl_elegant", "torchrl", "tensordict", "torch", "gymnasium")


class Until:
    """The monitor of a run without evaluation and files: averages, and when to stop."""

    def __init__(self, frames: int) -> None:
        self.frames, self.clock, self._averages = frames, Clock(), Averages()

    def note(self, metrics: Mapping[str, Tensor]) -> None:
        self._averages.add(metrics)

    def after(self, source: RolloutSource) -> bool:
        source.episodes()
        self._averages.take()
        return source.frames < self.frames

    def finish(self, source: RolloutSource) -> None:
        """Nothing to save."""


def make(case: PPOCase) -> Callable[[int], int]:
    torch.set_num_threads(case.threads)
    keep_freed_blocks()  # as `train` does
    torch.manual_seed(case.seed)
    env = make_env(case.env, case.envs, seed=case.seed)
    algorithm = config(case)
    learner = RolloutLearner(algorithm.assemble(env))
    collector = SyncCollector(
        env,
        learner.policy,
        frames_per_batch=case.frames,
        total_frames=-1,
        exploration_type=ExplorationType.RANDOM,
        auto_register_policy_transforms=False,
        track_traj_ids=False,
    )
    source = RolloutSource(collector, learner, total_frames=2**62)

    def frames(count: int) -> int:
        before = source.frames
        train_on_policy(
            source,
            learner,
            Until(before + count),
            epochs=algorithm.epochs,
            batch_size=algorithm.batch_size,
        )
        return source.frames - before

    return frames


def config(case: PPOCase) -> PPOConfig:
    return PPOConfig(
        gamma=case.gamma,
        lmbda=case.lmbda,
        epochs=case.epochs,
        batch_size=case.minibatch,
        lr=case.learning_rate,
        clip_epsilon=case.clip,
        critic_coeff=case.value,
        entropy_coeff=case.entropy,
        max_grad_norm=case.max_grad_norm,
        normalize_advantage=True,
        num_cells=(64, 64),
        activation="tanh",
        compile=case.compiled,
    )
