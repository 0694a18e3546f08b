"""What the loop around the work costs: SAC on HalfCheetah-v5, 256x256, batch 256.

    python benchmarks/overhead.py

The work is what no program could leave out: raw simulator steps with their resets, one call of the
policy's `act` per step, one `buffer.sample` per round of updates, and the learner's updates on
batches drawn beforehand. The whole is `train_off_policy` as `train` runs it, with collector,
buffer, source, clock and monitor; only evaluations and checkpoints are never due. Both run in one
process by turns, the work between two rounds of one and the same loop. Writes
``benchmarks/results/overhead.md``.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib.metadata import version
from itertools import cycle, islice
from pathlib import Path
from types import SimpleNamespace

import gymnasium
import torch
from _report import processor, results_parser, write_page
from tensordict import TensorDictBase
from torchrl.data import ReplayBuffer
from torchrl.envs.utils import ExplorationType, set_exploration_type

from torchrl_elegant.algorithms import SACConfig
from torchrl_elegant.cli.training import keep_freed_blocks
from torchrl_elegant.collectors import SyncCollector
from torchrl_elegant.data import make_buffer
from torchrl_elegant.envs import make_env
from torchrl_elegant.runs import Checkpoints, RunningRun
from torchrl_elegant.runs.callbacks import Callbacks
from torchrl_elegant.runs.folder import RunFolder
from torchrl_elegant.runs.metrics import COLUMNS
from torchrl_elegant.runs.monitor import Monitor, Progress, StopSignals
from torchrl_elegant.runs.reporter import Reporter
from torchrl_elegant.trainers import Learner, Ledger, PolicyEvaluator, RunConfig
from torchrl_elegant.trainers.off_policy import train_off_policy
from torchrl_elegant.trainers.ranks import Ranks
from torchrl_elegant.trainers.sources import Source, SyncSource

ENV = "HalfCheetah-v5"
WARMUP = 1_000
PARTS = ("simulator and policy", "sampling", "update")
MIXED = "the three in turn"
# Frames between two rounds of updates: what `train` does, and the smallest there is.
ROUNDS = (16, 1)


class BareWork:
    """The same frames, batches and updates with nothing around them; times are per frame."""

    def __init__(self, config: SACConfig, buffer: ReplayBuffer, *, frames: int, each: int) -> None:
        self.buffer, self.batch, self.frames, self.each = buffer, config.batch_size, frames, each
        # A learner of its own, so that the loop's updates stay those that it owes.
        self.learner = Learner(config.build(make_env(ENV, 1, seed=1)))
        self.env = gymnasium.make(ENV)
        self.observation, _ = self.env.reset(seed=1)

    def __call__(self) -> dict[str, float]:
        rounds = range(self.frames // self.each)
        seconds = {
            PARTS[0]: timed(lambda: [self.step() for _ in rounds]),
            PARTS[1]: timed(lambda: [self.draw() for _ in rounds]),
        }
        # Views of one sample, as the loop has them, and not one batch that stays in the cache.
        batches = self.buffer.sample(16 * self.batch).split(self.batch)
        seconds[PARTS[2]] = timed(lambda: self.update(islice(cycle(batches), self.frames)))
        seconds[MIXED] = timed(lambda: [self.round() for _ in rounds])
        return {name: each / self.frames for name, each in seconds.items()}

    def step(self) -> None:
        """As many frames as are collected between two rounds of updates."""
        policy = self.learner.policy
        with torch.inference_mode(), set_exploration_type(ExplorationType.RANDOM):
            for _ in range(self.each):
                observation = torch.from_numpy(self.observation).float().unsqueeze(0)
                action = policy.act(observation).numpy()[0]
                self.observation, _, terminated, truncated, _ = self.env.step(action)
                if terminated or truncated:
                    self.observation, _ = self.env.reset()

    def draw(self) -> TensorDictBase:
        """The rows of one round of updates."""
        return self.buffer.sample(self.each * self.batch)

    def update(self, batches: Iterable[TensorDictBase]) -> None:
        for batch in batches:
            self.learner.update(batch)

    def round(self) -> None:
        """All three, as a loop has to do them: each finds the caches full of the others' data."""
        self.step()
        self.update(self.draw().split(self.batch))


