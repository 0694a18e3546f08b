"""torchrl_elegant's PPO and SAC at their defaults, with the Hamiltonian term or without."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from contenders.case import HTermCase
from torchrl_elegant.algorithms import HTermConfig, PPOConfig, SACConfig
from torchrl_elegant.collectors import SyncCollector
from torchrl_elegant.data import make_buffer
from torchrl_elegant.envs import make_env
from torchrl_elegant.runs.monitor import Averages
from torchrl_elegant.runs.off_policy_loop import train_off_policy
from torchrl_elegant.runs.on_policy_loop import train_on_policy
from torchrl_elegant.runs.train import keep_freed_blocks
from torchrl_elegant.trainers.clock import Clock
from torchrl_elegant.trainers.learner import Learner
from torchrl_elegant.trainers.rollout_learner import RolloutLearner
from torchrl_elegant.trainers.sources import RolloutSource, Source, SyncSource

PACKAGES = ("torchrl_elegant", "torchrl", "tensordict", "torch", "gymnasium")
_FOR_EVER = 2**62


class Stretch:
    """The monitor of a stretch of training: its clock, averages, and when it is over."""

    def __init__(self, is_over: Callable[[], bool]) -> None:
        self.is_over, self.clock, self._averages = is_over, Clock(), Averages()

    def note(self, metrics: Mapping[str, Tensor]) -> None:
        self._averages.add(metrics)

    def after(self, source: Source | RolloutSource) -> bool:
        source.episodes()
        return not self.is_over()

    def finish(self, source: Source | RolloutSource) -> None:
        """Nothing to save."""

    def learnt(self) -> float:
        """Seconds that were given to learning, draws of batches included."""
        seconds = self.clock.seconds()
        return seconds["learn"] + seconds["sample"]


def make(case: HTermCase) -> Callable[[int], int | tuple[int, float]]:
    torch.set_num_threads(case.threads)
    keep_freed_blocks()  # as `train` does
    torch.manual_seed(case.seed)
    source, learner, loop = {"ppo": ppo, "sac": sac}[case.algorithm](case)
    observe = learner.observe

    def frames(count: int) -> int:
        before = source.frames
        loop(Stretch(lambda: source.frames >= before + count))
        return source.frames - before

    def updates(count: int) -> tuple[int, float]:
        before = learner.updates
        stretch = Stretch(lambda: learner.updates >= before + count)

        def timed(*args, **options) -> None:
            with stretch.clock.during("learn"):
                observe(*args, **options)

        # To take in new frames is the learner's, whoever calls it.
        learner.observe = timed
        loop(stretch)
        return learner.updates - before, stretch.learnt()

    return frames if case.kind == "loop" else updates


def ppo(case: HTermCase) -> tuple[RolloutSource, Learner, Callable[[Stretch], None]]:
    config = PPOConfig(hterm=HTermConfig() if case.hterm else None)
    env = make_env(case.env, case.envs, seed=case.seed)
    learner = RolloutLearner(config.assemble(env))
    frames = config.frames_per_batch(total_frames=_FOR_EVER, num_envs=case.envs)
    collector = collect(env, learner, frames)
    source = RolloutSource(collector, learner, total_frames=_FOR_EVER)
    settings = {"epochs": config.epochs, "batch_size": config.batch_size}
    return source, learner, lambda stretch: train_on_policy(source, learner, stretch, **settings)


def sac(case: HTermCase) -> tuple[SyncSource, Learner, Callable[[Stretch], None]]:
    config = SACConfig(hterm=HTermConfig() if case.hterm else None, buffer_size=100_000)
    env = make_env(case.env, case.envs, seed=case.seed)
    learner, buffer = Learner(config.assemble(env)), make_buffer(size=config.buffer_size)
    frames = config.frames_per_batch(total_frames=1 << 20, num_envs=case.envs)
    source = SyncSource(
        collect(env, learner, frames),
        buffer,
        learner,
        keys=list(learner.loss.in_keys),
        total_frames=_FOR_EVER,
        updates_per_frame=config.updates_per_frame,
        free_frames=config.warmup,
    )
    size = config.batch_size
    return (
        source,
        learner,
        lambda stretch: train_off_policy(source, buffer, learner, stretch, batch_size=size),
    )


def collect(env, learner: Learner, frames: int) -> SyncCollector:
    return SyncCollector(
        env,
        learner.policy,
        frames_per_batch=frames,
        total_frames=-1,
        auto_register_policy_transforms=False,
        track_traj_ids=False,
    )
