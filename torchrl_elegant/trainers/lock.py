"""One process at a time in a run folder."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torchrl._utils import logger

from torchrl_elegant.trainers.values import UsageError

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