@dataclass
class Turns:
    """Seconds per frame of the loop, and of the bare work after it, turn by turn."""

    repeats: int
    loop: list[float] = field(default_factory=list)
    bare: list[dict[str, float]] = field(default_factory=list)

    def work(self) -> list[float]:
        """Seconds of the parts, each timed by itself."""
        return [sum(bare[part] for part in PARTS) for bare in self.bare]

    def overheads(self, work: list[float]) -> list[float]:
        """The share of the loop's time that is not work."""
        return [1.0 - bare / whole for bare, whole in zip(work, self.loop, strict=True)]


class TurnTaker(Monitor):
    """The run's monitor, which holds the loop still after each turn to time the bare work."""

    def take_turns(self, turns: Turns, bare: BareWork) -> None:
        self.turns, self.bare, self.due = turns, bare, WARMUP + bare.frames
        self.since: float | None = None

    def after(self, source: Source) -> bool:
        go_on = super().after(source)
        if self.view.frames >= self.due:
            now = time.perf_counter()
            # The first turn, in which memory and caches are filled, is run and thrown away.
            if self.since is not None:
                self.turns.loop.append((now - self.since) / self.bare.frames)
                self.turns.bare.append(self.bare())
            else:
                self.bare()
            self.due = self.view.frames + self.bare.frames
            self.since = time.perf_counter()
        return go_on and len(self.turns.loop) < self.turns.repeats

    def finish(self, source: Source) -> None:
        """No last evaluation, no last checkpoint."""


def timed(job: Callable[[], object]) -> float:
    start = time.perf_counter()
    job()
    return time.perf_counter() - start


def measure(each: int, *, repeats: int, frames: int, folder: Path) -> Turns:
    """One run of the loop with ``each`` frames between two rounds of updates."""
    torch.manual_seed(0)
    total = WARMUP + (repeats + 2) * frames
    config = SACConfig(warmup=WARMUP, buffer_size=100_000)
    run = RunConfig(
        env=ENV,
        total_frames=total,
        frames_per_batch=each,
        eval_interval=2 * total,
        checkpoint_interval=2 * total,
        logger="none",
        progress=False,
    )
    env = make_env(ENV, 1, seed=0)
    ledger = Ledger(total_frames=total, updates_per_frame=1.0, free_frames=WARMUP)
    learner = Learner(config.build(env), ledger=ledger)
    buffer = make_buffer(size=config.buffer_size)
    collector = SyncCollector(
        env,
        learner.policy,
        frames_per_batch=each,
        total_frames=-1,
        track_traj_ids=False,
        auto_register_policy_transforms=False,
    )
    source = SyncSource(collector, buffer, learner, keys=list(learner.loss.in_keys))
    turns, monitor = Turns(repeats), watch(run, learner, folder)
    monitor.take_turns(turns, BareWork(config, buffer, frames=frames, each=each))
    train_off_policy(source, buffer, learner, monitor, batch_size=config.batch_size)
    source.shutdown()
    return turns


def watch(run: RunConfig, learner: Learner, path: Path) -> TurnTaker:
    """The monitor of a run in ``path``, as ``train`` makes it."""
    columns = list(dict.fromkeys((*COLUMNS, *learner.loss.out_keys)))
    folder, progress = RunFolder.create(path, config="a: 1", columns=columns), Progress()
    evaluator = PolicyEvaluator(make_env(ENV, 1, seed=2), learner.policy, episodes=1)
    trial = SimpleNamespace(
        run=run,
        learner=learner,
        ledger=learner.ledger,
        ranks=Ranks(),
        evaluate=evaluator.evaluate,
        about=dict,
    )
    view = RunningRun(trial, path)
    return TurnTaker(
        view,
        progress=progress,
        reporter=Reporter(view, folder),
        checkpoints=Checkpoints(path / "checkpoints", keep_last=1, components={"learner": learner}),
        callbacks=Callbacks(),
        signals=StopSignals(),
    )


