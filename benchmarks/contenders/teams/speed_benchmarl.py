"""BenchMARL's training of a team, and its parts."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

import torch

from contenders.case import TeamCase
from contenders.teams.benchmarl import PACKAGES, experiment
from contenders.teams.setting import setting_of_case
from contenders.teams.timed import repeated, timed

__all__ = ["PACKAGES", "make"]

GROUP = "agents"


def make(case: TeamCase) -> Callable[[int], tuple[int, float]]:
    torch.set_num_threads(1)
    run = experiment(setting_of_case(case), case.seed)
    buffer = run.replay_buffers[GROUP]
    if case.kind == "loop":
        # Its loop ends with `close`, and is begun again at each round.
        run.close = lambda: None

        def frames(count: int) -> int:
            before = run.total_frames
            run.config.max_n_frames = before + count
            with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
                run._collection_loop()
            return int(run.total_frames - before)

        return timed(frames)
    batches = iter(run.collector)

    def collect() -> int:
        batch = next(batches)
        kept = batch.exclude(*run._get_excluded_keys(GROUP))
        buffer.extend(run.algorithm.process_batch(GROUP, kept).reshape(-1))
        return int(batch.numel())

    if case.kind == "collect":
        return timed(repeated(collect))
    collect()

    def update() -> int:
        run._optimizer_loop(GROUP)
        return 1

    return timed(repeated(update))
