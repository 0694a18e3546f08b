"""torchrl_elegant's training of a team, and its parts."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import torch

from contenders.case import TeamCase
from contenders.ppo.ours import Round
from contenders.teams.ours import PACKAGES, trial
from contenders.teams.setting import setting_of_case
from contenders.teams.timed import repeated, timed
from torchrl_elegant.cli.training import keep_freed_blocks
from torchrl_elegant.trainers.off_policy import draw

__all__ = ["PACKAGES", "make"]


def make(case: TeamCase) -> Callable[[int], tuple[int, float]]:
    torch.set_num_threads(1)
    keep_freed_blocks()  # as a command does
    setting = setting_of_case(case)
    run = trial(setting, case.seed, compiled=case.compiled)
    if case.kind == "loop":

        def frames(count: int) -> int:
            before = run.ledger.frames
            run.follow(Round(run.ledger, count))
            return run.ledger.frames - before

        return timed(frames)
    frames_of = iter(run.source)

    def collect() -> int:
        before = run.ledger.frames
        next(frames_of)
        return run.ledger.frames - before

    if case.kind == "collect":
        return timed(repeated(collect))
    collect()
    assert run.store is not None

    def updates() -> int:
        for rows in draw(run.store, setting.minibatch, setting.updates):
            deque(run.learner.learn(rows, setting.minibatch), maxlen=0)
        return setting.updates

    return timed(repeated(updates))
