"""Stored state of a run: its folder and checkpoints, new or found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torchrl._utils import logger
from torchrl._utils import logger as torchrl_logger
from torchrl.checkpoint import GlobalRNGState
from torchrl.data import ReplayBuffer

from torchrl_elegant.algorithms import ALGORITHMS, AlgorithmConfig, OffPolicyConfig
from torchrl_elegant.config.text import UsageError
from torchrl_elegant.data.multi_step import AHEAD, STEPS
from torchrl_elegant.runs.checkpoints import Checkpoints
from torchrl_elegant.runs.config_file import from_yaml, to_yaml
from torchrl_elegant.runs.files import sole_use
from torchrl_elegant.runs.folder import RunFolder, run_path
from torchrl_elegant.runs.monitor import Progress
from torchrl_elegant.runs.plan import Counters, seed_learner
from torchrl_elegant.runs.reporter import COLUMNS
from torchrl_elegant.trainers.learner import Learner
from torchrl_elegant.trainers.ranks import Ranks
from torchrl_elegant.trainers.run_config import RunConfig

# Hyper-parameters that losses keep as buffers, and so write into every checkpoint.
_DECIDED = frozenset(
    {
        *("_target_entropy", "target_entropy", "target_entropy_buffer"),
        *("alpha_init", "min_log_alpha", "max_log_alpha"),
        *("clip_epsilon", "clip_value", "critic_coeff", "entropy_coeff"),
    }
)
_ESTIMATOR = "_value_estimator."


class Settings:
    """Learning rates, discount and entropy settings of a learner, to be set again after a load.

    What is learnt stays with the checkpoint: a learnt temperature is a parameter, a fixed one is a
    setting.

    >>> from torchrl_elegant.algorithms import SACConfig
    >>> from torchrl_elegant.envs import make_env
    >>> env = make_env("Pendulum-v1")
    >>> old, new = (Learner(SACConfig(actor_lr=lr).build(env)) for lr in (0.1, 0.2))
    >>> settings = Settings(new)
    >>> new.load_state_dict(old.state_dict())
    >>> settings.restore()
    >>> new.optimizer.param_groups[0]["lr"]
    0.2
    """

    def __init__(self, learner: Learner) -> None:
        self._learner = learner
        self._groups: list[dict[str, Any]] = [
            {name: value for name, value in group.items() if name != "params"}
            for group in learner.optimizer.param_groups
        ]
        self._buffers = {name: value.clone() for name, value in self._decided().items()}

    def restore(self) -> None:
        """Set everything that is configured to what it was when this was made."""
        for group, settings in zip(self._learner.optimizer.param_groups, self._groups, strict=True):
            group.update(settings)
        found = self._decided()
        for name, value in self._buffers.items():
            found[name].copy_(value)

    def _decided(self) -> dict[str, Tensor]:
        loss = self._learner.loss
        # The state holds buffers that are made when they are first asked for.
        state = loss.state_dict(keep_vars=True)
        fixed = {"log_alpha"} - dict(loss.named_parameters()).keys()
        return {
            name: value
            for name, value in state.items()
            if name in _DECIDED or name in fixed or _is_estimators(name, value)
        }


def _is_estimators(name: str, value: Tensor) -> bool:
    # V-trace holds the actor too, and that is learnt.
    return name.startswith(_ESTIMATOR) and not isinstance(value, Parameter)


class RandomState(GlobalRNGState):
    """TorchRL's ``GlobalRNGState`` that can be read where the GPUs are other ones.

    TorchRL raises there. Here the streams of the GPUs are left as they are seeded, with a warning.

    >>> sorted(RandomState().state_dict())[:2]
    ['numpy', 'python']
    """

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        state = dict(state_dict)
        present = {
            "torch_cuda": torch.cuda.device_count() if torch.cuda.is_available() else 0,
            "torch_xpu": torch.xpu.device_count() if torch.xpu.is_available() else 0,
            "torch_mps": int(torch.backends.mps.is_available()),
        }
        for name, count in present.items():
            if name not in state:
                continue
            stored = 1 if isinstance(state[name], torch.Tensor) else len(state[name])
            if stored != count:
                del state[name]
                logger.warning(
                    "the random streams of %d devices (%s) are not restored: %d are here",
                    stored,
                    name,
                    count,
                )
        super().load_state_dict(state)


# Batches that a buffer must hold again before a run that did not store it learns on.
_REFILL_BATCHES = 20


@dataclass(kw_only=True)
class RunState:
    """What ``open_run`` gives."""

    folder: RunFolder
    checkpoints: Checkpoints
    progress: Progress
    counters: Counters


@contextmanager
def open_run(
    run: RunConfig,
    config: AlgorithmConfig,
    learner: Learner,
    buffer: ReplayBuffer | None,
    *,
    ranks: Ranks,
    folder: Path | None,
) -> Iterator[RunState]:
    """Make a new run's folder, or load the last whole checkpoint of the one in ``folder``.

    With several ranks the first alone writes. Each fills its own replay buffer anew when the run
    goes on, because a checkpoint could hold but the first rank's. No other process can open the
    folder before this is left.
    """
    text = to_yaml(config.name, run, config)
    if folder is None:
        columns = list(dict.fromkeys((*COLUMNS, *learner.metric_names)))
        opened = _create(run_path(run, config.name), text, columns, ranks)
    else:
        opened = RunFolder.open(folder)
    with sole_use(opened.path) if ranks.is_first else nullcontext():
        progress = Progress()
        checkpoints = _checkpoints(opened, run, learner, progress, buffer, ranks)
        state = RunState(
            folder=opened, checkpoints=checkpoints, progress=progress, counters=Counters()
        )
        if folder is not None:
            _load(state, run, config, learner, buffer, ranks)
            if ranks.is_first:
                opened.resume(progress.frames, learner.metric_names)
                opened.write_config(text)
        yield state


def _create(path: Path, text: str, columns: list[str], ranks: Ranks) -> RunFolder:
    if ranks.is_first:
        RunFolder.create(path, config=text, columns=columns)
    # Its name holds the time, and only the first rank knows when the folder is there.
    return RunFolder.open(ranks.same(path))


def _checkpoints(
    opened: RunFolder,
    run: RunConfig,
    learner: Learner,
    progress: Progress,
    buffer: ReplayBuffer | None,
    ranks: Ranks,
) -> Checkpoints:
    components = {"learner": learner, "progress": progress, "random": RandomState()}
    stored = run.save_buffer and buffer is not None
    if stored and ranks.count == 1:
        components["buffer"] = buffer
    elif stored and ranks.is_first:
        torchrl_logger.info(
            "the replay buffers of %d ranks are not stored: a run that goes on fills them anew",
            ranks.count,
        )
    return Checkpoints(
        opened.checkpoints_path,
        keep_last=run.keep_last,
        components=components,
        optional={"buffer"} & set(components),
    )


def _load(
    state: RunState,
    run: RunConfig,
    config: AlgorithmConfig,
    learner: Learner,
    buffer: ReplayBuffer | None,
    ranks: Ranks,
) -> None:
    path = state.checkpoints.latest()
    if path is None:
        torchrl_logger.info("%s has no checkpoint yet: starting over", state.folder.path)
        return
    _refuse_changed(state.folder, config, config.beginnings)
    settings = Settings(learner)
    try:
        parts = None if ranks.is_first else ("learner", "progress")
        state.checkpoints.load(path, components=parts)
    except (RuntimeError, ValueError) as error:
        _refuse_changed(state.folder, config, [item.name for item in fields(config)])
        reason = str(error).splitlines()[-1].strip()
        raise UsageError(
            f"the configuration must fit what {path} holds, got {reason}; networks and buffer "
            "cannot change their sizes when a run goes on"
        ) from error
    settings.restore()
    if isinstance(config, OffPolicyConfig) and buffer is not None and len(buffer):
        _check_rows(config, buffer)
    frames = state.progress.frames
    if frames >= run.total_frames:
        raise UsageError(
            f"`total_frames` must exceed the {frames} frames that the run in "
            f"{state.folder.path} already has, got {run.total_frames}; set total_frames higher"
        )
    if not ranks.is_first:
        # The first rank has its random streams back; the others must not draw theirs again.
        seed_learner(run, ranks.rank, frames)
        if learner.hterm is not None:
            learner.hterm.store.reseed(torch.initial_seed())
    state.counters.frames, state.counters.updates = frames, learner.updates
    state.counters.debt = state.progress.debt
    if isinstance(config, OffPolicyConfig) and buffer is not None and not len(buffer):
        state.counters.refill = _refill(run, config, frames)
    torchrl_logger.info("going on from frame %d (%s)", frames, path.name)


def _refill(run: RunConfig, config: OffPolicyConfig, frames: int) -> int:
    """Frames that fill a buffer anew which was not stored, before anything is learnt."""
    refill = min(frames, max(config.warmup, _REFILL_BATCHES * config.batch_size))
    if (run.total_frames - frames - refill) * config.updates_per_frame < 1:
        raise UsageError(
            f"`total_frames` must leave frames to learn from after the {refill} that fill the "
            f"buffer anew, which was not stored, got {run.total_frames} with {frames} done; "
            "set total_frames higher"
        )
    return refill


def _refuse_changed(folder: RunFolder, config: AlgorithmConfig, names: Iterable[str]) -> None:
    """Name what of ``names`` was changed in a configuration that is to go on."""
    _, _, before = from_yaml(folder.read_config(), algorithms=ALGORITHMS)
    changed = [name for name in names if getattr(before, name, None) != getattr(config, name)]
    if changed:
        was = ", ".join(f"{name}={getattr(before, name, None)}" for name in changed)
        now = ", ".join(f"{name}={getattr(config, name)}" for name in changed)
        raise UsageError(
            f"`{'`, `'.join(changed)}` must stay as what is stored needs it ({was}) when a run "
            f"goes on, got {now}; start a new run instead"
        )


def _check_rows(config: OffPolicyConfig, buffer: ReplayBuffer) -> None:
    stored = buffer[:1].keys()
    # The fit first: it makes longer rows too.
    for name, key, wanted in (
        ("return_fit", AHEAD, config.return_fit > 0),
        ("n_steps", STEPS, config.span > 1),
    ):
        if (key in stored) != wanted:
            form = "have" if key in stored else "have no"
            raise UsageError(
                f"`{name}` must suit the stored rows, which {form} entry {key!r}, got "
                f"{getattr(config, name)}; start a new run instead"
            )
