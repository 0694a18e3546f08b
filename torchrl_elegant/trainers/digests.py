"""Digests of a directory's files, by which a torn or altered one is known."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

__all__ = ["find_damage", "write_digests"]

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
    """What is wrong with a checkpoint, or None."""
    try:
        digests = json.loads((root / _DIGESTS).read_text(encoding="utf-8"))
        if "manifest.json" not in digests:
            return f"{_DIGESTS} does not cover it"
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
