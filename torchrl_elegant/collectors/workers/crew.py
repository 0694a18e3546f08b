"""What a collector with worker processes of its own needs, whichever way they take turns."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import torch
from torchrl.collectors._multi_base import MultiCollector

from torchrl_elegant.collectors.workers.liveness import close_at_exit, end_group, raise_if_dead
from torchrl_elegant.collectors.workers.weights import Weights, one_source
from torchrl_elegant.collectors.workers.worker import WorkerLink


class Crew(MultiCollector):
    """Weights through shared memory, deaths that are named, and nobody left behind."""

    def _enlist(self, link: WorkerLink) -> None:
        self._link, self._owner = link, os.getpid()
        self._threads = torch.get_num_threads()
        close_at_exit(self)

    def update_policy_weights_(
        self,
        policy_or_weights: Weights | None = None,
        *,
        weights_dict: Mapping[str, Weights] | None = None,
    ) -> None:
        """Publishes weights and buffers; every worker takes them up before its next rollout.

        Args:
            policy_or_weights: a module or its weights; by default the policy first given.
            weights_dict: the same under the name "policy", as TorchRL's trainers pass it.
        """
        if self._link.weights is None:
            raise RuntimeError("`policy` must be a torch.nn.Module for its weights to be updated")
        source = one_source(policy_or_weights, weights_dict, default=self.policy)
        self._link.weights.publish(source, alive=self.check)

    def check(self) -> None:
        """Raises RuntimeError if a worker died, saying which, how and why."""
        if not self._shutdown_complete:
            raise_if_dead(self.procs, self._link.message)

    def _recv_and_check(self, pipe: Any, **kwargs: Any) -> Any:
        # Workers leave their gates to answer.
        self._link.pacer.interrupt(1)
        try:
            return super()._recv_and_check(pipe, **kwargs)
        finally:
            self._link.pacer.interrupt(0)

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.shutdown(raise_on_error=False)

    def _shutdown_main(self, timeout: float | None = None) -> None:
        if self._shutdown_complete or self._owner != os.getpid():
            return
        self._link.pacer.stop()
        procs = getattr(self, "procs", ())
        if timeout is None and any(process.exitcode for process in procs):
            timeout = 2.0  # what a dead worker held, the others may wait for in vain
        super()._shutdown_main(timeout)
        torch.set_num_threads(self._threads)
        for process in procs:
            if process.exitcode:
                end_group(process.pid)
