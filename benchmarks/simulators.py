"""Simulators at scale: frames a second by the number of environments, and PPO on their tasks.

    path/to/mjlab/bin/python benchmarks/simulators.py --speed mjlab/Mjlab-Cartpole-Balance
    path/to/mjlab/bin/python benchmarks/simulators.py --learn mjlab/Mjlab-Cartpole-Balance
    python benchmarks/simulators.py

Each simulator runs in an interpreter that has it (``benchmarks/requirements-*.txt``), on one
thread. `--speed` collects with random actions through `SyncCollector`, and tells which share of the
time the simulator takes. Rates and shares are of CPU time, so that other work on the machine does
not count. `--learn` trains PPO with few settings changed. Results are kept in
``benchmarks/results/simulators/``; without words the command writes
``benchmarks/results/simulators.md`` and ``.png`` from all that is there.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
KEPT = HERE / "results" / "simulators"
COUNTS = (1, 4, 16, 64, 256, 1024, 4096)
LIMIT = 200


class Clock:
    """CPU time of this process within the simulator's step and reset."""

    def __init__(self, env: Any) -> None:
        self.spent = 0.0
        for name in ("_advance", "_restart"):
            vars(env)[name] = self._timed(getattr(env, name))

    def _timed(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any) -> Any:
            begin = time.process_time()
            try:
                return call(*args)
            finally:
                self.spent += time.process_time() - begin

        return timed


def speed(task: str, counts: list[int], seconds: float) -> None:
    """Rate and share of the simulator for each number of environments; each is kept at once."""
    from torchrl_elegant.collectors import SyncCollector
    from torchrl_elegant.envs import make_env

    rows: list[dict[str, float]] = []
    for count in counts:
        env = make_env(task, count, seed=0, env_kwargs={"max_steps": LIMIT})
        clock = Clock(env)
        collector = SyncCollector(env, None, frames_per_batch=16 * count, total_frames=-1)
        batches = iter(collector)
        next(batches), next(batches)
        clock.spent, begin, frames = 0.0, time.process_time(), 0
        while time.process_time() - begin < seconds:
            next(batches)
            frames += 16 * count
        whole = time.process_time() - begin
        row = {
            "envs": count,
            "frames_per_second": frames / whole,
            "ms_per_step": 1e3 * clock.spent * count / frames,
            "other_share": 1 - clock.spent / whole,
        }
        rows.append(row)
        keep("speed", task, {"task": task, "rows": rows})
        print(json.dumps(row), flush=True)
        collector.shutdown()


def learn(task: str, frames: int, seeds: int) -> None:
    """PPO from several seeds: returns of evaluations by frames; each seed is kept at once."""
    from torchrl_elegant import PPOConfig, train

    config = PPOConfig(
        epochs=5, batch_size=2048, lr=1e-3, entropy_coeff=0.0, actor_keys=("observation",)
    )
    runs: list[dict[str, Any]] = []
    for seed in range(seeds):
        begin = time.process_time()
        result = train(
            config,
            task,
            total_frames=frames,
            num_envs=1024,
            env_kwargs={"max_steps": LIMIT},
            frames_per_batch=16_384,
            evaluation_env="shared",
            eval_interval=max(16_384, frames // 2),
            eval_episodes=1024,
            seed=seed,
            device="cpu",
            threads=1,
            progress=False,
            logger="none",
            folder=tempfile.mkdtemp() + "/run",
        )
        curve = [
            {"frames": row["frames"], "return": row["return_mean"]}
            for row in result.history
            if "return_mean" in row
        ]
        runs.append({"seed": seed, "cpu_seconds": time.process_time() - begin, "curve": curve})
        keep("learn", task, {"task": task, "runs": runs})
        print(json.dumps(runs[-1]), flush=True)


def report() -> str:
    """The page, from all that is kept; draws the picture beside it."""
    words = ["# Simulators at scale", "", "One thread of a CPU; rates and shares are of CPU time."]
    words += ["", "## Frames a second, random actions, through `SyncCollector`", ""]
    words += ["| task | environments | frames/s | simulator, ms a step | not simulator |"]
    words += ["|---|---|---|---|---|"]
    speeds = sorted(KEPT.glob("speed_*.json"))
    for kept in speeds:
        told = json.loads(kept.read_text())
        for row in told["rows"]:
            rate, ms = f"{row['frames_per_second']:,.0f}", f"{row['ms_per_step']:.2f}"
            share = f"{100 * row['other_share']:.0f} %"
            words.append(f"| {told['task']} | {row['envs']} | {rate} | {ms} | {share} |")
    if speeds:
        picture([json.loads(kept.read_text()) for kept in speeds])
        words += ["", "![frames a second by environments](simulators.png)"]
    learned = sorted(KEPT.glob("learn_*.json"))
    if learned:
        words += ["", f"## PPO, 1024 environments, episodes of {LIMIT} steps", ""]
        words += ["| task | seed | CPU seconds | return by frames |", "|---|---|---|---|"]
    for kept in learned:
        told = json.loads(kept.read_text())
        for run in told["runs"]:
            curve = ", ".join(f"{p['return']:.2f} ({p['frames'] / 1e3:.0f}k)" for p in run["curve"])
            line = f"| {told['task']} | {run['seed']} | {run['cpu_seconds']:.0f} | {curve} |"
            words.append(line)
    words += ["", "    python benchmarks/simulators.py", ""]
    return "\n".join(words)


def picture(speeds: list[dict[str, Any]]) -> None:
    """Frames a second by the number of environments."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 4))
    for told in speeds:
        at = [row["envs"] for row in told["rows"]]
        axes.loglog(
            at, [row["frames_per_second"] for row in told["rows"]], "o-", label=told["task"]
        )
    axes.set(xlabel="environments", ylabel="frames per second of CPU time")
    axes.legend(fontsize=8)
    axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(HERE / "results" / "simulators.png", dpi=110)


def main() -> None:
    """Measures, trains, or writes the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--speed", metavar="TASK")
    parser.add_argument("--learn", metavar="TASK")
    parser.add_argument("--counts", type=int, nargs="+", default=[*COUNTS])
    parser.add_argument("--seconds", type=float, default=2.0, help="CPU time of one measurement")
    parser.add_argument("--frames", type=int, default=409_600)
    parser.add_argument("--seeds", type=int, default=1)
    words = parser.parse_args()
    KEPT.mkdir(parents=True, exist_ok=True)
    if words.speed or words.learn:
        import torch

        torch.set_num_threads(1)
        sys.path.insert(0, str(HERE))
    if words.speed:
        speed(words.speed, words.counts, words.seconds)
    if words.learn:
        learn(words.learn, words.frames, words.seeds)
    if not (words.speed or words.learn):
        (HERE / "results" / "simulators.md").write_text(report())
        print(report())


def keep(kind: str, task: str, told: dict[str, Any]) -> None:
    """Writes what was measured beside what was measured before."""
    name = task.replace("/", "_").lower()
    (KEPT / f"{kind}_{name}.json").write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
