"""What becomes of a run while nothing can be written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torchrl._utils import logger

from torchrl_elegant.trainers.checkpoint import CheckpointError


@contextmanager
def despite_full_disk() -> Iterator[None]:
    """A full disk must not cost what has been learnt: the run goes on beside its last good
    checkpoint, and writes again when the next one is due."""
    try:
        yield
    except (CheckpointError, OSError) as error:
        logger.warning("%s; training goes on", error)
