"""Ray actors on the nodes of a cluster; they are used again, and follow nodes that come and go."""

from __future__ import annotations

import logging
import os
import queue
import signal
import sys
import threading
import time
import traceback
import uuid
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import cloudpickle
import torch

from torchrl_elegant.config.text import UsageError
from torchrl_elegant.tournament.executors.protocol import Event, Hear
from torchrl_elegant.tournament.pod import Order, Result, Stop, Work, carry_out

logger = logging.getLogger(__name__)

# Seconds between two signs of life, and between two looks at the cluster's nodes.
_BEAT, _LOOK = 2.0, 1.0
# Seconds after which an actor without work gives its place back, so that a node can go.
_PATIENCE = 20.0
# Actors in a row that do not come up, after which nodes are at fault.
_STILLBORN = 3
#: File beside the leaderboard by which a node shows that it sees the same folder.
PROOF = ".cluster"


class RayExecutor:
    """Runs pods in actors of a Ray cluster, one after another in each.

    An actor asks for ``cpus`` and ``gpus`` of one node, so that a pod and the processes that it
    starts lie together. An order waits here until an actor is up. ``most`` is what the nodes have
    room for and a quarter more, so that a cluster that can grow sees what is wanted.

    Checkpoints and results go through the folder of the tournament, which all nodes must see under
    the same path. Ray ends the actors when this process ends, whatever ends it.

    Args:
        work: what a pod does.
        results: folder of result files.
        threads: torch threads of each actor.
        cpus, gpus: of one pod; parts of one are allowed.
    """

    is_local = False

    def __init__(
        self, work: Work, results: Path, *, threads: int = 1, cpus: float = 1.0, gpus: float = 0.0
    ) -> None:
        self._ray = _ray()
        self._results, self._proof = results.absolute(), uuid.uuid4().hex
        (self._results.parent / PROOF).write_text(self._proof, encoding="utf-8")
        self._is_guest = self._ray.is_initialized()
        if not self._is_guest:
            _connect(self._ray)
        setting = (work, self._results, threads, logger.getEffectiveLevel(), self._proof)
        self._setting = self._ray.put(cloudpickle.dumps(setting))
        self._needs = {name: one for name, one in (("CPU", cpus), ("GPU", gpus)) if one}
        make = self._ray.remote(concurrency_groups={"line": 1})(_Serving)
        self._make = make.options(num_cpus=cpus, num_gpus=gpus, max_restarts=0, max_task_retries=0)
        self._actors: list[_Actor] = []
        self._orders: deque[Order] = deque()
        self._over: list[Result] = []
        # Actors in a row that ended before they were up.
        self._stillborn = 0
        self._most, self._looked = 0, -_LOOK
        # Moments: when there last were not too many actors; when waiting orders last gave a sign.
        self._busy = self._said = monotonic()

    @property
    def most(self) -> int:
        """Pods that the nodes have room for now, and a quarter more."""
        if monotonic() - self._looked >= _LOOK:
            self._looked = monotonic()
            room = sum(self._room(one["Resources"]) for one in self._ray.nodes() if one["Alive"])
            self._most = room + max(1, room // 4)
        return self._most

    def start(self, text: str) -> None:
        """Hand an order to an actor, or keep it until one is up."""
        self._orders.append(Order.from_json(text))
        self._tend()

    def stop(self, pod: int, reason: Stop) -> None:
        """Ask a pod to end soon; one that waits for an actor has ended."""
        for order in [one for one in self._orders if one.pod == pod]:
            self._orders.remove(order)
            self._over.append(Result(pod=pod, attempt=order.attempt, kind="partial"))
        for actor in self._of(pod):
            # Beside `run`, which goes on meanwhile.
            actor.handle.stop.options(concurrency_group="line").remote(pod, reason)

    def kill(self, pod: int) -> None:
        """End a pod with its actor."""
        self._orders = deque(one for one in self._orders if one.pod != pod)
        for actor in self._of(pod):
            self._drop(actor)

    def wait(self, seconds: float, hear: Hear) -> None:
        """Tell what has happened, once anything has."""
        self._tend()
        self._tell_of_waiting(hear)
        lines = {actor.line: actor for actor in self._actors if actor.line is not None}
        if not lines:
            time.sleep(0.0 if self._over else seconds)
            return
        first, rest = self._ray.wait(list(lines), timeout=0.0 if self._over else seconds)
        more = self._ray.wait(rest, num_returns=len(rest), timeout=0.0)[0] if first and rest else []
        for line in (*first, *more):
            # An earlier event may have ended this one.
            if lines[line] in self._actors:
                self._read(lines[line], hear)

    def close(self) -> None:
        """End all actors; the cluster stays, unless it was started here."""
        for actor in list(self._actors):
            self._drop(actor)
        (self._results.parent / PROOF).unlink(missing_ok=True)
        if not self._is_guest:
            self._ray.shutdown()

    def _room(self, node: dict[str, float]) -> int:
        return min(int(node.get(name, 0.0) / one + 1e-9) for name, one in self._needs.items())

    def _of(self, pod: int) -> list[_Actor]:
        return [one for one in self._actors if one.order is not None and one.order.pod == pod]

    def _drop(self, actor: _Actor) -> None:
        self._actors.remove(actor)
        self._ray.kill(actor.handle)

    def _tend(self) -> None:
        """Give out orders, ask for actors that lack, and give back those without work."""
        now = monotonic()
        for actor in [one for one in self._actors if one.line is None]:
            if self._orders:
                actor.begin(self._orders.popleft())
            elif now - actor.free > _PATIENCE:
                self._drop(actor)
        coming = [one for one in self._actors if not one.is_up]
        for _ in range(len(self._orders) - len(coming)):
            self._actors.append(_Actor(self._make.remote(self._setting, sys.path)))
        if len(coming) <= len(self._orders):
            self._busy = now
        elif now - self._busy > _PATIENCE:
            for actor in coming[len(self._orders) :]:
                self._drop(actor)

    def _tell_of_waiting(self, hear: Hear) -> None:
        over, self._over = self._over, []
        for result in over:
            hear(Event(pod=result.pod, attempt=result.attempt, result=result))
        if monotonic() - self._said > _LOOK / 2:
            self._said = monotonic()
            # The lease is for pods at work: these wait for a node.
            for order in list(self._orders):
                hear(Event(pod=order.pod, attempt=order.attempt))

    def _read(self, actor: _Actor, hear: Hear) -> None:
        errors = self._ray.exceptions
        try:
            page = self._ray.get(actor.line if not actor.is_up else next(actor.line))
        except errors.RayTaskError as error:
            raise _refusal(error.cause) from error
        except errors.RayError as error:
            self._drop(actor)
            self._stillborn += not actor.is_up
            if self._stillborn >= _STILLBORN:
                raise _refusal(error) from error
            if actor.order is not None:
                logger.warning("pod %d: %s", actor.order.pod, _first_line(error))
                lost = Result(pod=actor.order.pod, attempt=actor.order.attempt, kind="lost")
                hear(Event(pod=lost.pod, attempt=lost.attempt, result=lost))
            return
        if not actor.is_up:
            self._greet(actor, page)
            return
        result = Result(**page["result"]) if "result" in page else None
        if result is None:
            hear(Event(**page))
            return
        actor.rest()
        if result.kind != "done":
            # One that was stopped has no slot any more; one that failed may be spoilt.
            self._drop(actor)
        hear(Event(pod=result.pod, attempt=result.attempt, result=result))

    def _greet(self, actor: _Actor, page: dict[str, Any]) -> None:
        if page["proof"] != self._proof:
            raise UsageError(
                f"`folder` must be on a disk that all nodes of the cluster share, got "
                f"{str(self._results.parent)!r}, which node {page['node']} does not see; choose "
                "another folder=..."
            )
        self._stillborn, actor.is_up = 0, True
        actor.rest()
        self._tend()


class _Actor:
    """An actor, as the executor sees it; ``line`` is what is waited for, None without work."""

    def __init__(self, handle: Any) -> None:
        self.handle = handle
        self.line: Any = handle.greet.remote()
        self.is_up = False
        self.order: Order | None = None
        self.free = monotonic()

    def begin(self, order: Order) -> None:
        self.order = order
        self.line = self.handle.run.options(num_returns="streaming").remote(order.to_json())

    def rest(self) -> None:
        self.order = self.line = None
        self.free = monotonic()


class _Serving:
    """The actor itself, and the link of the pod at work, which has a thread of its own."""

    def __init__(self, setting: bytes, paths: list[str]) -> None:
        self._setting = setting
        # As far as this node has them: modules that lie beside the user's script.
        sys.path += [path for path in paths if path not in sys.path]
        self._orders: queue.SimpleQueue[Order] = queue.SimpleQueue()
        self._news: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._order: Order | None = None
        self._stops: dict[int, Stop] = {}
        self._said = 0.0

    def greet(self) -> dict[str, Any]:
        """Get ready; tells which node this is, and what it sees of the folder."""
        work, results, threads, level, _ = cloudpickle.loads(self._setting)
        logging.basicConfig(level=max(level, logging.WARNING), format="%(message)s")
        torch.set_num_threads(threads)
        threading.Thread(target=self._work, args=(work, results), daemon=True).start()
        try:
            proof = (results.parent / PROOF).read_text(encoding="utf-8")
        except OSError:
            proof = ""
        return {"node": _ray().util.get_node_ip_address(), "proof": proof}

    def run(self, text: str) -> Iterator[dict[str, Any]]:
        """Carry out an order; yields its news, the result last."""
        self._orders.put(Order.from_json(text))
        page: dict[str, Any] = {}
        while "result" not in page:
            page = self._news.get()
            yield page

    def stop(self, pod: int, reason: Stop) -> None:
        """Have the pod's next sign of life end it."""
        self._stops[pod] = reason

    def beat(self) -> Stop | None:
        """Give a sign of life, now and then."""
        assert self._order is not None
        if monotonic() - self._said > _BEAT:
            self._said = monotonic()
            self._news.put({"pod": self._order.pod, "attempt": self._order.attempt})
        return self._stops.get(self._order.pod)

    def report(self, rung: int, score: float, frames: int) -> None:
        """Tell the score at a rung."""
        assert self._order is not None
        about = {"pod": self._order.pod, "attempt": self._order.attempt}
        self._news.put({**about, "rung": rung, "score": score, "frames": frames})

    def _work(self, work: Work, results: Path) -> None:
        try:
            while True:
                self._order = self._orders.get()
                self._said = monotonic()
                result = carry_out(work, self._order, self, results)
                self._stops.pop(result.pod, None)
                self._news.put({"result": vars(result)})
        except BaseException:
            traceback.print_exc()
            os._exit(1)


def _ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise UsageError(
            "`executor` cannot be ray without the package ray: pip install torchrl_elegant[ray]"
        ) from error
    return ray


def _connect(ray: Any) -> None:
    """Join the cluster that RAY_ADDRESS names, or that runs here; else start one here."""
    before = signal.getsignal(signal.SIGTERM)
    ray.init(logging_level=logging.WARNING)
    # Ray has put a handler of its own in its place.
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, before)


def _refusal(error: BaseException) -> UsageError:
    # Ray puts the cause into the last line of what it tells.
    cause = "" if "\n" not in str(error) else f" ({str(error).strip().splitlines()[-1].strip()})"
    return UsageError(
        "`executor` must be able to begin on all nodes, got one that cannot: "
        f"{_first_line(error)}{cause}; give all nodes the same packages"
    )


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
