"""Rounds: every worker collects once, and then none until the next round is granted."""

from __future__ import annotations

from multiprocessing.context import BaseContext

from torchrl._utils import _get_mp_ctx

from torchrl_elegant.collectors.pacing import _HEADER, _NAP, Gate, Pacer, Ticket


class Turns(Pacer):
    """A pacer that gives each worker one ticket a round, whoever is the faster.

    Args:
        workers: number of worker processes.
        context: multiprocessing context; TorchRL's by default.

    >>> turns = Turns(workers=1)
    >>> turns.grant(start=40)
    >>> turns.gate(0).acquire(4)
    Ticket(start=40, frames=4)
    """

    def __init__(self, *, workers: int, context: BaseContext | None = None) -> None:
        context = _get_mp_ctx() if context is None else context
        super().__init__(workers=workers, context=context)
        self._rounds = context.RawValue("q", 0)
        self._start = context.RawValue("q", 0)
        self._begun = context.RawArray("q", workers)

    def grant(self, *, start: int) -> None:
        """Lets every worker collect once; the first frame of the round is number `start`."""
        # The count last: it is what workers look at.
        self._start.value = start
        self._rounds.value += 1
        self._ring()

    @property
    def begun(self) -> bool:
        """Whether every worker has taken up the weights for its turn of the last round."""
        return min(self._begun) == self._rounds.value

    def gate(self, worker: int) -> TurnGate:
        """The gate that worker number `worker` passes before each rollout."""
        return TurnGate(self, worker)


class TurnGate(Gate):
    """One worker's way to its tickets: `acquire` blocks until the round has begun."""

    def __init__(self, turns: Turns, worker: int) -> None:
        super().__init__(turns, worker)
        self._turns, self._taken = turns, 0

    def acquire(self, frames: int) -> Ticket | None:
        """A ticket for `frames` frames, or None once the pacer interrupts."""
        turns, flag = self._turns, _HEADER + self._worker
        while not turns.interrupted:
            if turns._rounds.value > self._taken:
                self._taken += 1
                return Ticket(turns._start.value, frames)
            turns._cells[flag] = 1
            # A second look: the round may have begun before the flag was up.
            if turns._rounds.value == self._taken and not turns.interrupted:
                turns._bells[self._worker].acquire(timeout=_NAP)
            turns._cells[flag] = 0
        return None

    def began(self) -> None:
        """Says that this turn's weights are taken: newer ones no longer change it."""
        self._turns._begun[self._worker] = self._taken
