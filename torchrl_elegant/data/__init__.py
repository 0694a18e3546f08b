"""Replay stores, and rollouts in parts."""

from torchrl_elegant.data.minibatches import minibatches
from torchrl_elegant.data.moments import Moments
from torchrl_elegant.data.multi_step import AHEAD, MultiStepFold
from torchrl_elegant.data.prioritized import PrioritizedSampler, Priority
from torchrl_elegant.data.replay import make_buffer
from torchrl_elegant.data.return_scale import ReturnScale
from torchrl_elegant.data.segment_tree import MinSegmentTree, SumSegmentTree

__all__ = [
    "AHEAD",
    "MinSegmentTree",
    "Moments",
    "MultiStepFold",
    "PrioritizedSampler",
    "Priority",
    "ReturnScale",
    "SumSegmentTree",
    "make_buffer",
    "minibatches",
]
