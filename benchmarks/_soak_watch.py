"""Memory, file descriptors and shared memory of a process and its workers, over time."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

MIB = 1 << 20
PAGE = os.sysconf("SC_PAGE_SIZE")


def resident(pid: int) -> float:
    """Resident memory in MiB, 0 for a process that is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE / MIB
    except OSError:
        return 0.0


def segments(pid: int) -> set[str]:
    """Paths of the shared memory that a process has mapped, those of unlinked segments as well.

    Without the arenas of multiprocessing's heap, which a process keeps and fills again.
    """
    try:
        lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    except OSError:
        return set()
    return {
        line.split(maxsplit=5)[-1] for line in lines if "/dev/shm/" in line and "/pym-" not in line
    }


def children(pid: int) -> dict[int, str]:
    """Live processes below `pid`, with their command lines; multiprocessing's tracker left out."""
    found: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            command = (entry / "cmdline").read_text().replace("\0", " ")
        except OSError:
            continue
        gone = fields[0] in "ZX"
        if int(fields[1]) == pid and not gone and "resource_tracker" not in command:
            found |= {int(entry.name): command, **children(int(entry.name))}
    return found


@dataclass(kw_only=True)
class Memory:
    """Resident memory of the parent and of each worker, sampled by a thread.

    Args:
        workers: process ids, in the order of their names.
        every: seconds between two samples.
    """

    workers: Sequence[int]
    every: float = 1.0
    times: list[float] = field(default_factory=list)
    series: dict[str, list[float]] = field(default_factory=dict)
    segments: set[str] = field(default_factory=set)
    descriptors: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._processes = {"parent": os.getpid()}
        self._processes |= {f"worker {i}": pid for i, pid in enumerate(self.workers)}
        self.series = {name: [] for name in self._processes}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="memory", daemon=True)
        self._begin = time.monotonic()

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self.every):
            self.times.append(time.monotonic() - self._begin)
            for name, pid in self._processes.items():
                self.series[name].append(resident(pid))
            for pid in self._processes.values():
                self.segments |= segments(pid)
            self.descriptors.append(len(os.listdir("/proc/self/fd")))


@dataclass(frozen=True, kw_only=True)
class Trend:
    """How a series of MiB went on after the warm-up."""

    start: float  # median of the first fifth
    growth: float  # median of the last fifth above it
    peak: float  # the greatest value above it
    slope: float  # MiB an hour, by least squares


def trend(times: Sequence[float], values: Sequence[float], *, warm_up: float) -> Trend:
    """Start, growth, peak and slope of what comes after `warm_up` seconds."""
    kept = [(t, v) for t, v in zip(times, values, strict=True) if t >= warm_up]
    if len(kept) < 5:
        raise ValueError(f"`warm_up` must leave 5 samples, got {len(kept)}; run for longer")
    fifth = len(kept) // 5
    start, end = (_median([v for _, v in part]) for part in (kept[:fifth], kept[-fifth:]))
    mean_t = sum(t for t, _ in kept) / len(kept)
    mean_v = sum(v for _, v in kept) / len(kept)
    spread = sum((t - mean_t) ** 2 for t, _ in kept)
    slope = sum((t - mean_t) * (v - mean_v) for t, v in kept) / spread
    return Trend(
        start=start,
        growth=end - start,
        peak=max(v for _, v in kept) - start,
        slope=slope * 3600,
    )


def _median(values: list[float]) -> float:
    middle = sorted(values)
    return middle[len(middle) // 2]
