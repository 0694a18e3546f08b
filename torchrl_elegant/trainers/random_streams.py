"""Random streams of one trial, kept apart from those of the process and of other trials."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torchrl.checkpoint import GlobalRNGState

logger = logging.getLogger(__name__)


@contextmanager
def streams_kept() -> Iterator[None]:
    """Put the global random streams back afterwards, whatever is drawn or seeded inside.

    >>> state = torch.get_rng_state()
    >>> with streams_kept():
    ...     _ = torch.rand(1)
    >>> torch.equal(torch.get_rng_state(), state)
    True
    """
    streams = GlobalRNGState()
    before = streams.state_dict()
    try:
        yield
    finally:
        streams.load_state_dict(before)


class RandomStreams:
    """Streams of Python, NumPy and torch that a trial draws from while it is at work.

    ``active`` puts them in place and puts those of the caller back afterwards, so that a trial
    neither changes nor notices what the rest of the process draws. Trials in threads would disturb
    one another: the streams are the process's. As a component of a checkpoint
    it differs from TorchRL's ``GlobalRNGState``, which raises where the GPUs are other ones: here
    their streams stay as they are seeded, with a warning.

    Args:
        seed: where the streams begin.

    >>> streams = RandomStreams(7)
    >>> with streams.active():
    ...     first = torch.rand(1)
    >>> torch.equal(first, torch.rand(1)), sorted(streams.state_dict())[:2]
    (False, ['numpy', 'python'])
    """

    def __init__(self, seed: int) -> None:
        self._global = GlobalRNGState()
        self._own: Mapping[str, Any] | None = None
        self._depth = 0
        self.seed(seed)

    @contextmanager
    def active(self) -> Iterator[None]:
        """Draw from these streams inside; entering again inside changes nothing."""
        if self._depth:
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1
            return
        outer = self._global.state_dict()
        self._put(self._own or outer)
        self._depth = 1
        try:
            yield
        finally:
            self._depth = 0
            self._own = self._global.state_dict()
            self._put(outer)

    def seed(self, seed: int) -> None:
        """Begin all streams anew."""
        with self.active():
            torch.manual_seed(seed)
            # The old global states, because simulators and samplers of other packages use them.
            random.seed(seed)
            np.random.seed(seed % 2**32)  # noqa: NPY002

    def state_dict(self) -> dict[str, Any]:
        return dict(self._global.state_dict() if self._depth else self._own or {})

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        state = dict(state_dict)
        present = {
            "torch_cuda": torch.cuda.device_count() if torch.cuda.is_available() else 0,
            "torch_xpu": torch.xpu.device_count() if torch.xpu.is_available() else 0,
            "torch_mps": int(torch.backends.mps.is_available()),
        }
        for name, count in present.items():
            if name not in state:
                continue
            stored = 1 if isinstance(state[name], torch.Tensor) else len(state[name])
            if stored != count:
                del state[name]
                logger.warning(
                    "the random streams of %d devices (%s) are not restored: %d are here",
                    stored,
                    name,
                    count,
                )
        if self._depth:
            self._put(state)
        else:
            self._own = state

    def _put(self, state: Mapping[str, Any]) -> None:
        self._global.load_state_dict(state)
