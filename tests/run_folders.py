"""Run folders as a training leaves them, without the training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torchrl_elegant.algorithms import ALGORITHMS
from torchrl_elegant.runs.config_file import to_yaml
from torchrl_elegant.trainers.run_config import RunConfig

Points = Sequence[tuple[float, float]]
POINTS = ((100, -10.0), (200, -5.0), (300, -2.0))


def run_folder(
    folder: Path,
    *,
    points: Points = POINTS,
    algorithm: str = "sac",
    run: dict[str, Any] | None = None,
    **options: Any,
) -> Path:
    """The folder of a run with the returns of ``points``; ``run`` are fields of ``RunConfig``."""
    folder.mkdir(parents=True)
    stored = RunConfig(**{"total_frames": 300, **(run or {})})
    (folder / "config.yaml").write_text(
        to_yaml(algorithm, stored, ALGORITHMS[algorithm](**options))
    )
    rows = [f"{frame},{frame / 10},{value}" for frame, value in points]
    (folder / "metrics.csv").write_text("\n".join(["frames,seconds,return_mean", *rows, ""]))
    return folder


def sweep_folder(folder: Path, finals: Sequence[float], **about: Any) -> Path:
    """A folder with a run for each final return."""
    run = about.pop("run", {})
    for seed, final in enumerate(finals):
        points = (*POINTS[:-1], (POINTS[-1][0], final))
        run_folder(folder / f"seed-{seed}", points=points, run={**run, "seed": seed}, **about)
    return folder
