"""The folder of one run: what it holds, and who may write into it."""

from __future__ import annotations

import logging
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from torchrl_elegant.config.text import UsageError, brief
from torchrl_elegant.runs.files import FULL, write_file
from torchrl_elegant.runs.metrics import EPISODE_COLUMNS, MetricsFile, read_metrics
from torchrl_elegant.trainers.run_config import RunConfig

logger = logging.getLogger(__name__)

_STAGED = re.compile(r"\.(metrics\.csv|config\.yaml)\.[0-9a-f]{32}\.tmp")
# End of a copy's name.
_COPY = re.compile(r"-\d+$")
# Characters of an environment's name in that of a run's folder.
_LONGEST = 80


def run_path(config: RunConfig, algorithm: str) -> Path:
    """The folder a run is to use: the one configured, or a new name below `runs/`.

    >>> run_path(RunConfig(folder="here"), "sac").name
    'here'
    """
    if config.folder is not None:
        return Path(config.folder)
    # A name of a file has at most 255 bytes.
    env = re.sub(r"[^\w.+-]+", "_", config.env, flags=re.ASCII)[:_LONGEST]
    stamp = time.strftime("%Y%m%d-%H%M%S")
    return Path("runs") / f"{env}-{algorithm}-s{config.seed}-{stamp}"


def _is_vacant(path: Path) -> bool:
    """True if a folder is empty, or left by a process killed while it made the folder."""
    left = [entry for entry in path.iterdir() if not _STAGED.fullmatch(entry.name)]
    names = [entry.name for entry in left]
    return not names or (names == ["metrics.csv"] and not read_metrics(left[0]))


@contextmanager
def refused_by_the_system(path: Path, option: str, way_out: str) -> Iterator[None]:
    """Tell in one line that a path is too long, read-only, or otherwise no place for a run."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            raise  # no mistake in the words
        raise UsageError(
            f"`{option}` must be where files can be written, got {brief(path)!r}: "
            f"{error.strerror}; {way_out}"
        ) from error


class RunFolder:
    """`config.yaml`, `metrics.csv`, `learning_curve.png`, `policy.pt` and `checkpoints/` of a run.

    Made by `create` for a new run and by `open` for one that goes on. One process writes.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as root:
    ...     run = RunFolder.create(Path(root) / "run", config="a: 1", columns=["frames"])
    ...     run.metrics.append({"frames": 10})
    ...     RunFolder.open(run.path).metrics.rows()
    [{'frames': 10.0}]
    """

    def __init__(self, path: str | Path) -> None:
        self.path, self.was_there = Path(path), True
        self.config_path = self.path / "config.yaml"
        self.curve_path = self.path / "learning_curve.png"
        self.policy_path = self.path / "policy.pt"
        self.checkpoints_path = self.path / "checkpoints"
        self.stop_path = self.path / "stop"
        self.metrics = MetricsFile(self.path / "metrics.csv")
        self.episodes_path = self.path / "episodes.csv"

    @cached_property
    def episodes(self) -> MetricsFile:
        """File of finished training episodes, made when it is first asked for."""
        if not self.episodes_path.exists():
            return MetricsFile.create(self.episodes_path, EPISODE_COLUMNS)
        return MetricsFile(self.episodes_path)

    @property
    def policy_paths(self) -> list[Path]:
        """The newest policy, and those that were kept as the best; without copies of them."""
        kept = [
            path
            for path in sorted(self.path.glob("policy_*.pt"))
            if _COPY.search(path.stem) is None
        ]
        return [self.policy_path, *kept]

    @classmethod
    def create(cls, path: str | Path, *, config: str, columns: Sequence[str]) -> RunFolder:
        """Make the folder of a new run; a folder that holds anything is refused."""
        path = Path(path)
        with refused_by_the_system(path, "folder", "choose another folder=..."):
            if path.exists() and not path.is_dir():
                raise UsageError(f"`folder` must be a folder, got the file {str(path)!r}")
            if path.exists() and not _is_vacant(path):
                raise UsageError(
                    f"`folder` must be new or empty, got {str(path)!r}; continue the run in it "
                    f"with resume={path}, or choose another folder=..."
                )
            was_there = path.exists()
            path.mkdir(parents=True, exist_ok=True)
            MetricsFile.create(path / "metrics.csv", columns)
            run = cls(path)
            # Last, because its presence is what makes the folder a run's.
            run.write_config(config)
            run.was_there = was_there
        return run

    @classmethod
    def open(cls, path: str | Path, *, option: str = "resume") -> RunFolder:
        """Open the folder of a run that exists, which the user gave as ``option``."""
        path = Path(path)
        with refused_by_the_system(path, option, f"give another {option}=..."):
            for name in ("config.yaml", "metrics.csv"):
                if not (path / name).is_file():
                    way_out = f"; start a new run with folder={path}" if option == "resume" else ""
                    raise UsageError(
                        f"`{option}` must be the folder of a run, got {str(path)!r} without {name}"
                        + way_out
                    )
            return cls(path)

    def read_config(self) -> str:
        """The text of `config.yaml`."""
        try:
            return self.config_path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(
                f"{brief(self.config_path)} must be a text that can be read, got {error}; put the "
                "file back as the run wrote it"
            ) from error

    def write_config(self, text: str) -> None:
        """Replace `config.yaml` in one step."""
        with refused_by_the_system(self.path, "folder", "make it writable, or choose another"):
            write_file(self.config_path, text.encode())

    def require_readable(self) -> None:
        """Refuse damaged tables: before anything is changed."""
        self.metrics.rows()
        if self.episodes_path.exists():
            self.episodes.rows()

    def resume(self, frames: int, columns: Sequence[str] = ()) -> None:
        """Make the folder ready to go on from `frames`: later rows and an old `stop` file go, and
        metrics have a place for each of `columns`."""
        with refused_by_the_system(self.path, "resume", "make it writable, or copy the folder"):
            self.metrics.trim(frames)
            if self.episodes_path.exists():
                self.episodes.trim(frames)
            self.metrics.widen(columns)
            if self.stop_requested():
                self.stop_path.unlink()
                logger.info("%s removed: the run goes on", self.stop_path)

    def discard(self) -> None:
        """Take back what `create` made for a run that was refused before its first frame.

        Where there is more, such as a callback's file, all of it stays.
        """
        logs, own = self.path / "tensorboard", (self.config_path, self.metrics.path)
        if not set(self.path.iterdir()) <= {logs, *own}:
            return
        shutil.rmtree(logs, ignore_errors=True)
        for path in own:
            path.unlink(missing_ok=True)
        if not self.was_there:
            self.path.rmdir()

    def stop_requested(self) -> bool:
        """True if somebody has put a file called `stop` into the folder."""
        return self.stop_path.exists()
