"""Collector in this process; it steps the simulator directly if it can."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from tensordict import TensorDictBase
from torchrl.collectors import Collector
from torchrl.envs import EnvBase

from torchrl_elegant.collectors.rollout.batched import batched_rollout
from torchrl_elegant.collectors.rollout.finite_check import FiniteCheck, finite_check
from torchrl_elegant.collectors.rollout.gymnasium_rollout import extends_buffer, gymnasium_rollout
from torchrl_elegant.collectors.rollout.own_tensors import watch_outputs
from torchrl_elegant.collectors.signatures import shows_arguments
from torchrl_elegant.functional import junk_keys, junk_of
from torchrl_elegant.modules import RestartsRows


class FastRollout(Protocol):
    """Rollout that replaces TorchRL's and gives the same batches."""

    def key_names(self) -> set[str]:
        """All names in the keys of a batch."""

    def collect(self, collector: Collector) -> TensorDictBase:
        """One batch, in new memory unless the caller asked for the same TensorDict."""


#: Makers of fast rollouts; each gives None for a collector that it does not suit. The first that
#: suits is taken.
FAST_ROLLOUTS: list[Callable[[Collector], FastRollout | None]] = [
    gymnasium_rollout,
    batched_rollout,
]


#: Arguments that TorchRL takes for its own class alone, to choose another one.
_DISPATCH = {"backend", "backend_options", "num_collectors", "sync"}


class SyncCollector(Collector):
    """TorchRL's `Collector`, faster: same arguments, same batches, same trajectory ids.

    Over Gymnasium simulators in host memory (our `GymnasiumEnv`; TorchRL's `GymEnv` and
    `GymWrapper`, alone or in a `SerialEnv`) it steps the simulators themselves, calls the policy
    once per step on the whole batch, and writes rows in place. TorchRL's usual counters and casts
    are made once a batch; any other transforms, statistics among them, are called once a step as
    TorchRL calls them. Over environments in tensors it calls their `_step` and `_reset`. A
    TensorDict module with a method `act(*in_keys) -> *out_keys` is called without a TensorDict.
    Everything else (simulators in other processes, a policy on another device, compiled policies,
    writing frame by frame) runs TorchRL's own rollout; `is_lean` tells which. Measured in
    `benchmarks/collection.py` and `benchmarks/transforms.py`.

    Batches stay on the environment's device; put the policy there too, or give `policy_device`.
    Over an environment that declares `resets_by_mask`, collection never waits for its device.

    A reward or observation that is not finite raises `FloatingPointError`: at once on the CPU, at
    a later batch on other devices (`CheckLater`). Frames that `extend_buffer=False` writes to the
    buffer are not checked. `check_finite=False` lets all numbers pass, for simulators whose last
    observation is NaN by intent.

    Where the environment flags junk (`functional.junk_of`), the entry `("collector", "mask")` is
    true for all other frames, as in TorchRL: its trainers store and count those alone.

    Simulators may return buffers that they write again: entries that share memory between the first
    steps are copied at every step, and a warning says which (`OwnTensors`).

    `set_seed` also resets: TorchRL leaves the first episode as it was before the seed.

    There is one count of frames, :attr:`frames`; it starts at `frames_done` and grows by each
    batch before the caller gets it.

    Args:
        create_env_fn: as TorchRL.
        policy: as TorchRL.
        frames_done: frames that a resumed run has collected before; `total_frames`,
            `init_random_frames` and error messages count them.
        check_finite: raise for a reward or observation that is not finite.
        **kwargs: as TorchRL, except `backend`, `backend_options`, `num_collectors` and `sync`,
            which choose a class there.

    >>> from torchrl_elegant.envs import make_env
    >>> collector = SyncCollector(make_env("CartPole-v1", 2), frames_per_batch=8, total_frames=16)
    >>> [batch.shape for batch in collector]
    [torch.Size([2, 4]), torch.Size([2, 4])]
    """

    @shows_arguments(Collector, without=_DISPATCH)
    def __init__(
        self,
        create_env_fn: EnvBase | Callable[[], EnvBase],
        policy: Callable[[TensorDictBase], TensorDictBase] | None = None,
        *,
        frames_done: int = 0,
        check_finite: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(create_env_fn, policy, **kwargs)
        self._frames = frames_done
        self._check_finite: FiniteCheck | None = None
        if check_finite:
            self._check_finite = finite_check(self.env, self.storing_device or self.env.device)
        if junk_keys(self.env) and extends_buffer(self):
            raise ValueError(
                "`replay_buffer` must be None for an environment that flags junk, got "
                f"`{type(self.replay_buffer).__name__}`, which would store it; extend it with "
                'batch[batch["collector", "mask"]]'
            )
        self._fast = self._find_fast()
        watch_outputs(self.env)
        self._own_carrier()
        # TorchRL has called the policy to see what it writes.
        self._restart_policy()
        # TorchRL clones what it yields because it writes into the same buffers again; a fast
        # rollout is new memory each time, unless the caller asked for the same TensorDict.
        if self._fast is not None and not extends_buffer(self):
            # Without a clone TorchRL would use a stream of its own, and wait for it at each batch.
            self.no_cuda_sync |= not kwargs.get("return_same_td", False)
            self.return_same_td = True
            # Looking for private keys in every batch costs as much as a small policy.
            self._exclude_private_keys = any(
                name.startswith("_") for name in self._fast.key_names()
            )

    def _find_fast(self) -> FastRollout | None:
        return next((fast for make in FAST_ROLLOUTS if (fast := make(self)) is not None), None)

    @property
    def frames(self) -> int:
        """Frames collected so far, those of the resumed run included."""
        return self._frames

    @property
    def is_lean(self) -> bool:
        """True if rollouts step the environment directly."""
        return self._fast is not None

    @torch.no_grad()
    def rollout(self) -> TensorDictBase | None:
        """One batch of frames."""
        if self._fast is None:
            batch = super().rollout()
        else:
            if self.pre_collect_hook is not None:
                self.pre_collect_hook()
            if self.reset_at_each_iter:
                self._own_carrier().update(self.env.reset(), inplace=True)
                self._restart_policy()
                self._start_new_trajectories()
            batch = self._maybe_set_truncated(self._fast.collect(self))
        if batch is None:
            return None
        if (junk := junk_of(batch)) is not None:
            batch.set(("collector", "mask"), ~junk)
        if self._check_finite is not None:
            self._check_finite(batch, frames=self._frames)
        return batch

    def reset(self, index: torch.Tensor | None = None, **kwargs: Any) -> None:
        """Resets the environments, or those at `index`."""
        self._own_carrier()
        super().reset(index, **kwargs)
        self._restart_policy(index)

    def _restart_policy(self, index: torch.Tensor | None = None) -> None:
        """Lets a policy that carries something from step to step begin anew."""
        if isinstance(self.policy, RestartsRows):
            rows = torch.zeros(self.env.batch_size, dtype=torch.bool)
            rows[... if index is None else index] = True
            self.policy.restart(rows)

    def _own_carrier(self) -> TensorDictBase:
        # TorchRL writes into the present state. Its tensors may be the environment's own, or
        # expanded ones, into which nothing can be written.
        self._carrier: TensorDictBase = self._carrier.clone()
        return self._carrier

    def set_seed(self, seed: int, static_seed: bool = False) -> int:
        """Seeds the environments and resets them; returns the next seed."""
        next_seed = super().set_seed(seed, static_seed=static_seed)
        self.reset()
        return next_seed
