"""The folder of one run: what it holds, and who may write into it."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path

from torchrl._utils import logger

from torchrl_elegant.config.text import UsageError
from torchrl_elegant.runs.files import write_file
from torchrl_elegant.runs.metrics import MetricsFile, read_metrics
from torchrl_elegant.trainers.run_config import RunConfig

_STAGED = re.compile(r"\.(metrics\.csv|config\.yaml)\.[0-9a-f]{32}\.tmp")


def run_path(config: RunConfig, algorithm: str) -> Path:
    """The folder a run is to use: the one configured, or a new name below `runs/`.

    >>> run_path(RunConfig(folder="here"), "sac").name
    'here'
    """
    if config.folder is not None:
        return Path(config.folder)
    env = re.sub(r"[^\w.+-]+", "_", config.env)
    stamp = time.strftime("%Y%m%d-%H%M%S")
    return Path("runs") / f"{env}-{algorithm}-s{config.seed}-{stamp}"


def _is_vacant(path: Path) -> bool:
    """True if a folder is empty, or left by a process killed while it made the folder."""
    left = [entry for entry in path.iterdir() if not _STAGED.fullmatch(entry.name)]
    names = [entry.name for entry in left]
    return not names or (names == ["metrics.csv"] and not read_metrics(left[0]))


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
        self.path = Path(path)
        self.config_path = self.path / "config.yaml"
        self.curve_path = self.path / "learning_curve.png"
        self.policy_path = self.path / "policy.pt"
        self.checkpoints_path = self.path / "checkpoints"
        self.stop_path = self.path / "stop"
        self.metrics = MetricsFile(self.path / "metrics.csv")

    @classmethod
    def create(cls, path: str | Path, *, config: str, columns: Sequence[str]) -> RunFolder:
        """Make the folder of a new run; a folder that holds anything is refused."""
        path = Path(path)
        if path.exists() and not path.is_dir():
            raise UsageError(f"`folder` must be a folder, got the file {str(path)!r}")
        if path.exists() and not _is_vacant(path):
            raise UsageError(
                f"`folder` must be new or empty, got {str(path)!r}; continue the run in it with "
                f"resume={path}, or choose another folder=..."
            )
        try:
            path.mkdir(parents=True, exist_ok=True)
            MetricsFile.create(path / "metrics.csv", columns)
            run = cls(path)
            # Last, because its presence is what makes the folder a run's.
            run.write_config(config)
        except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
            raise UsageError(
                f"`folder` must be where files can be written, got {str(path)!r}: "
                f"{error.strerror}; choose another folder=..."
            ) from error
        return run

    @classmethod
    def open(cls, path: str | Path, *, option: str = "resume") -> RunFolder:
        """Open the folder of a run that exists, which the user gave as ``option``."""
        path = Path(path)
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
        return self.config_path.read_text(encoding="utf-8")

    def write_config(self, text: str) -> None:
        """Replace `config.yaml` in one step."""
        write_file(self.config_path, text.encode())

    def resume(self, frames: int, columns: Sequence[str] = ()) -> None:
        """Make the folder ready to go on from `frames`: later rows and an old `stop` file go, and
        metrics have a place for each of `columns`."""
        self.metrics.trim(frames)
        self.metrics.widen(columns)
        if self.stop_requested():
            self.stop_path.unlink()
            logger.info("%s removed: the run goes on", self.stop_path)

    def stop_requested(self) -> bool:
        """True if somebody has put a file called `stop` into the folder."""
        return self.stop_path.exists()
