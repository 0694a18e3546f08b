"""Start of a new run from a stored policy."""

from __future__ import annotations

import logging
from pathlib import Path

import torch
from torch import Tensor

from torchrl_elegant.config.text import UsageError, brief
from torchrl_elegant.modules import ForeignActor, ForeignQNetwork
from torchrl_elegant.runs.exported.policy_file import read_page
from torchrl_elegant.trainers.learner import Learner

logger = logging.getLogger(__name__)


def begin_with(learner: Learner, source: str | Path) -> None:
    """Give a new learner the parameters of the actor in a policy file, or in a run folder.

    Critics, exploration, optimizer and counts stay those of a new run. Scales of observations come
    with the actor, as those of as many frames as the policy was trained for.

    Args:
        learner: before its first update.
        source: a policy file, or a run folder for its ``policy.pt``.
    """
    path = Path(source)
    try:
        path = path / "policy.pt" if path.is_dir() else path
    except OSError as error:  # a name longer than any file's
        raise UsageError(
            f"`start_from` must be a run folder or a policy file, got {brief(source)!r}: "
            f"{error.strerror}; give another start_from=..."
        ) from error
    page = read_page(path)
    _refuse_another_kind(learner, page["builder"], path)
    stored, own = page["state"], dict(learner.policy.named_parameters())
    for name, param in own.items():
        _refuse_another_shape(name, param, stored.get(name), path)
    with torch.no_grad():
        for name, param in own.items():
            param.copy_(stored[name])
    frames = int(page["metadata"].get("frames", 0))
    for add_on in learner.add_ons.values():
        add_on.begin_with(stored, frames)
    _copy_into_targets(learner)
    logger.info("starting from %s, trained for %d frames", path, frames)


def _refuse_another_kind(learner: Learner, stored: str, path: Path) -> None:
    own = type(learner.policy).__name__
    parts = learner.policy.modules()
    foreign = any(isinstance(part, ForeignActor | ForeignQNetwork) for part in parts)
    if foreign or stored == "ProgramActor":
        whose = "the new run" if foreign else f"the policy {str(path)!r}"
        raise UsageError(
            f"`start_from` must be none with networks of one's own, got {str(path)!r}, and {whose} "
            "has such networks; load their parameters into your own module, and pass it in "
            "networks={...}"
        )
    if stored != own:
        raise UsageError(
            f"`start_from` must hold a policy of the kind that the new run trains, {own}, got "
            f"{str(path)!r} with {stored}; set the algorithm and normalize_observation that it was "
            "trained with"
        )


def _refuse_another_shape(name: str, param: Tensor, stored: object, path: Path) -> None:
    shape = tuple(stored.shape) if isinstance(stored, Tensor) else "no entry"
    if shape != tuple(param.shape):
        raise UsageError(
            f"`start_from` must hold a policy of the new run's sizes, got {str(path)!r}, whose "
            f"{name} has {shape} where the new run has {tuple(param.shape)}; set "
            "env, num_cells and the other options of networks that it was trained with"
        )


def _copy_into_targets(learner: Learner) -> None:
    updater = learner.target_updater
    if updater is not None:
        # TorchRL warns of a second time.
        updater.initialized = False
        updater.init_()
