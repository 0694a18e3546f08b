"""Runs that are killed at random moments and go on: a few in the tests, as many as asked for here.

    python tests/faults/kills.py 20

kills twenty times, by turns in synchronous, asynchronous and parallel collection, and prints a
line for each.
"""

from __future__ import annotations

import random
import signal
import sys
import tempfile
import time
from pathlib import Path

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]

from faults.runs import (
    PATIENCE,
    SMALL,
    check_folder,
    checkpoints,
    end_session,
    saved_frames,
    saved_learner,
    seen_frames,
    start,
    wait_for_empty_session,
    wait_until,
)

from torchrl_elegant.runs.metrics import read_metrics

INTERVAL = 200
ASYNC = ("collector=async", "num_workers=2", "frames_per_batch=4", "push_interval=2")
ROLLOUTS = ("frames_per_batch=40", "batch_size=40", "epochs=1")
# Script and words of each way to collect.
MODES = {
    "sync": ("train_sac.py", SMALL),
    "async": ("train_sac.py", (*SMALL, *ASYNC)),
    "parallel": (
        "train_ppo.py",
        (
            *(word for word in SMALL if not word.startswith(("batch_size", "warmup"))),
            *ROLLOUTS,
            "collector=parallel",
            "num_workers=2",
        ),
    ),
}


class KilledRun:
    """A run without an end in a folder of its own, as its user sees it.

    Args:
        mode: one of ``MODES``.
        folder: the run folder.
        log: what its processes print.
    """

    def __init__(self, mode: str, *, folder: Path, log: Path) -> None:
        self.mode, self.folder, self.log = mode, folder, log
        self.script, words = MODES[mode]
        self.words = (
            *words,
            "total_frames=10_000_000",
            f"checkpoint_interval={INTERVAL}",
            "eval_interval=100",
            "episode_log=true",
            f"folder={folder}",
        )
        self.process = start(self.words, script=self.script, log=log)

    def kill(self, moments: random.Random) -> tuple[int, int]:
        """Kill it at a random moment after its next checkpoint, and have it go on.

        Gives the frames of the checkpoint that it went on from, and those that were lost.
        """
        done = saved_frames(self.folder)
        wait_until(lambda: saved_frames(self.folder) > done, self.process)
        time.sleep(moments.uniform(0.0, 1.5))
        self.process.kill()
        assert self.process.wait(PATIENCE) == -signal.SIGKILL
        # No worker process may be left behind.
        wait_for_empty_session(self.process.pid)
        check_folder(self.folder)
        found, seen = saved_frames(self.folder), seen_frames(self.folder)
        rows, ended = self._stored(found)
        self.process = start(
            [f"resume={self.folder}", "trust=true"], script=self.script, log=self.log
        )
        # Rows of work that was lost are still there until the process has started.
        wait_until(lambda: saved_frames(self.folder) > found, self.process)
        check_folder(self.folder)
        assert self._stored(found) == (rows, ended), "something that was finished is lost"
        return found, max(0, seen - found)

    def stop(self) -> None:
        """End it by SIGTERM, after which everything is saved."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(PATIENCE) == 128 + signal.SIGTERM
        wait_for_empty_session(self.process.pid)
        check_folder(self.folder)
        assert saved_frames(self.folder) >= seen_frames(self.folder)
        if self.mode != "parallel":
            learner = saved_learner(checkpoints(self.folder)[-1])
            assert abs(learner["updates"] - (saved_frames(self.folder) - 20)) <= 40

    def end(self) -> None:
        """Leave no process behind."""
        end_session(self.process.pid)
        self.process.wait(PATIENCE)

    def _stored(self, frames: int) -> tuple[list, list]:
        """Rows, and finished episodes, up to ``frames``."""
        rows = read_metrics(self.folder / "metrics.csv")
        ended = read_metrics(self.folder / "episodes.csv")
        return (
            [(row["frames"], row["return_mean"]) for row in rows if row["frames"] <= frames],
            [(row["frame"], row["return"]) for row in ended if row["frame"] <= frames],
        )


def main(times: int) -> None:
    """Kill ``times`` times and print what came of it."""
    moments, modes = random.Random(0), list(MODES)
    with tempfile.TemporaryDirectory() as place:
        for number, mode in enumerate(modes):
            run = KilledRun(mode, folder=Path(place) / mode, log=Path(place) / f"{mode}.log")
            try:
                for _ in range(times // len(modes) + (number < times % len(modes))):
                    found, lost = run.kill(moments)
                    sys.stdout.write(f"{mode}: went on from frame {found}, {lost} frames lost\n")
                    sys.stdout.flush()
                run.stop()
            finally:
                run.end()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
