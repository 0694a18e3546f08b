"""Collectors: in this process, in worker processes by rounds, and beside a learner."""

from torchrl.collectors import MultiAsyncCollector

from torchrl_elegant.collectors.asynchronous import AsyncCollector
from torchrl_elegant.collectors.parallel import ParallelCollector
from torchrl_elegant.collectors.sync import SyncCollector
from torchrl_elegant.collectors.workers.liveness import WorkerDiedError
from torchrl_elegant.collectors.workers.pacing import Pacer, Ticket
from torchrl_elegant.collectors.workers.weights import SharedWeights

# TorchRL's older name of the class.
MultiaSyncDataCollector = MultiAsyncCollector

__all__ = [
    "AsyncCollector",
    "MultiaSyncDataCollector",
    "Pacer",
    "ParallelCollector",
    "SharedWeights",
    "SyncCollector",
    "Ticket",
    "WorkerDiedError",
]
