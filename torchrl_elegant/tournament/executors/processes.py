"""Worker processes, forked from one that has imported everything; none outlives its owner."""

from __future__ import annotations

import importlib
import json
import logging
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import traceback
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from time import monotonic
from typing import Any, NoReturn

import cloudpickle
import torch

from torchrl_elegant.config.text import UsageError
from torchrl_elegant.tournament.executors.protocol import Event, Hear
from torchrl_elegant.tournament.pod import Order, Result, Stop, Work, carry_out
from torchrl_elegant.tournament.resources import visible_gpus

logger = logging.getLogger(__name__)

# Seconds between two signs of life, and those that an end may take.
_BEAT, _PATIENCE = 0.5, 10.0
_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from torchrl_elegant.tournament.executors.processes import fork_on_demand; fork_on_demand()"
)
# Modules of pods, which each fork has already; tensordict imports pandas when it is first called.
_PRELOADED = ("torchrl_elegant.tournament.training", "pandas")
# One thread each, before anything is imported that would start more.
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class _Worker:
    def __init__(self, connection: Connection, devices: str) -> None:
        self.connection, self.devices = connection, devices
        self.pid: int | None = None
        self.order: Order | None = None

    def send(self, **page: Any) -> None:
        self.send_bytes(json.dumps(page).encode())

    def send_bytes(self, data: bytes) -> None:
        # Its end is noticed where it is read from.
        with suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send_bytes(data)

    def end(self) -> None:
        """Kill the worker and all that it has started; it leads a session of its own."""
        self.connection.close()
        if self.pid is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)


class _Forker:
    """Process that imports everything once, and forks a worker whenever it is asked."""

    def __init__(self) -> None:
        self._ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, json.dumps(sys.path)],
                stdin=theirs.fileno(),
                env={**os.environ, **dict.fromkeys(_THREADS, "1")},
                # The terminal's Ctrl-C reaches this process alone, which has pods end in order.
                start_new_session=True,
            )
        self._is_ready = False

    def fork(self) -> Connection:
        """Fork a worker; returns the line to it."""
        if not self._is_ready and not self._ours.recv(1):
            raise BrokenPipeError
        self._is_ready = True
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                socket.send_fds(self._ours, [b"f"], [theirs.fileno()])
            except OSError:
                ours.close()
                raise
        return Connection(ours.detach())

    def close(self) -> None:
        """End the process; workers do not depend on it."""
        self._ours.close()
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def require_gpus(gpus: float) -> None:
    """Refuse more GPUs for a pod than there are.

    >>> require_gpus(0)
    """
    count = len(visible_gpus()) if gpus else 0
    if gpus and count < max(1, int(gpus)):
        fits = f"at most {count}, the GPUs there are," if count else "0 on a machine without GPUs,"
        raise UsageError(
            f"`gpus` must be {fits} got {gpus:g}; set gpus={count}, or look what "
            "CUDA_VISIBLE_DEVICES says"
        )


class ProcessExecutor:
    """Runs pods in worker processes, which are forked in milliseconds and used again.

    A process of its own imports everything once, with one thread and without touching a GPU, and
    forks workers from then on. It and every worker end with the process that made the executor,
    whatever ends that. Signals of the terminal do not reach them.

    Args:
        work: what a pod does.
        results: folder of result files.
        threads: torch threads of each worker.
        gpus: of one pod; each worker sees those that it is given alone. 0 leaves all to all.
    """

    is_local = True

    def __init__(self, work: Work, results: Path, *, threads: int = 1, gpus: float = 0.0) -> None:
        self._gpus = gpus
        self._workers: list[_Worker] = []
        require_gpus(gpus)
        setting = (work, results, threads, logger.getEffectiveLevel())
        self._setting = cloudpickle.dumps(setting)
        self._forker = _Forker()

    def start(self, text: str) -> None:
        """Hand an order to a worker."""
        shares = self._shares()
        # Of equal ones the first; a device that has gone is none of them.
        devices = min(shares, key=lambda one: shares[one], default="")
        free = (one for one in self._workers if one.order is None and one.devices == devices)
        worker = next(free, None) or self._fork(devices)
        worker.order = Order.from_json(text)
        worker.send(order=text)

    @property
    def most(self) -> int | None:
        """Pods that the GPUs have room for; any number without."""
        if not self._gpus:
            return None
        return len(self._shares()) * max(1, int(1 / self._gpus + 1e-9))

    def stop(self, pod: int, reason: Stop) -> None:
        """Ask a pod to end soon."""
        for worker in self._of(pod):
            worker.send(stop=reason, pod=pod)

    def kill(self, pod: int) -> None:
        """End a pod with its process."""
        for worker in self._of(pod):
            self._drop(worker)

    def wait(self, seconds: float, hear: Hear) -> None:
        """Tell what has happened, once anything has."""
        workers = {worker.connection: worker for worker in self._workers}
        for connection in wait(list(workers), seconds):
            worker = workers[connection]  # type: ignore[index]
            # An earlier event may have ended this one.
            if worker in self._workers:
                self._read(worker, hear)

    def close(self) -> None:
        """End all processes."""
        for worker in list(self._workers):
            self._drop(worker)
        self._forker.close()

    def _of(self, pod: int) -> list[_Worker]:
        return [one for one in self._workers if one.order is not None and one.order.pod == pod]

    def _shares(self) -> dict[str, int]:
        """Devices that a pod is given, as CUDA_VISIBLE_DEVICES names them, and pods on each."""
        if not self._gpus:
            return {}
        found, each = visible_gpus(), max(1, int(self._gpus))
        groups = (found[begin : begin + each] for begin in range(0, len(found), each))
        busy = [one.devices for one in self._workers if one.order is not None]
        return {
            name: busy.count(name) for one in groups if len(one) == each and (name := ",".join(one))
        }

    def _fork(self, devices: str) -> _Worker:
        try:
            worker = _Worker(self._forker.fork(), devices)
        except (BrokenPipeError, ConnectionResetError):
            # The system may have ended it for want of memory; its workers live on.
            self._forker.close()
            self._forker = _Forker()
            worker = _Worker(self._forker.fork(), devices)
        worker.send_bytes(devices.encode())
        worker.send_bytes(self._setting)
        self._workers.append(worker)
        return worker

    def _drop(self, worker: _Worker) -> None:
        self._workers.remove(worker)
        worker.end()

    def _read(self, worker: _Worker, hear: Hear) -> None:
        try:
            page = json.loads(worker.connection.recv_bytes())
        except (EOFError, OSError):
            order = worker.order
            self._drop(worker)
            if order is not None:
                lost = Result(pod=order.pod, attempt=order.attempt, kind="lost")
                hear(Event(pod=order.pod, attempt=order.attempt, result=lost))
            return
        if "pid" in page:
            worker.pid = page["pid"]
            return
        result = Result(**page["result"]) if "result" in page else None
        if result is not None:
            worker.order = None
            if result.kind != "done":
                # One that was stopped has no slot any more; one that failed may be spoilt.
                self._drop(worker)
            hear(Event(pod=result.pod, attempt=result.attempt, result=result))
        else:
            hear(Event(**page))


