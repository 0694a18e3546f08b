"""torchrl_elegant's PPO, built and run as its training does it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from contenders.case import PPOCase
from torchrl_elegant import PPOConfig, Trial
from torchrl_elegant.cli.training import keep_freed_blocks
from torchrl_elegant.runs.monitor import Averages
from torchrl_elegant.trainers import Ledger, Quantum
from torchrl_elegant.trainers.sources import Source

PACKAGES = ("torchrl_elegant", "torchrl", "tensordict", "torch", "gymnasium")


class Round(Quantum):
    """Watcher of a run without evaluation and files: averages, and when to stop."""

    def __init__(self, ledger: Ledger, frames: int) -> None:
        super().__init__(ledger, frames=frames)
        self._averages = Averages()

    def note(self, terms: Mapping[str, Tensor]) -> None:
        self._averages.add(terms)

    def after(self, source: Source) -> bool:
        source.train_return()
        self._averages.take()
        return super().after(source)


def make(case: PPOCase) -> Callable[[int], int]:
    torch.set_num_threads(case.threads)
    keep_freed_blocks()  # as a command does
    run = {"num_envs": case.envs, "frames_per_batch": case.frames, "total_frames": 2**40}
    trial = Trial(config(case), case.env, seed=case.seed, **run)

    def frames(count: int) -> int:
        before = trial.ledger.frames
        trial.follow(Round(trial.ledger, count))
        return trial.ledger.frames - before

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
