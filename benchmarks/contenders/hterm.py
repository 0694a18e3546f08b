"""torchrl_elegant's PPO and SAC at their defaults, with the Hamiltonian term or without."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from contenders.case import HTermCase
from torchrl_elegant import HTermConfig, PPOConfig, SACConfig, Trial
from torchrl_elegant.cli.training import keep_freed_blocks
from torchrl_elegant.runs.monitor import Averages
from torchrl_elegant.trainers import Ledger, Quantum
from torchrl_elegant.trainers.sources import Source

PACKAGES = ("torchrl_elegant", "torchrl", "tensordict", "torch", "gymnasium")


class Stretch(Quantum):
    """Watcher of a stretch of training: its clock, averages, and when it is over."""

    def __init__(self, ledger: Ledger, **bounds: int) -> None:
        super().__init__(ledger, **bounds)
        self._averages = Averages()

    def note(self, terms: Mapping[str, Tensor]) -> None:
        self._averages.add(terms)

    def after(self, source: Source) -> bool:
        source.train_return()
        return super().after(source)

    def learned(self) -> float:
        """Seconds that were given to learning, draws of batches included."""
        seconds = self.clock.seconds()
        return seconds["learn"] + seconds["sample"]


def make(case: HTermCase) -> Callable[[int], int | tuple[int, float]]:
    torch.set_num_threads(case.threads)
    keep_freed_blocks()  # as a command does
    hterm = HTermConfig() if case.hterm else None
    config = (
        PPOConfig(hterm=hterm)
        if case.algorithm == "ppo"
        else SACConfig(hterm=hterm, buffer_size=100_000)
    )
    trial = Trial(config, case.env, num_envs=case.envs, seed=case.seed, total_frames=2**40)
    learner, ledger = trial.learner, trial.ledger
    observe = learner.observe

    def frames(count: int) -> int:
        before = ledger.frames
        trial.follow(Stretch(ledger, frames=count))
        return ledger.frames - before

    def updates(count: int) -> tuple[int, float]:
        before = ledger.updates
        stretch = Stretch(ledger, updates=count)

        def timed(*args, **options) -> None:
            with stretch.clock.during("learn"):
                observe(*args, **options)

        # To take in new frames is the learner's, whoever calls it.
        learner.observe = timed
        trial.follow(stretch)
        return ledger.updates - before, stretch.learned()

    return frames if case.kind == "loop" else updates
