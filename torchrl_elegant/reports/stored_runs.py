"""Run folders read as data: settings and returns, with nothing built and nothing imported."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torchrl_elegant.config.text import UsageError, brief
from torchrl_elegant.runs.config_file import plain_page
from torchrl_elegant.runs.metrics import read_metrics

Array = NDArray[np.float64]

# Options that leave alone what is learned and how it is scored.
_BESIDE_THE_POINT = frozenset(
    {
        *("seed", "folder", "device", "threads", "progress", "logger", "episode_log"),
        *("eval_interval", "eval_episodes", "checkpoint_interval", "keep_last", "save_buffer"),
        *("target_return", "env", "env_kwargs", "pixels"),
    }
)
_FORMAT = "torchrl_elegant.run"
# Returns beyond it come from a damaged file, and would press all others flat.
_LARGEST = 1e30
_LONGEST_FILE = 1 << 20


class UnreadableRunError(ValueError):
    """The reason why a run folder cannot be compared."""


@dataclass(frozen=True, kw_only=True, eq=False)
class StoredRun:
    """One run as its folder tells it.

    ``settings`` maps options to texts, without those that make no difference to what is learned.
    ``returns`` are the mean returns of the evaluations at ``frames``.
    """

    path: Path
    environment: str
    algorithm: str
    seed: int
    settings: Mapping[str, str]
    frames: Array
    returns: Array
    seconds: float


def find_runs(folders: Iterable[str | Path]) -> list[Path]:
    """The run folders among ``folders`` and below them, each once, in order of their names.

    >>> find_runs(["no-such-folder"])
    Traceback (most recent call last):
    torchrl_elegant.config.text.UsageError: `runs` must be run folders, or folders that hold some,
    got 'no-such-folder', which does not exist
    """
    found: dict[Path, Path] = {}
    for folder in map(Path, folders):
        try:
            below = list(_below(folder)) if folder.is_dir() else []
        except OSError as error:  # a name longer than any file's
            raise UsageError(
                "`runs` must be run folders, or folders that hold some, got "
                f"{brief(folder)!r}: {error.strerror}; give another"
            ) from error
        if not below:
            why = "which holds no run" if folder.exists() else "which does not exist"
            raise UsageError(
                f"`runs` must be run folders, or folders that hold some, got {str(folder)!r}, {why}"
            )
        for path in below:
            found.setdefault(path.resolve(), path)
    return list(found.values())


def _below(folder: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(folder):
        folders.sort(key=_natural)
        if "config.yaml" in files and "metrics.csv" in files:
            # A run holds no other run: its checkpoints need not be searched.
            folders.clear()
            yield Path(place)


def _natural(name: str) -> list[tuple[int, str]]:
    """Sort key with seed-2 before seed-10."""
    parts = name.split("-")
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]


def read_run(path: Path) -> StoredRun:
    """Read a run folder; UnreadableRunError says why it cannot be compared."""
    try:
        page = _page(path / "config.yaml")
        rows = read_metrics(path / "metrics.csv")
    except UnreadableRunError:
        raise
    except (OSError, ValueError, csv.Error) as error:
        reason = " ".join(str(error).split())[:100]
        raise UnreadableRunError(f"its metrics.csv is damaged: {reason}") from error
    run, config = page["run"], page["config"]
    around = {name: run.get(name) for name in ("env_kwargs", "pixels") if run.get(name)}
    details = ", ".join(f"{name}={text}" for name, text in _flat(around))
    settings = {
        **{name: text for name, text in _flat(run) if _root(name) not in _BESIDE_THE_POINT},
        **dict(_flat(config)),
    }
    if "networks" in page:
        # Networks from outside, of which only the places are stored.
        settings["networks"] = _shown(page["networks"])
    frames, returns = _curve(rows)
    return StoredRun(
        path=path,
        environment=readable(f"{run['env']} ({details})" if details else str(run["env"])),
        algorithm=readable(str(page["algorithm"])),
        seed=run["seed"],
        settings=settings,
        frames=frames,
        returns=returns,
        seconds=float(rows[-1].get("seconds", np.nan)),
    )


def readable(text: str) -> str:
    """``text`` on one line, at most 60 characters long, without characters that print nothing.

    >>> readable("a" + chr(27) + chr(10) + "b")
    'a b'
    """
    plain = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return plain if len(plain) <= 60 else f"{plain[:59]}…"


def _page(path: Path) -> dict[str, Any]:
    if path.stat().st_size > _LONGEST_FILE:
        raise UnreadableRunError("its config.yaml is far too long")
    text = path.read_text(encoding="utf-8", errors="replace")
    try:
        page = plain_page(text)
    except UsageError as error:
        told = str(error).splitlines()[0].replace("the run's config", "its config.yaml")
        raise UnreadableRunError(told) from error
    named = isinstance(page, dict) and page.get("format") == _FORMAT
    whole = named and all(isinstance(page.get(name), dict) for name in ("run", "config"))
    if not whole or "algorithm" not in page or not page["run"].get("env"):
        raise UnreadableRunError("its config.yaml is not that of a run")
    if type(page["run"].get("seed")) is not int:
        raise UnreadableRunError("its config.yaml has no seed")
    return page


def _flat(page: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in page.items():
        word = f"{prefix}{name}"
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{word}.")
        else:
            yield word, _shown(value)


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return readable(",".join(map(_shown, value)))
    return str(value).lower() if value is None or isinstance(value, bool) else readable(str(value))


def _root(word: str) -> str:
    return word.partition(".")[0]


def _curve(rows: list[dict[str, float]]) -> tuple[Array, Array]:
    if not rows:
        raise UnreadableRunError("it has no evaluation yet")
    pairs = np.array([(row.get("frames"), row.get("return_mean")) for row in rows], dtype=float)
    if (np.isnan(pairs[:, 1])).all():
        raise UnreadableRunError("its metrics.csv holds no return")
    pairs = pairs[~np.isnan(pairs[:, 1])]
    if not (np.abs(pairs) < _LARGEST).all():
        raise UnreadableRunError("its metrics.csv holds numbers that are not finite")
    if (pairs[0, 0] < 0) or (np.diff(pairs[:, 0]) <= 0).any():
        raise UnreadableRunError("its metrics.csv is damaged: frames do not ascend")
    return pairs[:, 0], pairs[:, 1]
