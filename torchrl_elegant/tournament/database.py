"""Database of a tournament: opened, checked, and its troubles told in one line."""

from __future__ import annotations

import errno
import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torchrl_elegant.config.text import UsageError, brief

VERSION = 1


def open_database(path: Path, *, read_only: bool) -> sqlite3.Connection:
    """A connection to a leaderboard that is whole, and of a version that is known."""
    mode = "ro" if read_only else "rw"
    with told(path):
        database = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode={mode}", uri=True, isolation_level=None
        )
    database.row_factory = sqlite3.Row
    try:
        with told(path):
            _check(database, path)
            if not read_only:
                database.execute("PRAGMA journal_mode = WAL")
                database.execute("PRAGMA synchronous = FULL")
    except BaseException:
        database.close()
        raise
    return database


def _check(database: sqlite3.Connection, path: Path) -> None:
    found = database.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        raise sqlite3.DatabaseError(found)
    row = database.execute("SELECT value FROM meta WHERE name = 'version'").fetchone()
    version = None if row is None else json.loads(row[0])
    if version is None or version > VERSION:
        by = "another program" if version is None else f"version {version} of its format"
        raise UsageError(
            f"`folder` must hold a leaderboard of version {VERSION} or older, got "
            f"{str(path)!r}, written by {by}; go on with the release that wrote it"
        )


@contextmanager
def told(path: Path) -> Iterator[None]:
    """Tell a full disk, and a damaged database, in one line."""
    try:
        yield
    except sqlite3.Error as error:
        text = str(error)
        if "is full" in text:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path)) from error
        if "disk I/O" in text:
            raise OSError(errno.EIO, text, str(path)) from error
        if "unable to open" in text:
            raise UsageError(
                f"`folder` must be that of a tournament, got {str(path.parent)!r}, whose "
                f"{path.name} cannot be opened; begin a new one with folder=..."
            ) from error
        if "locked" in text or "readonly" in text:
            raise UsageError(
                f"`folder` must have a leaderboard that can be written, got {str(path)!r}, and "
                f"{text}; make it writable, end the program that holds it, and go on with "
                f"resume={path.parent}"
            ) from error
        # Python's sqlite3 raises the base class itself for what is no whole database.
        if type(error) is not sqlite3.DatabaseError and "no such" not in text:
            raise
        reason = brief(" ".join(text.split()))
        raise UsageError(
            f"`folder` must hold a whole leaderboard, got {str(path)!r}, which is damaged "
            f"({reason}); nothing was changed: put back a copy, or begin a new tournament"
        ) from error
