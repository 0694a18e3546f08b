"""Checkpoints of a run that survive kills, full disks and torn files."""

from __future__ import annotations

import logging
import math
import os
import re
import shutil
import uuid
from collections.abc import Collection, Mapping, MutableMapping
from pathlib import Path
from typing import Any, NamedTuple

from torchrl.checkpoint import Checkpoint, CheckpointError
from torchrl.data import ReplayBuffer

from torchrl_elegant.runs.buffer_file import BufferAdapter
from torchrl_elegant.runs.files import (
    TorchAdapter,
    find_damage,
    sync_directory,
    sync_tree,
    write_digests,
)

logger = logging.getLogger(__name__)

_NAME = re.compile(r"checkpoint-(\d{12})-(\d{6})")
_LITTER = re.compile(r"\.(saving|removing)-[0-9a-f]{32}")


class _Entry(NamedTuple):
    order: int
    frames: int
    path: Path


class Checkpoints:
    """The checkpoints of one run: TorchRL `Checkpoint` directories, saved so that none is lost.

    A checkpoint is written in a staging directory, flushed to the disk with a digest of every
    file, and renamed into place. At each moment of a save the previous checkpoint is whole.
    Differs from TorchRL's `CheckpointRotation`, which orders by step, renames unflushed files and
    removes a checkpoint of the same step before its successor is there: here the order is that
    of saving, so that a run that goes back to an older checkpoint keeps what it saves next.

    Args:
        directory: where the checkpoints are; made by the first save. One process saves.
        keep_last: newest checkpoints kept. The one with the greatest finite
            `metadata["return_mean"]` is kept besides.
        components: names and live objects: anything with `state_dict` and `load_state_dict`,
            replay buffers, and mutable mappings of plain data.
        optional: names that a checkpoint may lack when it is loaded, such as the buffer.

    >>> import tempfile
    >>> from torch import nn
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     saves = Checkpoints(folder, keep_last=2, components={"net": nn.Linear(2, 1)})
    ...     path = saves.save(100, {"return_mean": 1.5})
    ...     saves.load(saves.latest())["return_mean"]
    1.5
    """

    def __init__(
        self,
        directory: str | Path,
        *,
        keep_last: int,
        components: Mapping[str, Any],
        optional: Collection[str] = (),
    ) -> None:
        if isinstance(keep_last, bool) or not isinstance(keep_last, int) or keep_last < 1:
            raise ValueError(f"`keep_last` must be an integer of 1 or more, got {keep_last!r}")
        if not set(optional) <= set(components):
            raise ValueError(f"`optional` must name components, got {sorted(optional)}")
        self.directory = Path(directory)
        self.keep_last = keep_last
        self.optional = frozenset(optional)
        self._checkpoint = Checkpoint()
        for name, value in components.items():
            self._checkpoint.register(name, value, adapter=_adapter(name, value))

    def save(self, frames: int, metadata: Mapping[str, Any]) -> Path:
        """Save all components after `frames` and prune; CheckpointError where the disk refuses."""
        if isinstance(frames, bool) or not isinstance(frames, int) or frames < 0:
            raise ValueError(f"`frames` must be an integer of 0 or more, got {frames!r}")
        stage = self.directory / f".saving-{uuid.uuid4().hex}"
        try:
            stage.mkdir(parents=True)
            staged = self._checkpoint.save(
                stage / "checkpoint", metadata={**metadata, "frames": frames}
            )
            write_digests(staged)
            sync_tree(staged)
            entries = self._entries()
            order = 1 + (entries[-1].order if entries else 0)
            path = self.directory / f"checkpoint-{frames:012d}-{order:06d}"
            os.replace(staged, path)
            sync_directory(self.directory)
        except OSError as error:
            raise CheckpointError(
                f"no checkpoint was saved at frame {frames} in {self.directory}: "
                f"{error.strerror or error}; the checkpoints before it are untouched"
            ) from error
        finally:
            shutil.rmtree(stage, ignore_errors=True)
        self._prune()
        return path

    def names(self) -> list[str]:
        """Names of all checkpoints in the order of saving, whole or not."""
        return [entry.path.name for entry in self._entries()]

    @property
    def frames(self) -> list[int]:
        """Frames of all checkpoints in the order of saving, whole or not."""
        return [entry.frames for entry in self._entries()]

    def latest(self) -> Path | None:
        """The newest checkpoint that is whole; damaged ones are passed over with a warning."""
        return self._first_whole(reversed(self._entries()))

    def best(self) -> Path | None:
        """The whole checkpoint with the greatest return, if any has one."""
        scored = [entry for entry in self._entries() if _score(entry.path) is not None]
        scored.sort(key=lambda entry: (_score(entry.path), entry.order), reverse=True)
        return self._first_whole(scored)

    def load(
        self, path: str | Path, *, components: Collection[str] | None = None
    ) -> dict[str, Any]:
        """Restore all components, or those named, and return the metadata."""
        damage = find_damage(Path(path))
        if damage:
            raise CheckpointError(f"{path} is damaged: {damage}")
        stored = self.contents(path)
        wanted = set(self._checkpoint.components if components is None else components)
        absent = sorted((wanted & self.optional) - stored)
        if absent:
            logger.warning("%s holds no %s: not restored", path, ", ".join(absent))
        # Read on the CPU: a run trained on a GPU may go on elsewhere, and each component copies
        # into its own tensors wherever these are.
        result = self._checkpoint.load(path, components=wanted - set(absent), map_location="cpu")
        return dict(result.manifest["metadata"])

    @staticmethod
    def contents(path: str | Path) -> frozenset[str]:
        """The names of the components in a checkpoint."""
        return frozenset(Checkpoint.manifest(path)["components"])

    def _entries(self) -> list[_Entry]:
        """Checkpoints in the order of saving."""
        if not self.directory.is_dir():
            return []
        names = [_NAME.fullmatch(path.name) for path in self.directory.iterdir()]
        return sorted(
            _Entry(int(name[2]), int(name[1]), self.directory / name[0]) for name in names if name
        )

    @staticmethod
    def _first_whole(entries: Any) -> Path | None:
        for entry in entries:
            damage = find_damage(entry.path)
            if damage is None:
                return entry.path
            logger.warning("checkpoint %s is damaged and passed over: %s", entry.path, damage)
        return None

    def _prune(self) -> None:
        entries = self._entries()
        kept = {entry.path for entry in entries[-self.keep_last :]}
        scores = {
            entry.path: score for entry in entries if (score := _score(entry.path)) is not None
        }
        if scores:
            # Of equals the last, which has learned longer.
            kept.add(max(reversed(scores), key=scores.__getitem__))
        try:
            for entry in entries:
                if entry.path not in kept:
                    # Renamed first: half a removal must not look like a checkpoint.
                    os.replace(entry.path, self.directory / f".removing-{uuid.uuid4().hex}")
            for path in self.directory.iterdir():
                if _LITTER.fullmatch(path.name):
                    shutil.rmtree(path, ignore_errors=True)
        except OSError as error:
            logger.warning("old checkpoints in %s stay: %s", self.directory, error)


def _adapter(name: str, value: Any) -> Any:
    if isinstance(value, ReplayBuffer):
        BufferAdapter.check(value)
        return BufferAdapter()
    if callable(getattr(value, "state_dict", None)):
        return TorchAdapter()
    if isinstance(value, MutableMapping):
        return None
    raise TypeError(
        f"`components[{name!r}]` must have state_dict and load_state_dict, or be a replay buffer "
        f"or a mutable mapping of plain data, got {type(value).__name__}"
    )


def _score(path: Path) -> float | None:
    try:
        score = Checkpoint.manifest(path)["metadata"].get("return_mean")
    except (OSError, ValueError, CheckpointError, AttributeError):
        return None
    finite = isinstance(score, (int, float)) and math.isfinite(score)
    return float(score) if finite else None