def fork_on_demand() -> NoReturn:
    """Fork a worker for each file descriptor that comes over stdin, until that is closed."""
    for name in _PRELOADED:
        importlib.import_module(name)
    orders = socket.socket(fileno=0)
    orders.send(b"r")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        try:
            message, descriptors, _, _ = socket.recv_fds(orders, 1, 1)
        except ConnectionResetError:
            message, descriptors = b"", []
        if not message:
            os._exit(0)
        if os.fork() == 0:
            orders.close()
            try:
                _serve(Connection(descriptors[0]))
            except EOFError:
                pass  # nobody needs it any more
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        os.close(descriptors[0])


def _serve(connection: Connection) -> NoReturn:
    """Carry out orders, one after another."""
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    worker = _Serving(connection)
    worker.send(pid=os.getpid())
    if devices := connection.recv_bytes().decode():
        os.environ["CUDA_VISIBLE_DEVICES"] = devices
    work, results, threads, level = cloudpickle.loads(connection.recv_bytes())
    logging.basicConfig(level=max(level, logging.WARNING), format="%(message)s")
    torch.set_num_threads(threads)
    signal.signal(signal.SIGTERM, worker.on_signal)
    threading.Thread(target=worker.listen, daemon=True).start()
    while True:
        order = worker.next()
        result = carry_out(work, order, worker, results)
        worker.done(result)


class _Serving:
    """The worker's end of the line, and the link of the pod at work."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._orders: queue.SimpleQueue[Order] = queue.SimpleQueue()
        self._order: Order | None = None
        self._stops: dict[int, Stop] = {}
        self._said = 0.0

    def send(self, **page: Any) -> None:
        try:
            self._connection.send_bytes(json.dumps(page).encode())
        except OSError:
            os._exit(1)

    def listen(self) -> None:
        """Take in what the owner says; once it is gone, nobody waits for this process."""
        while True:
            try:
                page = json.loads(self._connection.recv_bytes())
            except (EOFError, OSError):
                os.killpg(0, signal.SIGKILL)
            if "order" in page:
                order = Order.from_json(page["order"])
                # One that came when the pod had ended is not for its next attempt.
                self._stops.pop(order.pod, None)
                self._orders.put(order)
            else:
                self._stops[page["pod"]] = page["stop"]

    def next(self) -> Order:
        """The next order."""
        self._order = self._orders.get()
        self._said = monotonic()
        return self._order

    def done(self, result: Result) -> None:
        """Tell the end of the order."""
        self.send(result=vars(result))
        self._stops.pop(result.pod, None)

    def on_signal(self, number: int, frame: object) -> None:
        """After SIGTERM the pod at work leaves what it has."""
        if self._order is None:
            os._exit(0)
        self._stops[self._order.pod] = "preempted"

    def beat(self) -> Stop | None:
        assert self._order is not None
        if monotonic() - self._said > _BEAT:
            self._said = monotonic()
            self.send(pod=self._order.pod, attempt=self._order.attempt)
        return self._stops.get(self._order.pod)

    def report(self, rung: int, score: float, frames: int) -> None:
        assert self._order is not None
        self.send(
            pod=self._order.pod,
            attempt=self._order.attempt,
            rung=rung,
            score=score,
            frames=frames,
        )
