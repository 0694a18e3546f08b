"""Collection beside a learner for half an hour: is memory flat, and is every frame counted once?

    python benchmarks/soak.py --minutes 30

Two workers step environments that number their steps; the buffer checks every row as it is written,
and a learner samples, notes updates and publishes weights. Afterwards no process and no shared
memory may be left. Writes `benchmarks/results/soak.md` and `.png`, and ends with status 1 where
something is wrong. `--folder` has it write elsewhere.
"""

from __future__ import annotations

import argparse
import gc
import os
import platform
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import tensordict
import torch
import torchrl
from _soak_count import CountingBuffer, numbered_envs, numbers_of
from _soak_watch import Memory, Trend, children, segments, trend
from tensordict.nn import TensorDictModule
from torch import nn

from torchrl_elegant.collectors import AsyncCollector

HERE = Path(__file__).resolve().parent
WORKERS, ENVS, ROWS, CAPACITY = 2, 4, 256, 100_000
UPDATES_PER_FRAME, PUBLISH_EVERY = 1 / 64, 20
# What allocators and libraries may still take after the warm-up; a leak of 1 byte a frame shows.
GROWTH_MIB = 8.0


@dataclass(frozen=True, kw_only=True)
class Soak:
    """What a run has counted and measured."""

    minutes: float
    frames: int
    episodes: int
    episodes_told: int
    updates: int
    counted: dict[int, int]
    written: int
    trends: dict[str, Trend]
    descriptors: tuple[int, int]
    processes_left: list[str]
    segments_seen: int
    segments_left: list[str]

    def faults(self) -> list[str]:
        """All that is wrong; empty when nothing is."""
        faults = [
            f"{name} grew by {trend.growth:.1f} MiB, at most {GROWTH_MIB:g} are allowed"
            for name, trend in self.trends.items()
            if trend.growth > GROWTH_MIB
        ]
        total = sum(self.counted.values())
        if not total == self.frames == self.written:
            counts = f"{total} by their numbers, {self.frames} by the collector"
            faults.append(f"frames were counted as {counts}, {self.written} by the buffer")
        if len(self.counted) != WORKERS * ENVS or not all(self.counted.values()):
            faults.append(f"rows came from environments {sorted(self.counted)} only")
        if self.episodes_told != self.episodes:
            faults.append(f"{self.episodes} episodes ended, {self.episodes_told} were told of")
        first, last = self.descriptors
        if last > first + 2:
            faults.append(f"open files went from {first} to {last}")
        faults += [f"process left: {name}" for name in self.processes_left]
        faults += [f"shared memory left: {name}" for name in self.segments_left]
        return faults


def policy() -> TensorDictModule:
    """A small network: what it does is of no account here."""
    net = nn.Sequential(nn.Linear(5, 64), nn.Tanh(), nn.Linear(64, 1), nn.Tanh())
    return TensorDictModule(net, in_keys=["observation"], out_keys=["action"])


def learn(collector: AsyncCollector, buffer: CountingBuffer, *, until: float) -> int:
    """Samples, updates and publishes at the collector's ratio until the clock says `until`.

    Returns how many episodes the collector told of: it keeps them until it is asked.
    """
    told = 0
    actor = collector.policy
    optimizer = torch.optim.Adam(actor.parameters(), lr=1e-4)
    collector.wait_for(ROWS)
    while time.monotonic() < until:
        for _ in range(collector.updates_due()):
            rows = buffer.sample()
            after = numbers_of(rows["next", "observation"])
            assert torch.equal(numbers_of(rows["observation"]) + 1, after), "a row was torn"
            loss = actor.module(rows["observation"] / 1000).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            collector.note_updates()
            if collector.updates_done % PUBLISH_EVERY == 0:
                collector.update_policy_weights_()
            if time.monotonic() >= until:
                break
        told += len(collector.episodes())
        collector.check()
        collector.wait_for(collector.frames + 1, timeout=0.1)
    return told


