"""`BridgedTask`: a VecTask in a process of its own, under an interpreter of its own."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import select
import subprocess
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from torchrl_elegant.envs.batched import vectask_server as server

_SHARED = "/dev/shm"
# Last characters of what a server wrote, for the error that names its end.
_TOLD = 2000


class BridgedTask:
    """Runs a VecTask by another Python and exchanges tensors with it in shared memory.

    A step costs one byte each way and one copy of each tensor on each side
    (`benchmarks/isaac_bridge.py`). The simulator may live on a GPU: its tensors go through host
    memory then, and are on `device` again here.

    The server's process ends with this object, and with this process, however it ends; the shared
    memory has no name that could stay behind. A server that has died or does not answer raises one
    `RuntimeError` with the end of what it wrote.

    Args:
        python: interpreter of the simulator, for example `/opt/isaacgym/bin/python3.8`. It needs
            NumPy and torch of its own, and nothing of this package.
        make: `"module:callable"` that makes the task there.
        arguments: keyword arguments of it, in JSON's types.
        seed: of Python's, NumPy's and torch's random numbers there, before the task is made; None
            takes one from the operating system.
        resets: style of the task (`VecTaskEnv`).
        device: where tensors are handed over.
        path: folders to import from.
        first: modules to import before all others, and before torch.
        start_timeout: seconds that the task may take to be made.
        timeout: seconds that a step may take.
    """

    def __init__(
        self,
        python: str,
        make: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        resets: str,
        seed: int | None = None,
        device: torch.device | str = "cpu",
        path: Sequence[str] = (),
        first: Sequence[str] = (),
        start_timeout: float = 600.0,
        timeout: float = 60.0,
    ) -> None:
        if resets not in server.STYLES:
            raise ValueError(f"`resets` must be one of {server.STYLES}, got `{resets}`")
        self.resets, self.device = resets, torch.device(device)
        if self.device.type == "cuda" and (self.device.index or 0) >= torch.cuda.device_count():
            raise ValueError(
                f"`device` must be one of the {torch.cuda.device_count()} GPUs that torch finds "
                f"here, or cpu, got `{device}`"
            )
        self._timeout, self._name = timeout, make
        # Between a request and its answer; stays True after an interrupt.
        self._awaiting = False
        spec = {
            "make": make,
            "arguments": dict(arguments or {}),
            "resets": resets,
            "seed": seed,
            "path": list(path),
            "first": list(first),
        }
        self._start(python, json.dumps(spec))
        try:
            self._connect(start_timeout)
        except BaseException:
            self._end()
            raise

    def _start(self, python: str, spec: str) -> None:
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        theirs, self._requests = os.pipe()
        self._replies, answers = os.pipe()
        # The file loses its name at once: nothing is left behind, whoever is killed.
        self._memory, name = tempfile.mkstemp(dir=_SHARED if Path(_SHARED).is_dir() else None)
        os.unlink(name)
        given = [str(number) for number in (theirs, answers, self._memory, os.getpid())]
        try:
            self._process = subprocess.Popen(
                [python, server.__file__, spec, *given],
                pass_fds=(theirs, answers, self._memory),
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                env={k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")},
            )
        except OSError as error:
            for number in (self._requests, self._replies, self._memory):
                os.close(number)
            raise ValueError(
                f"`python` must be an interpreter that runs, got `{python}`: {error.strerror}"
            ) from error
        finally:
            os.close(theirs)
            os.close(answers)
        numbers = (self._requests, self._replies, self._memory)
        self._end = weakref.finalize(self, _end, self._process, numbers, self._log)

    def _connect(self, timeout: float) -> None:
        self._poll = select.poll()
        self._poll.register(self._replies, select.POLLIN)
        self._await(timeout, "making its task")
        count = int.from_bytes(os.read(self._replies, 4), "little")
        told = b""
        while len(told) < count:
            told += os.read(self._replies, count - len(told))
        self.sizes: dict[str, int] = json.loads(told)
        size = server.layout(self.sizes)[1]
        os.ftruncate(self._memory, size)
        arrays = server.arrays_in(mmap.mmap(self._memory, size), self.sizes)
        self._shared = {name: torch.from_numpy(array) for name, array in arrays.items()}
        self._say(server.READY)

    def begin(self) -> server.Signals:
        """Starts all rows anew."""
        self._settle()
        self._ask(server.BEGIN, "starting its rows")
        return self._signals()

    def step(self, actions: Tensor, marks: Tensor) -> server.Signals:
        """Steps all rows; those in ``marks`` are reset by the way."""
        self._settle()
        self._shared["action"].copy_(actions)
        self._shared["marks"].copy_(marks)
        self._ask(server.STEP, "a step")
        return self._signals()

    def reset_done(self, rows: Tensor) -> dict[str, Tensor]:
        """Resets exactly ``rows``, flags ``[n]``; returns what all rows show."""
        self._settle()
        self._shared["marks"].copy_(rows)
        self._ask(server.RESET_DONE, "a reset")
        return self._seen()

    def close(self) -> None:
        """Ends the server."""
        self._end()

    def _seen(self) -> dict[str, Tensor]:
        names = ["observation", *(["state"] if self.sizes["num_states"] else [])]
        return {name: self._taken(name) for name in names}

    def _signals(self) -> server.Signals:
        return server.Signals(
            self._seen(), self._taken("reward"), self._taken("done"), self._taken("time_out")
        )

    def _taken(self, name: str) -> Tensor:
        return self._shared[name].to(self.device, copy=True)

    def _settle(self) -> None:
        """Discards the answer to a call that was interrupted, if there was one."""
        if not self._end.alive:
            raise RuntimeError(f"the server of `{self._name}` is closed; make another one")
        if self._awaiting:
            # Whether the server was asked, and was heard, is not known: its echo comes last.
            self._say(server.ECHO)
            while self._await(self._timeout, "a call that was interrupted") != server.ECHO:
                pass
            self._awaiting = False

    def _ask(self, what: bytes, doing: str) -> None:
        self._awaiting = True
        self._say(what)
        self._await(self._timeout, doing)
        self._awaiting = False

    def _say(self, what: bytes) -> None:
        with contextlib.suppress(BrokenPipeError):  # what it has left to say is read next
            os.write(self._requests, what)

    def _await(self, timeout: float, doing: str) -> bytes:
        if not self._poll.poll(timeout * 1000.0):
            self._raise(f"did not answer for {timeout:g} seconds in {doing}")
        answer = os.read(self._replies, 1)
        if answer not in (server.READY, server.ECHO):
            self._raise(f"failed in {doing}" if answer else f"died in {doing}")
        return answer

    def _raise(self, what: str) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=1.0 if "not answer" not in what else 0.0)
        self._log.seek(0)
        told = self._log.read()[-_TOLD:].decode(errors="replace").strip()
        code = self._process.poll()
        ended = "" if code is None else f" (exit code {code})"
        self._end()
        raise RuntimeError(
            f"the server of `{self._name}` {what}{ended}; "
            + (f"its last words:\n{told}" if told else "it wrote nothing")
        )


def _end(process: subprocess.Popen, numbers: Sequence[int], log: IO[bytes]) -> None:
    """Ends a server: by its closed pipe, or else by force."""
    for number in numbers:
        os.close(number)
    try:
        process.wait(timeout=0.5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    log.close()
