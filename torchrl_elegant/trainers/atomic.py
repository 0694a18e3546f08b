"""Files that are either wholly there or not there at all, whenever the process dies."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

__all__ = ["sync_directory", "sync_tree", "write_file"]


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
    finally:
        stage.unlink(missing_ok=True)
    sync_directory(path.parent)


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