def soak(minutes: float) -> tuple[Soak, Memory]:
    """Runs it, and looks at what is left."""
    there, mapped = children(os.getpid()), segments(os.getpid())
    buffer = CountingBuffer(capacity=CAPACITY, batch_size=256)
    collector = AsyncCollector(
        [partial(numbered_envs, worker, ENVS) for worker in range(WORKERS)],
        policy(),
        replay_buffer=buffer,
        frames_per_batch=ROWS,
        updates_per_frame=UPDATES_PER_FRAME,
        seed=0,
    )
    with collector:
        collector.start()
        # A hundred samples at least, and one a second at most.
        pause = min(1.0, 0.6 * minutes)
        with Memory(workers=[p.pid for p in collector.procs], every=pause) as memory:
            told = learn(collector, buffer, until=time.monotonic() + 60 * minutes)
    told += len(collector.episodes())
    frames, updates = collector.frames, collector.updates_done
    counted, episodes, rows = buffer.frames, buffer.episodes, buffer.write_count
    del collector, buffer  # a buffer has locks of its own
    gc.collect()
    left = {pid: name for pid, name in children(os.getpid()).items() if pid not in there}
    files = {name for name in memory.segments if os.path.exists(name)}
    third = len(memory.descriptors) // 3
    report = Soak(
        minutes=minutes,
        frames=frames,
        episodes=episodes,
        episodes_told=told,
        updates=updates,
        counted=counted,
        written=rows,
        trends={
            name: trend(memory.times, values, warm_up=20 * minutes)
            for name, values in memory.series.items()
        },
        descriptors=(memory.descriptors[third], memory.descriptors[-1]),
        processes_left=sorted(left.values()),
        segments_seen=len(memory.segments),
        segments_left=sorted(files | (segments(os.getpid()) - mapped)),
    )
    return report, memory


def written(report: Soak) -> str:
    """The report as Markdown."""
    faults = report.faults()
    counts = sorted(report.counted.values())
    lines = [
        "# Soak: asynchronous collection beside a learner",
        "",
        f"`python benchmarks/soak.py --minutes {report.minutes:g}`: {WORKERS} workers with {ENVS} "
        f"environments each, {ROWS} frames a rollout, one update for {1 / UPDATES_PER_FRAME:g} "
        f"frames, weights published every {PUBLISH_EVERY} updates, a buffer of {CAPACITY} rows.",
        "",
        f"{report.frames:,} frames ({report.frames / report.minutes / 60:,.0f} a second) of "
        f"{report.episodes:,} episodes, {report.updates:,} updates. Every row was checked as it "
        f"was written: each environment's steps are numbered, and its rows came in order, none "
        f"missing and none twice ({counts[0]:,} to {counts[-1]:,} rows an environment).",
        "",
        "| resident memory | after warm-up | growth | peak above | slope |",
        "|---|---|---|---|---|",
    ]
    for name, found in report.trends.items():
        lines.append(
            f"| {name} | {found.start:.1f} MiB | {found.growth:+.1f} MiB | {found.peak:.1f} MiB "
            f"| {found.slope:+.1f} MiB/h |"
        )
    lines += [
        "",
        "Warm-up is the first third; growth is the median of the last fifth of the rest above that "
        f"of its first fifth, and may be {GROWTH_MIB:g} MiB. The series are in the picture beside "
        "this page.",
        "",
        f"Open files of the parent: {report.descriptors[0]} after warm-up, {report.descriptors[1]} "
        f"at the end. After shutdown: {len(report.processes_left)} processes and "
        f"{len(report.segments_left)} segments of shared memory left, of {report.segments_seen} "
        "that were used.",
        "",
        "**All is well.**" if not faults else "**Wrong:** " + "; ".join(faults) + ".",
        "",
        f"Python {platform.python_version()}, torch {torch.__version__}, torchrl "
        f"{torchrl.__version__}, tensordict {tensordict.__version__}, {os.cpu_count()} cores.",
        "",
    ]
    return "\n".join(lines)


def draw(report: Soak, memory: Memory, path: Path) -> None:
    """Memory over time, one line a process."""
    figure, axes = plt.subplots(figsize=(6.4, 3.2), layout="constrained")
    for name, values in memory.series.items():
        axes.plot([time / 60 for time in memory.times], values, label=name, linewidth=1)
    axes.axvline(report.minutes / 3, color="0.6", linewidth=0.8, linestyle="--")
    axes.set(xlabel="minutes", ylabel="resident memory, MiB", ylim=(0, None))
    axes.legend(frameon=False)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main() -> int:
    """Runs, writes and says whether all is well."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--folder", type=Path, default=HERE / "results")
    options = parser.parse_args()
    torch.set_num_threads(1)
    report, memory = soak(options.minutes)
    options.folder.mkdir(parents=True, exist_ok=True)
    text = written(report)
    (options.folder / "soak.md").write_text(text)
    draw(report, memory, options.folder / "soak.png")
    print(text)
    return 1 if report.faults() else 0


if __name__ == "__main__":
    sys.exit(main())
