"""Winner of a tournament, and the ensemble of its lineages, as run folders."""

from __future__ import annotations

import logging
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tensordict.nn import TensorDictModuleBase

from torchrl_elegant.runs.config_file import to_yaml
from torchrl_elegant.runs.exported.ensemble import EnsembleActor
from torchrl_elegant.runs.files import sync_directory, sync_tree
from torchrl_elegant.runs.folder import RunFolder
from torchrl_elegant.runs.policy import describe, save_policy
from torchrl_elegant.tournament.leaderboard import Leaderboard, Pod
from torchrl_elegant.tournament.space import configured
from torchrl_elegant.tournament.training import Training

logger = logging.getLogger(__name__)

_COLUMNS = ("frames", "updates", "return_mean")


def crown(path: Path, board: Leaderboard, work: Training) -> None:
    """Write the run folders ``best`` and ``ensemble``, unless they are there.

    The best is whoever did best in the final evaluation. The ensemble has the best pod of each
    lineage that is left among the finalists; where one lineage has taken over all, there is none.
    """
    for name in ("best", "ensemble"):
        # A kill may have come before one was whole.
        for left in path.glob(f".{name}-*"):
            shutil.rmtree(left)
    finals = board.pods("operation = 'final' AND state = 'done'")
    if not finals:
        return
    finals.sort(key=lambda one: (-float(one.score or 0.0), one.id))
    finalists = [board.pod(final.parents[0]) for final in finals]
    winner, score = finalists[0], finals[0].score
    # What it was selected by is better than what it can do.
    ancestry = [replace(winner, score=score), *list(_ancestry(board, winner))[1:]]
    if not (path / "best").exists():
        actor, about = _actor(work, winner)
        facts = {**about, "frames": winner.frames, "return_mean": score, "pod": winner.id}
        _write(path / "best", work, ancestry, actor, facts)
        told = (winner.id, winner.algorithm, score, finals[0].episodes, path / "best")
        logger.info("winner: pod %d (%s), return %.2f over %d new episodes; %s", *told)
    first = {pod.lineage: pod for pod in reversed(finalists)}
    members = [pod for pod in finalists if first[pod.lineage] is pod]
    if len(members) > 1 and not (path / "ensemble").exists():
        actors = [_actor(work, pod) for pod in members]
        about = actors[0][1]
        if not all(EnsembleActor.takes(actor) for actor, _ in actors):
            logger.info("no ensemble: policies of teams, and those with a memory, make none")
            return
        described = [describe(actor, about) for actor, _ in actors]
        ensemble = EnsembleActor(described, form=about["discrete_actions"] or "continuous")
        facts = {**about, "frames": max(pod.frames or 0 for pod in members)}
        _write(path / "ensemble", work, ancestry, ensemble, facts)
        logger.info("ensemble of %d lineages: %s", len(members), path / "ensemble")


def _actor(work: Training, pod: Pod) -> tuple[TensorDictModuleBase, dict[str, Any]]:
    """Policy of a pod, and what its file has to tell of the environment."""
    with work.trial(pod) as trial:
        return trial.learner.policy, trial.about()


def _write(
    path: Path,
    work: Training,
    ancestry: Sequence[Pod],
    actor: TensorDictModuleBase,
    facts: Mapping[str, Any],
) -> None:
    """Make a run folder in one step; ``ancestry`` begins with the pod whose options it names."""
    pod = ancestry[0]
    config = configured(work.configs[pod.entry], pod.options)
    stage = path.with_name(f".{path.name}-{uuid.uuid4().hex}")
    text = to_yaml(config.name, work.run, config)
    folder = RunFolder.create(stage, config=text, columns=_COLUMNS)
    # An average stands at the frames of its parts, and in the place of the first.
    for one in {one.frames: one for one in reversed(ancestry)}.values():
        row = {"frames": one.frames, "updates": one.updates, "return_mean": one.score}
        folder.metrics.append(row)
    save_policy(folder.policy_path, actor, facts)
    sync_tree(stage)
    os.replace(stage, path)
    sync_directory(path.parent)


def _ancestry(board: Leaderboard, pod: Pod) -> Iterator[Pod]:
    yield pod
    while pod.parents:
        pod = board.pod(pod.parents[0])
        yield pod
