"""Resources of this machine as they change: slots for its cores and memory, disk, GPUs."""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from torchrl_elegant.config.machine import available_memory, cores
from torchrl_elegant.tournament.pod import Result

logger = logging.getLogger(__name__)

# Seconds between two looks.
_LOOK = 1.0
# Bytes of a disk that stay free, and the part of a small disk.
_FREE, _PART = 100_000_000, 0.05
_GPU = re.compile(r"nvidia\d+")


@dataclass(frozen=True)
class Machine:
    """Readings of a machine: cores, and bytes of memory and disk that are free.

    ``held`` gives the bytes of memory that the pods have now. Tests put numbers in their place.
    """

    cores: Callable[[], int] = cores
    memory: Callable[[], int] = available_memory
    held: Callable[[], int] = lambda: memory_below(os.getpid())
    disk: Callable[[Path], tuple[int, int]] = lambda path: shutil.disk_usage(path)[::2]


class Room:
    """Slots that a machine has room for, looked up once a second.

    There is one for each ``cpus`` cores, as far as the most memory that any pod has taken so far
    fits into what is free together with what pods have. One slot stays: whoever took as much
    before fitted as well.

    Args:
        folder: that of the tournament.
        cpus: cores of one pod.
        peaks: bytes of memory and of the checkpoint of the largest pods so far.
        machine: readings.

    >>> room = Room(Path("."), machine=Machine(cores=lambda: 8, memory=lambda: 3, held=lambda: 2))
    >>> room.note([Result(pod=1, attempt=1, kind="done", memory=1)])
    >>> room.slots()
    5
    """

    def __init__(
        self,
        folder: Path,
        *,
        cpus: float = 1.0,
        peaks: tuple[int, int] = (0, 0),
        machine: Machine | None = None,
    ) -> None:
        self._folder, self._cpus = folder, cpus
        self._memory, self._size = peaks
        self._machine = machine or Machine()
        self._looked = -_LOOK
        self._slots, self._has_disk, self._is_tight = 1, True, False

    def note(self, results: Iterable[Result]) -> None:
        """Learn from results what a pod takes."""
        for one in results:
            self._memory, self._size = max(self._memory, one.memory), max(self._size, one.size)

    def slots(self) -> int:
        """Pods for whose cores and memory there is room."""
        self._look()
        return self._slots

    def has_disk(self) -> bool:
        """True if the disk has room for checkpoints of new pods."""
        self._look()
        return self._has_disk

    def _look(self) -> None:
        if monotonic() - self._looked < _LOOK:
            return
        self._looked = monotonic()
        self._slots = self._by_memory(max(1, int(self._machine.cores() / self._cpus)))
        total, free = self._machine.disk(self._folder)
        floor = min(_FREE, int(_PART * total)) + self._size * self._slots
        if (free > floor) != self._has_disk:
            self._has_disk = free > floor
            self._tell_of_disk(free, floor)

    def _by_memory(self, count: int) -> int:
        there = self._machine.memory()
        # What pods have now is counted only where it matters: it takes milliseconds.
        fit = count if self._memory * count <= there else self._fitting(there)
        if (fit < count) != self._is_tight:
            self._is_tight = fit < count
            told = (self._memory >> 20, there >> 20)
            if self._is_tight:
                logger.info(
                    "%d slots of %d: a pod takes up to %d MiB, %d are free", fit, count, *told
                )
            else:
                logger.info("memory has room for all %d slots again", count)
        return min(count, fit)

    def _fitting(self, there: int) -> int:
        return max(1, (there + self._machine.held()) // self._memory)

    def _tell_of_disk(self, free: int, floor: int) -> None:
        told = (self._folder, free / 1e6, floor / 1e6)
        if self._has_disk:
            logger.info("the disk of %s has room again: %.0f MB", *told[:2])
        else:
            logger.warning(
                "no new pods: the disk of %s has %.0f MB, and %.0f must be free; remove files, or "
                "set store_mb lower",
                *told,
            )


def memory_below(pid: int, proc: Path = Path("/proc")) -> int:
    """Bytes in memory of all processes that a process has started, and that those have."""
    found: dict[int, tuple[int, int]] = {}
    for path in proc.glob("[0-9]*/stat"):
        try:
            words = path.read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        # Fields 4 and 24 of proc(5): its parent, and its pages in memory.
        found[int(path.parent.name)] = int(words[1]), int(words[21])
    below = {pid}
    while more := {one for one, (parent, _) in found.items() if parent in below} - below:
        below |= more
    return sum(found[one][1] for one in below - {pid}) * os.sysconf("SC_PAGE_SIZE")


def visible_gpus(devices: Path = Path("/dev")) -> tuple[str, ...]:
    """NVIDIA devices that a process may use, as CUDA_VISIBLE_DEVICES names them.

    The driver is not asked: a process that has talked to it cannot be forked.
    """
    count = sum(_GPU.fullmatch(path.name) is not None for path in devices.iterdir())
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return tuple(map(str, range(count)))
    names = [name.strip() for name in chosen.split(",")]
    return tuple(name for name in names if name and count and not _is_beyond(name, count))


def _is_beyond(name: str, count: int) -> bool:
    """True for the number of a device that is not there; names such as GPU-1a2b are believed."""
    return name.lstrip("-").isdigit() and not 0 <= int(name) < count


class SlotsFile:
    """File in which a user writes how many pods may run at a time.

    What is no such number changes nothing, and is told once.

    >>> SlotsFile(Path("/nowhere/slots")).read() is None
    True
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._text = ""
        self._count: int | None = None

    def read(self) -> int | None:
        """The number, or the last one that was good; None without a file."""
        try:
            text = self._path.read_text(encoding="utf-8", errors="replace").strip()
        except FileNotFoundError:
            self._text, self._count = "", None
            return None
        except OSError as error:
            text = error.strerror or str(error)
        # An empty file is about to be written.
        if text and text != self._text:
            self._text = text
            if text.isdecimal():
                self._count = int(text)
            else:
                kept = "nothing changes" if self._count is None else f"it stays {self._count}"
                told = "%s must hold a number that is not below 0, got %r: %s"
                logger.warning(told, self._path, text, kept)
        return self._count
