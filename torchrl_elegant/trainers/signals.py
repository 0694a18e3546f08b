"""Ask a training loop to stop between two updates instead of killing it inside one."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

__all__ = ["StopSignals"]


class StopSignals:
    """Turn the first SIGINT or SIGTERM into a flag; the second SIGINT interrupts at once.

    Handlers are replaced on entry and put back on exit. Outside the main thread, where Python
    allows no handlers, nothing is replaced and `requested` stays False.

    >>> import os
    >>> with StopSignals() as stop:
    ...     os.kill(os.getpid(), signal.SIGTERM)
    ...     stop.requested, stop.reason
    (True, 'SIGTERM')
    """

    def __init__(self) -> None:
        self.reason: str | None = None
        self._previous: dict[signal.Signals, Any] = {}

    @property
    def requested(self) -> bool:
        """Whether a signal has asked for the end."""
        return self.reason is not None

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._previous.items():
            # A handler that was not installed from Python reads back as None and cannot be set.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._previous.clear()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        if not self.requested:
            self.reason = signal.Signals(number).name
