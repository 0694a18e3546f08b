"""Everything a run shows: rows, progress, pictures, policies, loggers."""

from __future__ import annotations

import logging
import math
import os
import sys
import time
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path

from tensordict.nn import TensorDictModuleBase
from torchrl.record.loggers import MLFlowLogger, get_logger
from torchrl.record.loggers.common import Logger
from tqdm import tqdm

from torchrl_elegant.runs.callbacks import RunningRun
from torchrl_elegant.runs.files import write_file
from torchrl_elegant.runs.folder import RunFolder
from torchrl_elegant.runs.policy import save_policy
from torchrl_elegant.trainers.episode_returns import Episode

logger = logging.getLogger(__name__)

# A picture takes longer than many an evaluation: at most a twentieth of a run goes into it, and of
# a run of seconds only the one at its end.
_PICTURE_SHARE, _FIRST_PICTURE = 20.0, 5.0


class Reporter:
    """Writes into the run folder, to the log, to a progress bar and to TorchRL's logger.

    Args:
        run: the run; it keeps account of what could not be written.
        folder: where files go.
    """

    def __init__(self, run: RunningRun, folder: RunFolder) -> None:
        self._run, self._folder = run, folder
        self._environment = run.trial.about()
        config = run.trial.run
        self._bar = tqdm(
            total=config.total_frames,
            initial=min(run.frames, config.total_frames),
            disable=not (config.progress and _is_watched()),
            unit=" frames",
            unit_scale=True,
            mininterval=0.2,
        )
        self._logger = make_logger(config.logger_name(), folder.path)
        rows = folder.metrics.rows()
        self._last: dict[str, float] = rows[-1] if rows else {}
        # Rows wait here while the disk is full.
        self._rows: list[Mapping[str, float]] = []
        self._episodes: list[dict[str, float]] = []
        self._next_picture = time.perf_counter() + _FIRST_PICTURE

    def advance(self, frames: int) -> None:
        """Move the progress bar."""
        self._bar.update(frames - self._bar.n)

    def row(self, row: Mapping[str, float]) -> None:
        """Write one row of metrics everywhere."""
        self._last = dict(row)
        self._rows.append(self._last)
        self._write_rows()
        shown = f"return {row['return_mean']:9.2f} ± {row['return_std']:.2f}"
        logger.info(
            f"frames {int(row['frames']):>9,} | {shown} | length {row['length_mean']:.0f} | "
            f"{row['seconds']:.0f} s"
        )
        self._bar.set_postfix_str(" ".join(shown.split()))
        if self._logger is not None:
            finite = {
                name: value
                for name, value in row.items()
                if name != "frames" and math.isfinite(value)
            }
            with self._run.storing("logger"):
                self._logger.log_metrics(finite, step=int(row["frames"]))
        if time.perf_counter() >= self._next_picture:
            self._draw()

    def _write_rows(self) -> None:
        with self._run.storing("metrics.csv"):
            self._folder.metrics.widen([name for row in self._rows for name in row])
            self._folder.metrics.append(*self._rows)
            self._rows.clear()

    def _draw(self) -> None:
        # Here, because matplotlib takes long to import, and worker processes draw nothing.
        from torchrl_elegant.runs.curve import draw_curve

        start = time.perf_counter()
        with self._run.storing("learning_curve.png"):
            draw_curve(self._folder.path)
        end = time.perf_counter()
        self._next_picture = end + _PICTURE_SHARE * (end - start)

    def note_episodes(self, episodes: Iterable[Episode], seconds: float) -> None:
        """Take in training episodes that ended; ``write_episodes`` writes them."""
        for frame, returned, length in episodes:
            row = {"frame": frame, "seconds": seconds, "return": returned, "length": length}
            self._episodes.append(row)

    def write_episodes(self) -> None:
        """Write the episodes noted so far into ``episodes.csv``."""
        with self._run.storing("episodes.csv"):
            self._folder.episodes.append(*self._episodes)
            self._episodes.clear()

    def policy(self, policy: TensorDictModuleBase, frames: int) -> None:
        """Write ``policy.pt``, the newest policy."""
        same = self._last.get("frames") == frames
        evaluated = {"return_mean": self._last["return_mean"]} if same else {}
        page = {**self._environment, "frames": frames, **evaluated}
        with self._run.storing("policy.pt"):
            save_policy(self._folder.policy_path, policy, page)

    def stop_requested(self) -> bool:
        """True if somebody put a ``stop`` file into the run folder."""
        return self._folder.stop_requested()

    def finish(self, pace: str, newest: Path | None) -> None:
        """Say how the run ended, where its time went, and what could not be stored.

        Args:
            pace: a line about the time.
            newest: the newest whole checkpoint.
        """
        self._bar.close()
        if self._rows:
            self._write_rows()
        if self._last:
            self._draw()
        if self._run.stopped_by is not None:
            logger.info("stopped early: %s", self._run.stopped_by)
        if self._last:
            spread = self._last["return_ci95"]
            # A single episode says nothing of the spread.
            known = (
                f" ± {spread:.2f} (95 % confidence of the mean)" if math.isfinite(spread) else ""
            )
            logger.info("last evaluation: return %.2f%s", self._last["return_mean"], known)
        logger.info("%s", pace)
        logger.info("run folder: %s", self._folder.path)
        for name, frame in self._run.unsaved.items():
            logger.warning("%s could not be written since frame %d", name, frame)
        if self._run.unsaved:
            none = "none, so that this run cannot be resumed"
            logger.warning("newest whole checkpoint: %s", none if newest is None else newest)

    def close(self) -> None:
        """Close bar and logger, however the run ended; may be called twice."""
        self._bar.close()
        if self._logger is None:
            return
        # It may have lines left to write.
        with self._run.storing("logger"):
            close_logger(self._logger)
        self._logger = None


def _is_watched() -> bool:
    """True in a terminal or a notebook; a log file is no place for a bar that redraws itself."""
    kernel = sys.modules.get("ipykernel.kernelapp")
    return sys.stderr.isatty() or (kernel is not None and kernel.IPKernelApp.initialized())


def make_logger(name: str, folder: Path) -> Logger | None:
    """TorchRL's logger of that name, writing below the run folder; None for ``none``."""
    if name == "none":
        return None
    path = str(folder.resolve() / name)
    experiment = folder.resolve().name
    if name == "wandb":
        return get_logger(
            "wandb",
            logger_name=path,
            experiment_name=experiment,
            wandb_kwargs={"project": "torchrl_elegant", "id": _wandb_id(folder)},
        )
    if name == "mlflow":
        # A database beside the run unless the user names a server: MLflow gave up plain files.
        uri = os.environ.get("MLFLOW_TRACKING_URI", f"sqlite:///{path}.db")
        return MLFlowLogger(exp_name=experiment, tracking_uri=uri, artifact_location=path)
    return get_logger("tensorboard", logger_name=path, experiment_name=experiment)


def close_logger(target: Logger) -> None:
    """Have a logger write all that it holds, and end."""
    try:
        target.shutdown()
    finally:
        if isinstance(target, MLFlowLogger):
            import mlflow

            # TorchRL's logger starts a run in MLflow's global state and leaves it active.
            mlflow.end_run()


def _wandb_id(folder: Path) -> str:
    """The same for every process that goes on with the run; names of folders are not unique."""
    path = folder / "wandb_id"
    if not path.is_file():
        write_file(path, uuid.uuid4().hex[:16].encode())
    return path.read_text(encoding="utf-8")