def table(results: dict[int, Turns]) -> str:
    head = "| us per frame, median | " + " | ".join(f"{each} at once" for each in results) + " |"
    lines = [head, "|---|" + "---:|" * len(results)]

    def row(name: str, cells: list[str]) -> None:
        lines.append(f"| {name} | " + " | ".join(cells) + " |")

    def median(seconds: list[float]) -> str:
        return f"{1e6 * statistics.median(seconds):.0f}"

    def part(name: str) -> list[list[float]]:
        return [[bare[name] for bare in turns.bare] for turns in results.values()]

    def share(overheads: list[float]) -> str:
        low, middle, high = (100 * quartile for quartile in statistics.quantiles(overheads, n=4))
        return f"**{middle:.1f} %** ({low:.1f} to {high:.1f})"

    works = {"all of it": [turns.work() for turns in results.values()], MIXED: part(MIXED)}
    for name in PARTS:
        row(name, [median(seconds) for seconds in part(name)])
    for name, work in works.items():
        row(name, [median(seconds) for seconds in work])
    row("training loop", [median(turns.loop) for turns in results.values()])
    for name, work in works.items():
        pairs = zip(results.values(), work, strict=True)
        row(f"overhead over {name}", [share(turns.overheads(bare)) for turns, bare in pairs])
    return "\n".join(lines)


def report(results: dict[int, Turns], arguments: argparse.Namespace, load: float) -> str:
    packages = ", ".join(f"{name} {version(name)}" for name in ("torch", "torchrl", "tensordict"))
    return "\n\n".join(
        [
            "# The loop around the work",
            f"`python benchmarks/overhead.py --repeats {arguments.repeats} "
            f"--frames {arguments.frames} --threads {arguments.threads}`",
            f"SAC, {ENV}, 256x256, batch 256, an update a frame, {arguments.threads} threads. "
            f"{processor()}, {os.cpu_count()} cores; {packages}; load of the machine before the "
            f"run {load:.2f}. {arguments.repeats} turns of {arguments.frames} frames, each "
            "followed by as many frames' bare work in the same process.",
            table(results),
            "The work: raw simulator steps with resets and one call of `act` each; one "
            "`buffer.sample` for each round of updates; the learner's updates on batches drawn "
            "before. Each is timed by itself, and then all three in turn, when each finds the "
            "caches full of the others' data, as in any loop. The loop: `train_off_policy` with "
            "collector, buffer, clock and monitor, while no evaluation and no checkpoint is due. "
            "A column is the number of frames between two rounds of updates; `train` takes 16. "
            "Overhead is the share of the loop's time that is not work: the median over the turns, "
            "and between which values half of them lie.",
        ]
    )


def parse() -> argparse.Namespace:
    parser = results_parser(__doc__)
    add = parser.add_argument
    add("--repeats", type=int, default=15, help="turns of loop and work, 5 or more (default: 15)")
    add("--frames", type=int, default=160, help="frames of a turn, of 16 (default: 160)")
    add("--threads", type=int, default=2, help="torch threads (default: 2)")
    arguments = parser.parse_args()
    if arguments.repeats < 5:
        parser.error(f"`--repeats` must be at least 5, got {arguments.repeats}")
    if arguments.frames < 16 or arguments.frames % 16:
        parser.error(f"`--frames` must be a multiple of 16, got {arguments.frames}")
    return arguments


def main() -> None:
    arguments = parse()
    load = os.getloadavg()[0]
    if load > 0.5:
        print(f"the machine is busy (load {load:.2f}): repeat when it is not", file=sys.stderr)
    torch.set_num_threads(arguments.threads)
    keep_freed_blocks()
    results = {}
    for each in ROUNDS:
        with tempfile.TemporaryDirectory() as folder:
            results[each] = measure(
                each,
                repeats=arguments.repeats,
                frames=arguments.frames,
                folder=Path(folder) / "run",
            )
    print(table(results))
    write_page(arguments.results, "overhead", report(results, arguments, load))
    print(f"\nwritten to {arguments.results / 'overhead.md'}")


if __name__ == "__main__":
    main()
