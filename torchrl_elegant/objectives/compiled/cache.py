"""Folder of what was compiled and measured on this machine."""

from __future__ import annotations

import hashlib
import logging
import os
import platform
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

logger = logging.getLogger(__name__)

#: Compiled functions that are kept, and the age below which none is removed.
KEPT, SAFE_SECONDS = 64, 86_400.0


def cache_folder() -> Path:
    """``torchrl_elegant/compiled`` in the user's cache folder.

    >>> cache_folder().name
    'compiled'
    """
    home = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not home.is_absolute():  # such a path is to be ignored, as the standard says
        try:
            home = Path.home() / ".cache"
        except RuntimeError:  # nobody's home: a place that takes no files
            home = Path(os.devnull)
    return home / "torchrl_elegant" / "compiled"


def machine() -> str:
    """Name of this machine's processor, and a mark of its instructions.

    Home folders are shared between machines, and what is compiled for one may not run on another.

    >>> machine() == machine()
    True
    """
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    except OSError:
        lines = [f"model name: {platform.processor()}"]
    kept = ("vendor_id", "cpu family", "model\t", "model name")
    names = " ".join(line.split(":")[-1].strip() for line in lines if line.startswith(kept))
    flags = "".join(line for line in lines if line.startswith(("flags", "Features")))
    return f"{platform.machine()} {names} {hashlib.sha256(flags.encode()).hexdigest()[:8]}"


@contextmanager
def folder_of(digest: str) -> Iterator[Path]:
    """Folder of one compiled function, marked as used now; older ones are forgotten.

    Where the cache takes no files, a temporary one.
    """
    folder = cache_folder() / digest
    try:
        # Only its owner may write: what lies in it is run.
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.utime(folder)
        _forget_old(folder.parent)
    except OSError as error:
        logger.info("%s takes no files: what is compiled is not kept (%s)", folder.parent, error)
        with tempfile.TemporaryDirectory() as temporary:
            yield Path(temporary)
    else:
        yield folder


def is_kept(digest: str) -> bool:
    """True if an earlier run has left files for this function."""
    try:
        return any((cache_folder() / digest).iterdir())
    except OSError:
        return False


def forget(digest: str) -> None:
    """Remove what is kept of one function."""
    shutil.rmtree(cache_folder() / digest, ignore_errors=True)


def write_cached(path: Path, data: bytes) -> None:
    """Write a file in one step; a cache that takes no files is none."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            written = Path(folder) / path.name
            written.write_bytes(data)
            os.replace(written, path)


def _forget_old(root: Path) -> None:
    """Remove all but the functions that were used last, and those of the last day."""
    ages = []
    for folder in root.iterdir():
        with suppress(OSError):  # another process may remove it at the same time
            if folder.is_dir():
                ages.append((folder.stat().st_mtime, folder))
    ages.sort(reverse=True)
    # The newest was used just now.
    for used, folder in ages[KEPT:]:
        if ages[0][0] - used > SAFE_SECONDS:
            shutil.rmtree(folder, ignore_errors=True)
