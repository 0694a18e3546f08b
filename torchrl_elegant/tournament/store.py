"""Store of checkpoints: files that are named by the digest of their content."""

from __future__ import annotations

import hashlib
import os
import re
import uuid
from collections.abc import Collection, Iterator
from pathlib import Path

from torchrl_elegant.runs.files import write_file

_NAME = re.compile(r"[0-9a-f]{64}")
_STAGED = re.compile(r"\.[0-9a-f]{64}\.[0-9a-f]{32}\.tmp")
_TRASH = re.compile(r"\.trash-[0-9a-f]{32}")


class DamagedError(Exception):
    """A checkpoint is not what was published, or is not there; ``digest`` names it."""

    def __init__(self, digest: str, reason: str) -> None:
        super().__init__(f"checkpoint {digest[:12]} {reason}")
        self.digest = digest


class Store:
    """Checkpoints of a tournament, which pods publish and read, and the orchestrator removes.

    A file appears under its digest once it is whole and on the disk, is never written to again, and
    is checked whenever it is read. Any number of processes may publish at a time. Contents must
    differ, as they do if they name the pod and its attempt: nobody then removes the file that
    another is about to publish.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = Store(Path(folder))
    ...     store.get(store.put(b"weights"))
    b'weights'
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._trash: list[Path] = []

    def put(self, data: bytes) -> str:
        """Publish a checkpoint; returns its digest."""
        digest = hashlib.sha256(data).hexdigest()
        write_file(self.path / digest, data)
        return digest

    def get(self, digest: str) -> bytes:
        """Content of a checkpoint; ``DamagedError`` unless it is what was published."""
        try:
            data = (self.path / digest).read_bytes()
        except FileNotFoundError as error:
            raise DamagedError(digest, "is missing") from error
        if hashlib.sha256(data).hexdigest() != digest:
            raise DamagedError(digest, "is not what was published")
        return data

    def has(self, digest: str) -> bool:
        """True if there is a file of this name, whole or not."""
        return os.path.isfile(f"{self.path}/{digest}")

    def remove(self, digests: Collection[str]) -> None:
        """Take checkpoints out of sight; the next call deletes them.

        Those that are gone do not matter.
        """
        for path in self._trash:
            path.unlink(missing_ok=True)
        self._trash = []
        for digest in digests:
            trash = self.path / f".trash-{uuid.uuid4().hex}"
            try:
                os.replace(self.path / digest, trash)
            except FileNotFoundError:
                continue
            self._trash.append(trash)

    def sweep(self, known: Collection[str]) -> None:
        """Remove what a killed process has left: only while nobody publishes."""
        for path in (*self._named(_STAGED), *self._named(_TRASH)):
            path.unlink(missing_ok=True)
        self.remove([path.name for path in self._named(_NAME) if path.name not in known])
        self.remove(())

    def _named(self, pattern: re.Pattern[str]) -> Iterator[Path]:
        yield from (self.path / name for name in os.listdir(self.path) if pattern.fullmatch(name))
