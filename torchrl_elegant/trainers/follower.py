"""What ranks beside the first have for a monitor."""

from __future__ import annotations

from tensordict import TensorDictBase

from torchrl_elegant.trainers.clock import Clock
from torchrl_elegant.trainers.distributed import Ranks
from torchrl_elegant.trainers.progress import Progress
from torchrl_elegant.trainers.signals import StopSignals
from torchrl_elegant.trainers.sources import Source


class Follower:
    """Stops when the first rank's monitor does; its ``clock`` is told, and asked by nobody."""

    def __init__(self, progress: Progress, signals: StopSignals, ranks: Ranks) -> None:
        self.progress, self.signals, self.ranks = progress, signals, ranks
        self.clock = Clock()

    def note(self, metrics: TensorDictBase) -> None:
        """Leave the metrics to the first rank."""

    def after(self, source: Source) -> bool:
        """Whether all ranks go on."""
        self.progress.frames = source.frames
        return self.ranks.agree(not self.signals.requested)

    def finish(self, source: Source) -> None:
        """Leave the end to the first rank."""
