"""Folder of what was compiled and measured on this machine."""

from __future__ import annotations

import hashlib
import logging
import os
import platform
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

logger = logging.getLogger(__name__)

#: Compiled functions that are kept, and the age below which none is removed.
KEPT, SAFE_SECONDS = 64, 86_400.0
# Folders begin so that a process fills and has not ended with.
_STAGED = ".staged-"
_POSIX = os.name == "posix"


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


class _ForeignError(OSError):
    """A folder whose files somebody else may have written."""


@contextmanager
def folder_of(digest: str) -> Iterator[Path]:
    """Folder for the files of one compiled function, with those that earlier runs have kept.

    It is a copy, and takes the place of what was kept when the block ends without an error: a
    process that is killed in between leaves nothing that others would read. Where the cache takes
    no files, or where others may write to it, nothing is kept.
    """
    # Slow to import, and here already: a compiler asks for the folder.
    from torch._inductor import config

    root = _cache()
    with tempfile.TemporaryDirectory(dir=root, prefix=_STAGED, ignore_cleanup_errors=True) as place:
        folder = Path(place) / "files"
        if root is not None:
            _copy(root / digest, folder)
        folder.mkdir(mode=0o700, exist_ok=True)
        before = _names(folder)
        # Headers that are compiled beforehand lie outside, 150 MB each: half of one, which a kill
        # leaves, ends every later compilation.
        with config.patch(cpp_cache_precompile_headers=False):
            yield folder
        if root is not None:
            with suppress(OSError):  # a full disk; or another process was first, with the same
                if _names(folder) != before:
                    _keep(folder, root / digest)
                _forget_old(root)


def is_kept(digest: str) -> bool:
    """True if an earlier run has left files for this function."""
    folder = cache_folder() / digest
    try:
        for each in (folder.parent.parent, folder.parent, folder):
            _require_own(each)
        return any(folder.iterdir())
    except OSError:
        return False


def forget(digest: str) -> None:
    """Remove what is kept of one function."""
    if is_kept(digest):
        shutil.rmtree(cache_folder() / digest, ignore_errors=True)


def write_cached(path: Path, data: bytes) -> None:
    """Write a file in one step; a cache that takes no files is none."""
    with suppress(OSError):
        _make(path.parent)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=_STAGED) as folder:
            written = Path(folder) / path.name
            written.write_bytes(data)
            os.replace(written, path)


def _cache() -> Path | None:
    """The cache folder, made where it is missing; None where it cannot be used."""
    root = cache_folder()
    try:
        _make(root)
        tempfile.TemporaryDirectory(dir=root, prefix=_STAGED).cleanup()
    except _ForeignError as error:
        _warn(str(error))
        return None
    except OSError as error:
        logger.info("%s takes no files: what is compiled is not kept (%s)", root, error)
        return None
    return root


@cache
def _warn(reason: str) -> None:
    """Tell once in a process why nothing is kept."""
    logger.warning(
        "what is compiled is not kept: %s, and what lies there would be run; make it your own, or "
        "set XDG_CACHE_HOME to a folder that is",
        reason,
    )


def _make(folder: Path) -> None:
    """Make ``folder`` and the one that holds it, for this user alone."""
    folder.parent.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    for each in (folder.parent, folder):
        # A usual mask may let a group write.
        each.mkdir(mode=0o700, exist_ok=True)
        _require_own(each)


def _require_own(folder: Path) -> None:
    """Refuse what belongs to another user, or what others may write to.

    Owner and mode say so on POSIX alone. Elsewhere a user's folder is taken for private.
    """
    if not _POSIX:
        return
    found, user = folder.stat(), os.geteuid()
    if {found.st_uid, folder.lstat().st_uid} != {user}:
        raise _ForeignError(f"{folder} belongs to another user")
    if stat.S_IMODE(found.st_mode) & (stat.S_IWGRP | stat.S_IWOTH):
        raise _ForeignError(f"others may write to {folder}")


def _copy(kept: Path, folder: Path) -> None:
    """Copy what is kept, whole or not at all; another process may exchange it meanwhile."""
    try:
        _require_own(kept)
        shutil.copytree(kept, folder)
        os.utime(kept)
    except OSError:
        shutil.rmtree(folder, ignore_errors=True)


def _keep(folder: Path, kept: Path) -> None:
    """Put ``folder`` in the place of ``kept``."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
    if kept.exists():
        os.rename(kept, folder.with_name("before"))
    os.rename(folder, kept)


def _names(folder: Path) -> set[Path]:
    return {path.relative_to(folder) for path in folder.rglob("*")}


def _forget_old(root: Path) -> None:
    """Remove all but the functions that were used last, and those of the last day.

    What was staged a day ago is that of a process that was killed.
    """
    ages = []
    for folder in root.iterdir():
        with suppress(OSError):  # another process may remove it at the same time
            if folder.is_dir():
                ages.append((folder.stat().st_mtime, folder))
    ages.sort(reverse=True)
    whole = [folder for _, folder in ages if not folder.name.startswith(_STAGED)]
    for used, folder in ages:
        # The newest was used just now.
        if ages[0][0] - used > SAFE_SECONDS and folder not in whole[:KEPT]:
            shutil.rmtree(folder, ignore_errors=True)
