"""Replay stores, and rollouts in parts."""

from torchrl_elegant.data.minibatches import minibatches
from torchrl_elegant.data.prioritized import PrioritizedSampler, Priority
from torchrl_elegant.data.replay import make_buffer
from torchrl_elegant.data.segment_tree import MinSegmentTree, SumSegmentTree

__all__ = [
    "MinSegmentTree",
    "PrioritizedSampler",
    "Priority",
    "SumSegmentTree",
    "make_buffer",
    "minibatches",
]
