"""Files that survive kills and full disks: atomic writes, digests, locks."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import io
import json
import logging
import os
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import torch
from torchrl.checkpoint import CheckpointError, StateDictCheckpointAdapter

from torchrl_elegant.config.text import UsageError

logger = logging.getLogger(__name__)


#: Errors of a disk, or of a user's share of it, that takes no more.
FULL = (errno.ENOSPC, errno.EDQUOT)


def write_file(path: str | Path, data: bytes) -> None:
    """Write `data` to `path` so that a reader sees the old content or the new, never a part.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_file(Path(folder) / "note", b"whole")
    ...     (Path(folder) / "note").read_bytes()
    b'whole'
    """
    path = Path(path)
    stage = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        with stage.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(stage, path)
    except OSError as error:
        # A write that fails names no file, and the stage is of no interest.
        error.filename = str(path)
        raise
    finally:
        stage.unlink(missing_ok=True)
    sync_directory(path.parent)


def free_path(path: Path) -> Path:
    """The first of `name-1.csv`, `name-2.csv`, ... beside `path` that is not there yet.

    >>> free_path(Path("/nowhere/metrics.csv")).name
    'metrics-1.csv'
    """
    numbered = (path.with_stem(f"{path.stem}-{number}") for number in count(1))
    return next(other for other in numbered if not other.exists())


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable; a rename alone may be lost by a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(root: Path) -> None:
    """Make every file and directory below `root`, and `root` itself, durable."""
    for directory, _, names in os.walk(root, topdown=False):
        for name in names:
            sync_directory(Path(directory) / name)
        sync_directory(Path(directory))


_DIGESTS = "digests.json"


def write_digests(root: Path) -> None:
    """Store the SHA-256 of every file below `root` beside them.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "manifest.json").write_text("{}")
    ...     write_digests(Path(folder))
    ...     _ = (Path(folder) / "manifest.json").write_text("[]")
    ...     find_damage(Path(folder))
    'manifest.json is not what was written'
    """
    digests = {path.relative_to(root).as_posix(): _digest(path) for path in _files(root)}
    (root / _DIGESTS).write_text(json.dumps(digests, indent=1), encoding="utf-8")


def find_damage(root: Path) -> str | None:
    """Name the damage of a checkpoint; None where it is whole."""
    try:
        digests = json.loads((root / _DIGESTS).read_text(encoding="utf-8"))
        if "manifest.json" not in digests:
            return f"{_DIGESTS} does not cover it"
        if unknown := {path.relative_to(root).as_posix() for path in _files(root)} - set(digests):
            return f"{_DIGESTS} does not cover {min(unknown)}"
        for name, digest in digests.items():
            if _digest(root / name) != digest:
                return f"{name} is not what was written"
    except (OSError, ValueError, TypeError, AttributeError) as error:
        return str(error)
    return None


def _files(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if path.is_file() and path.name != _DIGESTS)


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while part := file.read(1 << 20):
            digest.update(part)
    return digest.hexdigest()


class TorchAdapter(StateDictCheckpointAdapter):
    """TorchRL's `state_dict` component in its torch form, read back with `weights_only`.

    The default form writes memory maps, and on a full disk these end the process with SIGBUS.

    >>> TorchAdapter().payload_format
    'torch'
    """

    def __init__(self) -> None:
        super().__init__("torch")

    def save(
        self, component: Any, path: Path, *, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        path.mkdir(parents=True, exist_ok=True)
        write_torch(path / self.state_torch, component.state_dict(*args, **kwargs))

    def load(self, component: Any, path: Path, **options: Any) -> Any:
        # TorchRL would go on to forms that can hold pickles, and so the code of strangers.
        if not (path / self.state_torch).is_file():
            raise CheckpointError(f"{path} must hold {self.state_torch}, got none")
        return super().load(component, path, **options)


def write_torch(path: Path, state: Any) -> None:
    """`torch.save` whose failure on a full disk is an `OSError`.

    Given a path or an open file, `torch.save` raises a RuntimeError that hides the cause.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_torch(Path(folder) / "state.pt", {"step": 3})
    ...     torch.load(Path(folder) / "state.pt", weights_only=True)
    {'step': 3}
    """
    data = io.BytesIO()
    torch.save(state, data)
    path.write_bytes(data.getbuffer())


# Seconds that the workers of a killed run are given to follow it.
_PATIENCE = 2.0


@contextmanager
def sole_use(path: Path) -> Iterator[None]:
    """Keep other processes out of a run folder; UsageError where one is in it.

    The folder itself is locked, because its files are replaced. The lock goes with the process.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, sole_use(Path(folder)):
    ...     sorted(Path(folder).iterdir())
    []
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        _acquire(descriptor, path)
        yield
    finally:
        os.close(descriptor)


def _acquire(descriptor: int, path: Path) -> None:
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() >= end:
                raise UsageError(
                    f"`folder` must not be in use, got {str(path)!r}, which is in use by another "
                    "process; wait for its end, or stop it by a file named stop in the folder"
                ) from error
            time.sleep(0.1)
        except OSError as error:
            # Some network file systems have no locks for folders.
            return logger.info("%s cannot be locked: %s", path, error)
