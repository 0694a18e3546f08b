"""A collector in this process that steps the simulator directly wherever it can."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from tensordict import TensorDictBase
from torchrl.collectors import Collector
from torchrl.envs import EnvBase

from torchrl_elegant.collectors.rollout.batched import batched_rollout
from torchrl_elegant.collectors.rollout.finite import finite_keys, require_finite
from torchrl_elegant.collectors.rollout.lean import extends_buffer, lean_rollout


class FastRollout(Protocol):
    """Takes the place of TorchRL's rollout where it gives the same batches."""

    def key_names(self) -> set[str]:
        """Every name that occurs in a key of a batch."""

    def collect(self, collector: Collector) -> TensorDictBase:
        """One batch, in memory of its own unless the caller asked for the same TensorDict."""


#: Each gives the fast rollout of a collector, or None where it has none; the first one is taken.
FAST_ROLLOUTS: list[Callable[[Collector], FastRollout | None]] = [lean_rollout, batched_rollout]


class SyncCollector(Collector):
    """TorchRL's `Collector`, with the same arguments, batches and trajectory ids, for less.

    Over Gymnasium simulators in host memory (our `GymnasiumEnv`; TorchRL's `GymEnv` and
    `GymWrapper`, alone, in a `SerialEnv`, or under its usual counters and casts) it steps the
    simulators themselves, calls the policy once per step on the whole batch, and writes rows in
    place; what is counted along episodes is worked out once a batch. A TensorDict module with a
    method `act(*in_keys) -> *out_keys` is called without a TensorDict. Everything that is not
    known to give the same values (other transforms, devices, compiled policies, writing frame by
    frame) runs TorchRL's own rollout; `is_lean` says which. Both raise `FloatingPointError` at
    the first reward or observation that is not finite, save for frames that
    `extend_buffer=False` writes to the buffer before they can be seen. Measured in `benchmarks/`.

    `set_seed` also resets: TorchRL leaves the first episode as it was before the seed.

    Args:
        create_env_fn: as TorchRL.
        policy: as TorchRL.
        frames_done: frames of the run that is resumed; `total_frames`, `init_random_frames` and
            error messages count them.
        **kwargs: as TorchRL.

    >>> from torchrl_elegant.envs import make_env
    >>> collector = SyncCollector(make_env("CartPole-v1", 2), frames_per_batch=8, total_frames=16)
    >>> [batch.shape for batch in collector]
    [torch.Size([2, 4]), torch.Size([2, 4])]
    """

    def __init__(
        self,
        create_env_fn: EnvBase | Callable[[], EnvBase],
        policy: Callable[[TensorDictBase], TensorDictBase] | None = None,
        *,
        frames_done: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(create_env_fn, policy, **kwargs)
        self._frames = frames_done
        self._finite_keys = finite_keys(self.env)
        self._fast = self._find_fast()
        # TorchRL clones what it yields because it writes into the same buffers again; a fast
        # rollout is new memory each time, unless the caller asked for the same TensorDict.
        if self._fast is not None and not extends_buffer(self):
            self.return_same_td = True
            # Looking for private keys in every batch costs as much as a small policy.
            self._exclude_private_keys = any(
                name.startswith("_") for name in self._fast.key_names()
            )

    def _find_fast(self) -> FastRollout | None:
        return next((fast for make in FAST_ROLLOUTS if (fast := make(self)) is not None), None)

    @property
    def frames(self) -> int:
        """How many frames it has collected, those of the resumed run included."""
        return self._frames

    @property
    def is_lean(self) -> bool:
        """Whether rollouts step the simulator directly."""
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
                self._carrier.update(self.env.reset(), inplace=True)
                self._start_new_trajectories()
            batch = self._maybe_set_truncated(self._fast.collect(self))
        if batch is not None:
            require_finite(batch, keys=self._finite_keys, frames=self._frames)
        return batch

    def set_seed(self, seed: int, static_seed: bool = False) -> int:
        """Seeds the environments and starts their episodes anew; returns the next seed."""
        next_seed = super().set_seed(seed, static_seed=static_seed)
        self.reset()
        return next_seed
