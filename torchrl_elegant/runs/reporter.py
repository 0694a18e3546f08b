"""Everything a run shows: rows, progress, pictures, policies, loggers."""

from __future__ import annotations

import math
import os
import sys
import time
import uuid
from collections.abc import Mapping
from typing import Any

from tensordict.nn import TensorDictModuleBase
from torchrl._utils import logger as torchrl_logger
from torchrl.record.loggers import MLFlowLogger, get_logger
from torchrl.record.loggers.common import Logger
from tqdm import tqdm

from torchrl_elegant.runs.files import write_file
from torchrl_elegant.runs.folder import RunFolder
from torchrl_elegant.runs.policy import save_policy
from torchrl_elegant.trainers.clock import PACE_COLUMNS
from torchrl_elegant.trainers.evaluation import Evaluation
from torchrl_elegant.trainers.run_config import RunConfig

# A picture takes longer than many an evaluation: at most a twentieth of a run goes into it, and of
# a run of seconds only the one at its end.
_PICTURE_SHARE, _FIRST_PICTURE = 20.0, 5.0

COLUMNS = (
    "frames",
    "updates",
    "seconds",
    "return_mean",
    "return_std",
    "return_ci95",
    "length_mean",
    "train_return",
    *PACE_COLUMNS,
)


class Reporter:
    """Writes into the run folder, to the terminal and to a logger.

    Args:
        run: what is configured.
        folder: where files go.
        environment: what a policy file says of the environment, such as its action bounds.
        frames: where the run stands.
    """

    def __init__(
        self, run: RunConfig, folder: RunFolder, environment: Mapping[str, Any], frames: int
    ) -> None:
        self._folder, self._environment = folder, dict(environment)
        self._bar = tqdm(
            total=run.total_frames,
            initial=min(frames, run.total_frames),
            disable=not run.progress,
            unit=" frames",
            unit_scale=True,
            # A log file is no place for a bar that redraws itself.
            mininterval=0.2 if sys.stderr.isatty() else 10.0,
        )
        self._logger = make_logger(run.logger_name(), folder)
        self._last: dict[str, float] = {}
        self._next_picture = time.perf_counter() + _FIRST_PICTURE

    def advance(self, frames: int) -> None:
        """Move the progress bar."""
        self._bar.update(frames - self._bar.n)

    def row(self, row: Mapping[str, float]) -> None:
        """Write one row of metrics everywhere."""
        columns = self._folder.metrics.columns
        # A run that an older version began has no columns for its pace, and goes on without.
        absent = set(PACE_COLUMNS).difference(columns)
        self._folder.metrics.append({k: v for k, v in row.items() if k not in absent})
        self._last = dict(row)
        line = (
            f"frames {int(row['frames']):>9,} | return {row['return_mean']:9.2f} "
            f"± {row['return_std']:.2f} | length {row['length_mean']:.0f} | "
            f"{row['seconds']:.0f} s"
        )
        if self._bar.disable:
            torchrl_logger.info(line)
        else:
            self._bar.write(line, file=sys.stderr)
        if self._logger is not None:
            finite = {
                name: value
                for name, value in row.items()
                if name != "frames" and math.isfinite(value)
            }
            self._logger.log_metrics(finite, step=int(row["frames"]))
        if time.perf_counter() >= self._next_picture:
            self._draw()

    def _draw(self) -> None:
        # Here, because matplotlib takes long to import, and worker processes draw nothing.
        from torchrl_elegant.runs.curve import draw_curve

        start = time.perf_counter()
        draw_curve(self._folder.path)
        end = time.perf_counter()
        self._next_picture = end + _PICTURE_SHARE * (end - start)

    def policy(self, policy: TensorDictModuleBase, frames: int) -> None:
        """Write ``policy.pt``, the newest policy."""
        same = self._last.get("frames") == frames
        evaluated = {"return_mean": self._last["return_mean"]} if same else {}
        page = {**self._environment, "frames": frames, **evaluated}
        save_policy(self._folder.policy_path, policy, page)

    def best_policy(
        self, policy: TensorDictModuleBase, frames: int, evaluation: Evaluation
    ) -> None:
        """Write ``policy_best.pt``, the policy with the highest evaluated return."""
        page = {**self._environment, "frames": frames, "return_mean": evaluation.return_mean}
        save_policy(self._folder.path / "policy_best.pt", policy, page)

    def stop_requested(self) -> bool:
        """True if somebody put a ``stop`` file into the run folder."""
        return self._folder.stop_requested()

    def finish(self, reason: str | None, pace: str) -> None:
        """Say how the run ended, and where its time went."""
        self._bar.close()
        if reason is not None:
            torchrl_logger.info("stopped early: %s", reason)
        if self._last:
            spread = self._last["return_ci95"]
            # A single episode says nothing of the spread.
            known = (
                f" ± {spread:.2f} (95 % confidence of the mean)" if math.isfinite(spread) else ""
            )
            torchrl_logger.info("last evaluation: return %.2f%s", self._last["return_mean"], known)
        torchrl_logger.info("%s", pace)
        torchrl_logger.info("run folder: %s", self._folder.path)
        # Last, because it is the one part of this that a full disk can stop.
        if self._last:
            self._draw()

    def close(self) -> None:
        """Close bar and logger, however the run ended; may be called twice."""
        self._bar.close()
        if self._logger is None:
            return
        self._logger.shutdown()
        if isinstance(self._logger, MLFlowLogger):
            import mlflow

            # TorchRL's logger starts a run in MLflow's global state and leaves it active.
            mlflow.end_run()
        self._logger = None


def make_logger(name: str, folder: RunFolder) -> Logger | None:
    """TorchRL's logger of that name, writing below the run folder; None for ``none``."""
    if name == "none":
        return None
    path = str(folder.path.resolve() / name)
    experiment = folder.path.resolve().name
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


def _wandb_id(folder: RunFolder) -> str:
    """The same for every process that goes on with the run; names of folders are not unique."""
    path = folder.path / "wandb_id"
    if not path.is_file():
        write_file(path, uuid.uuid4().hex[:16].encode())
    return path.read_text(encoding="utf-8")
