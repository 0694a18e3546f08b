"""Pod: the protocol of one quantum of work, and what stands around it in any process."""

from __future__ import annotations

import errno
import json
import logging
import math
import os
import re
import resource
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from torchrl_elegant.config.blame import place
from torchrl_elegant.runs.files import FULL
from torchrl_elegant.tournament.store import DamagedError

logger = logging.getLogger(__name__)

#: Why a pod is told to stop: its slot is wanted, or it is hopeless.
Stop = Literal["preempted", "hopeless"]

_RESULT = re.compile(r"(\d+)-(\d+)\.json")


@dataclass(frozen=True, kw_only=True)
class Order:
    """Order for one attempt of a pod: plain data, which any process or machine can be sent.

    Args:
        pod, attempt: number of the pod, and how often it was started, this time included.
        operation: ``initial``, ``continue``, ``exploit``, ``twin`` or ``switch`` train; ``recheck``
            and ``final`` evaluate; ``fuse`` averages two checkpoints and evaluates the average.
        entry: index of the algorithm's configuration among those of the tournament.
        options: values of searched options.
        parent: digest of the checkpoint to begin with; None for a new network.
        start: digest of what an earlier attempt of this pod has left.
        amount: units that the earlier attempt has trained.
        budget, unit: units of the whole pod.
        rungs: amounts at which a score is reported.
        seed: of networks, environments and sampling.
        episodes: episodes of the evaluation.
        other: digest of the checkpoint that ``fuse`` averages ``parent`` with.
    """

    pod: int
    attempt: int
    operation: str
    entry: int
    options: dict[str, Any]
    parent: str | None
    start: str | None
    amount: float
    budget: float
    unit: Literal["frames", "updates", "seconds"]
    rungs: tuple[float, ...]
    seed: int
    episodes: int
    other: str | None = None

    def to_json(self) -> str:
        """The order as a text."""
        return json.dumps(vars(self))

    @classmethod
    def from_json(cls, text: str | bytes) -> Order:
        """The order in a text."""
        page = json.loads(text)
        return cls(**{**page, "rungs": tuple(page["rungs"])})


@dataclass(frozen=True, kw_only=True)
class Result:
    """End of one attempt of a pod.

    Args:
        pod, attempt: as in the order.
        kind: ``done``; ``partial`` after a pre-emption; ``ended`` for a hopeless one, and for an
            average that is worse than one of its parts, which ``error`` then tells; ``failed``;
            ``damaged`` where the checkpoint ``error`` could not be read; ``full`` where the disk
            was; ``lost`` where its process died.
        score, score_error, episodes: mean return, its standard error, and episodes played.
        amount: units trained so far, over all attempts.
        frames, updates, seconds: counts of the policy's whole life, and seconds of this attempt.
        memory: peak memory of the process in bytes.
        checkpoint, size: digest and bytes of what was published.
        error: reason of a failure or a refusal, in a line.
    """

    pod: int
    attempt: int
    kind: str
    score: float | None = None
    score_error: float | None = None
    episodes: int | None = None
    amount: float = 0.0
    frames: int = 0
    updates: int = 0
    seconds: float = 0.0
    memory: int = 0
    checkpoint: str | None = None
    size: int = 0
    error: str | None = None

    @property
    def is_finite(self) -> bool:
        """True if the score is a number that can be ranked."""
        return self.score is not None and math.isfinite(self.score)


class Link(Protocol):
    """Line between a pod at work and its orchestrator."""

    def beat(self) -> Stop | None:
        """Give a sign of life, cheaply; returns why to stop, None to go on."""

    def report(self, rung: int, score: float, frames: int) -> None:
        """Tell the score at a rung."""


#: What a pod does: trains and evaluates, or pretends to in tests and benchmarks.
Work = Callable[[Order, Link], Result]


def carry_out(work: Work, order: Order, link: Link, results: Path) -> Result:
    """Do the work of an order, and leave its result in a file before anybody is told.

    An orchestrator that was killed finds the file when it goes on. What the work raises is a
    result as well.
    """
    try:
        result = work(order, link)
    except DamagedError as error:
        result = _failure(order, "damaged", error.digest)
    except OSError as error:
        kind = "full" if error.errno in FULL else "failed"
        result = _failure(order, kind, _told(error))
    except FloatingPointError as error:
        result = _failure(order, "failed", str(error))
    except Exception as error:
        # Environments and networks of others may raise anything; one pod's end is nobody else's.
        logger.debug("pod %d failed", order.pod, exc_info=True)
        result = _failure(order, "failed", f"{_told(error)} ({place(error)})")
    leave(result, results)
    return result


def leave(result: Result, results: Path) -> None:
    """Write the file of a result in one step."""
    path = result_path(results, result.pod, result.attempt)
    stage = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        # Not flushed: a power cut costs the pod, as it would a moment earlier.
        stage.write_text(json.dumps(asdict(result)), encoding="utf-8")
        os.replace(stage, path)
    except OSError as error:
        if error.errno not in (*FULL, errno.ENOENT):
            raise
        logger.warning("the result of pod %d is not on the disk: %s", result.pod, error)


def left_results(results: Path) -> list[Result]:
    """Results in the files of a folder; torn files are passed over."""
    paths = sorted(path for path in results.iterdir() if _RESULT.fullmatch(path.name))
    return [result for path in paths if (result := left_result(path)) is not None]


def left_result(path: Path) -> Result | None:
    """The result in a file; None where there is none, or a torn one."""
    try:
        return Result(**json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        logger.warning("%s is passed over: %s", path, error)
        return None


def result_path(results: Path, pod: int, attempt: int) -> Path:
    """File of the result of one attempt."""
    return results / f"{pod}-{attempt}.json"


def peak_memory() -> int:
    """Bytes that this process has had in memory at most."""
    # Kilobytes on Linux.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def _failure(order: Order, kind: str, error: str) -> Result:
    return Result(
        pod=order.pod, attempt=order.attempt, kind=kind, error=error, memory=peak_memory()
    )


def _told(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
