"""Memory and cores of this machine, and the refusal of what does not fit into them."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import perf_counter
from typing import TypeVar

from torchrl_elegant.config.text import UsageError

logger = logging.getLogger(__name__)

Part = TypeVar("Part")

#: Threads, or processes, that are allowed for each core. More only wait for one another.
PER_CORE = 32
# Parts made before memory is looked at, and between two looks; seconds between two messages.
_FIRST, _EVERY, _PATIENCE = 16, 64, 5.0
# Threads and processes that any machine is allowed.
_ALWAYS = 64
_CGROUPS = Path("/sys/fs/cgroup")
_MEMORY, _OWN = Path("/proc/meminfo"), Path("/proc/self")


def available_memory() -> int:
    """Bytes that this process can still take, as kernel, container and ``ulimit`` allow.

    >>> available_memory() > 0
    True
    """
    return max(0, min(_limits()))


def own_memory() -> int:
    """Bytes that this process has in memory; 0 where the system does not say."""
    pages = _text(_OWN / "statm").split()
    return int(pages[1]) * os.sysconf("SC_PAGE_SIZE") if pages else 0


def cores() -> int:
    """Cores that this process may run on, as its affinity and its container's quota allow."""
    try:
        count = len(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        count = os.cpu_count() or 1
    # Half a core more is no core for another process.
    return max(1, min([count, *map(int, _quotas())]))


def total_memory() -> int:
    """Bytes that are built in."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def require_memory(
    name: str, needed: float, given: str, way_out: str = "", *, there: int | None = None
) -> None:
    """Refuse the option ``name`` if ``needed`` bytes are more than ``there`` are.

    >>> require_memory("buffer_size", 1e18, "1000000000000000 rows of 1,000 bytes")
    Traceback (most recent call last):
    torchrl_elegant.config.text.UsageError: `buffer_size` must fit into memory, got ...
    """
    there = available_memory() if there is None else there
    if needed > there:
        raise UsageError(
            f"`{name}` must fit into memory, got {given}, which take {_told(needed)} of "
            f"{_told(there)} that there are; {way_out or f'lower {name}'}"
        )


def require_cores(name: str, count: int, given: str) -> None:
    """Refuse the option ``name`` if its ``count`` threads or processes are too many.

    >>> require_cores("threads", 10**6, "1000000 threads")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    torchrl_elegant.config.text.UsageError: `threads` must be at most ...
    """
    most = max(_ALWAYS, PER_CORE * cores())
    if count > most:
        raise UsageError(
            f"`{name}` must be at most {most} on this machine of {cores()} cores, got {given}; "
            f"lower {name}"
        )


def within_memory(name: str, parts: Sequence[Part]) -> Iterator[Part]:
    """Yield the parts that the caller makes, which are as many as the option ``name`` says.

    It tells how far it is where that takes long, and refuses the option once those that are made
    show that all of them will not fit into memory.

    >>> len(list(within_memory("num_envs", ["a", "b"])))
    2
    """
    count, before = len(parts), 0
    said = begun = perf_counter()
    for number, part in enumerate(parts):
        if number == _FIRST:
            # What the first ones import is not made again.
            before = own_memory()
        elif number > _FIRST and number % _EVERY == 0:
            each, there = (own_memory() - before) / (number - _FIRST), available_memory()
            given = f"{count} of about {each / (1 << 20):.2g} MiB each"
            require_memory(name, each * (count - number), given, there=there)
        if perf_counter() - said > _PATIENCE:
            said = perf_counter()
            left = (said - begun) / number * (count - number)
            logger.warning("%s: %d of %d made, about %.0f s more", name, number, count, left)
        yield part


def _limits() -> Iterator[int]:
    yield _free_memory()
    for limit, used in _container():
        yield limit - used
    yield from _address_space()


def _free_memory() -> int:
    """Bytes that the kernel could hand out without swapping."""
    lines = _text(_MEMORY).splitlines()
    found = {name: rest.split() for name, _, rest in (line.partition(":") for line in lines)}
    if "MemAvailable" in found:
        return int(found["MemAvailable"][0]) << 10
    return total_memory()


def _container() -> Iterator[tuple[int, int]]:
    """Limit and use of each control group around this process that has a limit."""
    first, second = ("limit_in_bytes", "usage_in_bytes"), ("max", "current")
    for group, is_second in _groups("memory"):
        names = (f"memory.{name}" for name in (second if is_second else first))
        limit, used = (_text(group / name).strip() for name in names)
        if limit.isdigit() and used.isdigit():
            yield int(limit), int(used) - _file_pages(group)


def _quotas() -> Iterator[float]:
    """Cores that each control group around this process may use, if it has a quota."""
    for group, is_second in _groups("cpu"):
        if is_second:
            words = _text(group / "cpu.max").split()
        else:
            words = [_text(group / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period")]
        # Without a quota the first is "max" or -1.
        if len(words) == 2 and words[0].isdigit():
            yield int(words[0]) / int(words[1])


def _groups(kind: str) -> Iterator[tuple[Path, bool]]:
    """Control groups of a kind around this process; True for those of the second version."""
    for line in _text(_OWN / "cgroup").splitlines():
        number, kinds, path = line.split(":", 2)
        if number != "0" and kind not in kinds.split(","):
            continue
        top = _CGROUPS if number == "0" else _CGROUPS / kind
        # A container sees its own group as the root, whatever its path says.
        own = top / path.lstrip("/")
        for group in {top, own, *(up for up in own.parents if top in up.parents)}:
            yield group, number == "0"


def _file_pages(group: Path) -> int:
    """Bytes of files that a group has read, which give way to what programs ask for."""
    rows = (line.split() for line in _text(group / "memory.stat").splitlines())
    pages = ("inactive_file", "active_file")
    return sum(int(row[1]) for row in rows if len(row) == 2 and row[0] in pages)


def _address_space() -> Iterator[int]:
    """Bytes that are left of a limit set by ``ulimit -v``."""
    try:
        import resource
    except ImportError:  # not on this system
        return
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    pages = _text(_OWN / "statm").split()
    if limit != resource.RLIM_INFINITY and pages:
        yield limit - int(pages[0]) * os.sysconf("SC_PAGE_SIZE")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""


def _told(count: float) -> str:
    """Bytes in words.

    >>> _told(3 << 20), _told(2.5 * (1 << 40))
    ('3.0 MiB', '2,560.0 GiB')
    """
    unit, name = (1 << 30, "GiB") if count >= 1 << 30 else (1 << 20, "MiB")
    return f"{count / unit:,.1f} {name}"
