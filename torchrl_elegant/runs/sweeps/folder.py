"""The folder of a sweep: its plan, and which of its seeds have ended as planned."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from torchrl_elegant.algorithms import AlgorithmConfig
from torchrl_elegant.config.text import UsageError
from torchrl_elegant.runs.checkpoints import Checkpoints
from torchrl_elegant.runs.config_file import plain_page, to_yaml
from torchrl_elegant.runs.exported.policy_file import read_page
from torchrl_elegant.runs.files import sole_use, write_file
from torchrl_elegant.runs.folder import RunFolder, refused_by_the_system
from torchrl_elegant.runs.metrics import read_metrics
from torchrl_elegant.trainers.family import family_of
from torchrl_elegant.trainers.ranks import Ranks
from torchrl_elegant.trainers.run_config import RunConfig

_FILE, _FINISHED = "sweep.yaml", "finished"
_FORMAT, _RUN_FORMAT = "torchrl_elegant.sweep", "torchrl_elegant.run"


class SweepFolder:
    """`sweep.yaml`, the configuration and the seeds of a sweep, beside a run folder for each seed.

    A run that has ended as planned leaves a file `finished` in its folder, which holds the frames
    that were planned.
    """

    def __init__(self, path: Path, page: dict[str, Any]) -> None:
        self.path, self._page = path, page

    @classmethod
    def create(
        cls, path: Path, *, run: RunConfig, config: AlgorithmConfig, seeds: int
    ) -> SweepFolder:
        """Make the folder of a new sweep; a folder that holds anything is refused."""
        # A family fills in what follows from the frames planned now: later seeds learn alike.
        family = family_of(run, config, Ranks.alone(run.torch_device()))
        text = to_yaml(config.name, family.run, family.config)
        if path.exists() and not (path.is_dir() and not any(path.iterdir())):
            raise UsageError(
                f"`folder` must be new or empty for a sweep, got {str(path)!r}; continue a sweep "
                f"with resume={path}, or choose another folder=..."
            )
        numbers = list(range(run.seed, run.seed + seeds))
        sweep = cls(path, {**yaml.safe_load(text), "format": _FORMAT, "seeds": numbers})
        with refused_by_the_system(path, "folder", "choose another folder=..."):
            path.mkdir(parents=True, exist_ok=True)
            sweep._write()
        return sweep

    @classmethod
    def open(cls, path: Path) -> SweepFolder:
        """Open the folder of a sweep that exists."""
        try:
            page = plain_page((path / _FILE).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UsageError(
                f"`resume` must be the folder of a sweep, got {str(path)!r}, whose {_FILE} cannot "
                "be read"
            ) from error
        seeds = page.get("seeds") if isinstance(page, dict) else None
        known = isinstance(seeds, list) and bool(seeds) and all(type(s) is int for s in seeds)
        if not known or page.get("format") != _FORMAT or not isinstance(page.get("run"), dict):
            raise UsageError(
                f"`resume` must be the folder of a sweep, got {str(path)!r}, whose {_FILE} is not "
                "that of one"
            )
        return cls(path, page)

    @classmethod
    @contextmanager
    def going_on(cls, path: Path) -> Iterator[SweepFolder]:
        """Open the folder of a sweep that exists, and keep other processes out of it."""
        cls.open(path)
        with sole_use(path):
            # Once more, because another process may have changed the plan until now.
            yield cls.open(path)

    @property
    def total_frames(self) -> int:
        """Frames that each run is planned for."""
        return int(self._page["run"].get("total_frames") or 0)

    @property
    def seeds(self) -> list[int]:
        """Seeds of the sweep."""
        return list(self._page["seeds"])

    def config(self, seed: int | None = None) -> str:
        """The text of a `config.yaml` for a seed; None for the first."""
        given = {"folder": None, "seed": self.seeds[0] if seed is None else seed}
        page = {**self._page, "format": _RUN_FORMAT, "run": {**self._page["run"], **given}}
        del page["seeds"]
        return yaml.safe_dump(page, sort_keys=False, allow_unicode=True)

    def of(self, seed: int) -> Path:
        """The run folder of a seed."""
        return self.path / f"seed-{seed}"

    def plan(self, *, seeds: int | None = None, total_frames: int | None = None) -> None:
        """Have so many seeds, and so many frames for each; None for as many as before."""
        known, run = self.seeds, self._page["run"]
        if seeds is not None and seeds < len(known):
            raise UsageError(
                f"`seeds` must be at least {len(known)}, which the sweep in {self.path} has, got "
                f"{seeds}"
            )
        if total_frames is not None and total_frames < self.total_frames:
            raise UsageError(
                f"`total_frames` must be at least {self.total_frames}, which the sweep in "
                f"{self.path} plans for each seed, got {total_frames}; begin a new sweep for fewer"
            )
        first = max(known) + 1
        more = range(first, first + (seeds or len(known)) - len(known))
        if more or total_frames not in (None, self.total_frames):
            self._page["seeds"] = [*known, *more]
            self._page["run"] = {**run, "total_frames": total_frames or self.total_frames}
            self._write()

    def unfinished(self) -> list[int]:
        """Seeds that have not ended as planned."""
        return [seed for seed in self.seeds if not self.is_finished(seed)]

    def is_finished(self, seed: int) -> bool:
        """True if a seed has ended as planned."""
        return has_finished(self.of(seed), self.total_frames)

    def prepare(self, seed: int) -> Path:
        """The run folder of a seed, ready to go on; made where the seed had not begun."""
        folder = self.of(seed)
        if not (folder / "config.yaml").is_file():
            RunFolder.create(folder, config=self.config(seed), columns=["frames"])
        return folder

    def discard(self) -> None:
        """Take back a folder in which nothing has begun."""
        if [entry.name for entry in self.path.iterdir()] == [_FILE]:
            (self.path / _FILE).unlink()
            self.path.rmdir()

    def _write(self) -> None:
        text = yaml.safe_dump(self._page, sort_keys=False, allow_unicode=True)
        write_file(self.path / _FILE, text.encode())


def is_sweep(path: str | Path) -> bool:
    """True for the folder of a sweep.

    >>> is_sweep("no-such-folder")
    False
    """
    try:
        return (Path(path) / _FILE).is_file()
    except OSError:  # a name longer than any file's
        return False


def has_finished(run: Path, total_frames: int) -> bool:
    """True if the run in a folder has ended as planned, after so many frames."""
    try:
        noted = int((run / _FINISHED).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        noted = 0
    # A note of fewer frames is from before the run was given more.
    return noted >= total_frames or _has_ended(run, total_frames)


def _has_ended(run: Path, total_frames: int) -> bool:
    """True for a run that was killed between its last files and its note."""
    checkpoints = Checkpoints(run / "checkpoints", keep_last=1, components={})
    try:
        last = read_metrics(run / "metrics.csv")[-1]["frames"]
        policy = read_page(run / "policy.pt")["metadata"]["frames"]
        saved = checkpoints.frames[-1]
        return bool(min(last, policy, saved) >= total_frames)
    except (OSError, ValueError, LookupError, TypeError):
        return False


def note_finished(run: Path, total_frames: int) -> None:
    """Note in a run folder that its run has ended as planned."""
    write_file(run / _FINISHED, f"{total_frames}\n".encode())
