"""Base of both collectors with workers: it starts, watches and ends the processes."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping
from typing import Any, Literal

import torch
from torchrl.collectors._multi_base import MultiCollector

from torchrl_elegant.collectors.workers.arguments import Policy, WorkerArguments
from torchrl_elegant.collectors.workers.liveness import close_at_exit, end_group, raise_if_dead
from torchrl_elegant.collectors.workers.weights import Weights
from torchrl_elegant.collectors.workers.worker import WorkerLink


class MultiWorkerBase(MultiCollector):
    """Workers with weights in shared memory; dead ones are named, and none is left behind.

    Subclasses keep the one count of frames, under the name `_frames` that TorchRL reads.
    """

    _shutdown_complete = True  # until there is something to shut down

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # TorchRL's metaclass would show the arguments of its own `__call__`.
        own = inspect.signature(cls.__init__)
        cls.__signature__ = own.replace(parameters=[*own.parameters.values()][1:])

    def __init__(
        self,
        arguments: WorkerArguments,
        link: WorkerLink,
        *,
        policy: Policy | None,
        frames_per_batch: int,
        total_frames: int,
        seed: int | None,
        threads_per_worker: int,
        frames_done: int,
        trajectory_ids: Literal["shared", "own"],
    ) -> None:
        factory = arguments.factory(
            link,
            seed=seed,
            frames_done=frames_done,
            threads=threads_per_worker,
            trajectory_ids=trajectory_ids,
        )
        self._link, self._owner = link, os.getpid()
        self._threads = torch.get_num_threads()
        self.procs: list[Any] = []
        close_at_exit(self)
        # Each worker unpickles a copy of its own: it shares no tensor with the learner.
        copy = arguments.policy
        super().__init__(
            arguments.env_fns,
            policy_factory=None if copy is None else lambda: copy,
            collector_class=factory,
            replay_buffer=link.rings,
            frames_per_batch=frames_per_batch,
            num_threads=self._threads,
            num_sub_threads=threads_per_worker,
            **arguments.options,
        )
        self.policy = policy
        self.total_frames = float("inf") if total_frames < 0 else total_frames
        self.init_random_frames, self._frames = link.init_random_frames, frames_done

    @property
    def frames(self) -> int:
        """Frames collected so far, those of the resumed run included."""
        return self._frames

    def update_policy_weights_(
        self,
        policy_or_weights: Weights | None = None,
        *,
        weights_dict: Mapping[str, Weights] | None = None,
    ) -> None:
        """Publishes weights and buffers; every worker takes them before its next rollout.

        Args:
            policy_or_weights: a module or its weights; by default the collector's policy.
            weights_dict: the same under the name "policy", as TorchRL's trainers pass it.
        """
        if self._link.weights is None:
            raise RuntimeError("`policy` must be a torch.nn.Module for its weights to be updated")
        source = _one_source(policy_or_weights, weights_dict, default=self.policy)
        self._link.weights.publish(source, alive=self.check)

    def check(self) -> None:
        """Raises RuntimeError if a worker died; the message names it and the cause."""
        if not self._shutdown_complete:
            raise_if_dead(self.procs, self._link.message)

    def _recv_and_check(self, pipe: Any, **kwargs: Any) -> Any:
        # Workers leave their gates to answer.
        self._link.gates.interrupt(1)
        try:
            return super()._recv_and_check(pipe, **kwargs)
        finally:
            self._link.gates.interrupt(0)

    def __enter__(self) -> MultiWorkerBase:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.shutdown(raise_on_error=False)

    def _shutdown_main(self, timeout: float | None = None) -> None:
        if self._shutdown_complete or self._owner != os.getpid():
            return
        self._link.gates.stop()
        if timeout is None and any(process.exitcode for process in self.procs):
            timeout = 2.0  # the others may wait in vain for a lock that a dead worker held
        super()._shutdown_main(timeout)
        torch.set_num_threads(self._threads)
        for process in self.procs:
            if process.exitcode:
                end_group(process.pid)


def _one_source(
    given: Weights | None, named: Mapping[str, Weights] | None, *, default: Weights
) -> Weights:
    """The weights meant by the arguments of TorchRL's `update_policy_weights_`."""
    if named is None:
        return default if given is None else given
    if given is not None or set(named) != {"policy"}:
        raise ValueError(
            f"`weights_dict` must be given alone and hold 'policy' only, got {sorted(named)}"
        )
    return named["policy"]
