"""TorchRL's batched environments, without their hold on the thread count of the process."""

from __future__ import annotations

from typing import Any

import torch
from torchrl.envs import ParallelEnv, SerialEnv


class _KeepsThreads:
    """Closing gives back as many threads as there were, whatever TorchRL thinks it had taken."""

    def close(self, **kwargs: Any) -> None:
        threads = torch.get_num_threads()
        try:
            super().close(**kwargs)  # type: ignore[misc]
        finally:
            torch.set_num_threads(threads)


class SteadySerialEnv(_KeepsThreads, SerialEnv):
    """``SerialEnv`` that leaves the number of threads alone when it is closed."""


class SteadyParallelEnv(_KeepsThreads, ParallelEnv):
    """``ParallelEnv`` that leaves the number of threads alone when it is closed."""
