"""Policy file: one page of plain data under a digest, read whole or refused."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from torchrl_elegant.config.text import UsageError
from torchrl_elegant.runs.files import write_file

_FORMAT = "torchrl_elegant.policy"
_VERSION = 1
# Entries that `read_page` promises, and their types.
_ENTRIES = {"builder": str, "spec": dict, "state": dict, "metadata": dict}
# The digest follows the torch data: `torch.load` passes over what comes after an archive.
_MARK, _HEX = b"\nsha256:", 64


class PolicyFileError(UsageError):
    """A file that is no policy, or not one that this program can read."""


def write_page(path: str | Path, page: Mapping[str, Any]) -> None:
    """Write the entries of a policy, and a digest of the whole file, in one step.

    >>> import tempfile
    >>> page = {"builder": "Mine", "spec": {}, "state": {}, "metadata": {"frames": 10}}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_page(f"{folder}/policy.pt", page)
    ...     read_page(f"{folder}/policy.pt")["metadata"]
    {'frames': 10}
    """
    file = io.BytesIO()
    torch.save({"format": _FORMAT, "version": _VERSION, **page}, file)
    data = file.getvalue()
    write_file(path, data + _MARK + hashlib.sha256(data).hexdigest().encode())


def read_page(path: str | Path) -> dict[str, Any]:
    """The entries of a policy file; PolicyFileError names a file that is not as it was written.

    The digest finds damage, not forgery. So nothing but plain data and tensors is ever read.
    """
    name = repr(str(path))
    data = _undamaged(Path(path))
    try:
        page = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except Exception as error:
        # torch tells on many lines how to trust the file after all.
        reason = str(error).strip().splitlines()[0]
        raise PolicyFileError(f"{name} is not a readable policy file: {reason}") from error
    if not isinstance(page, dict) or page.get("format") != _FORMAT:
        raise PolicyFileError(f"{name} is a torch file, but not a policy file")
    if (found := page.get("version")) != _VERSION:
        raise PolicyFileError(f"{name} must have the format version {_VERSION}, got {found}")
    for entry, kind in _ENTRIES.items():
        if not isinstance(page.get(entry), kind):
            found = f"a {type(page[entry]).__name__}" if entry in page else "none"
            raise PolicyFileError(
                f"{name} must have the entry `{entry}`, a {kind.__name__}, got {found}; write it "
                "with save_policy"
            )
    return page


def _undamaged(path: Path) -> bytes:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise PolicyFileError(f"no policy file at {str(path)!r}: {error.strerror}") from error
    body, end = data[: -len(_MARK) - _HEX], data[-len(_MARK) - _HEX :]
    if end != _MARK + hashlib.sha256(body).hexdigest().encode():
        raise PolicyFileError(
            f"{str(path)!r} is damaged, or no policy file: its digest does not fit; use another "
            "copy or policy of the run"
        )
    return body
