"""Replay buffers and samplers, n-step rows, sequences, slices of episodes, running statistics."""

from torchrl_elegant.data.best_slices import BestSlices
from torchrl_elegant.data.junk import refilled, without_junk
from torchrl_elegant.data.multi_step import AHEAD, MultiStepFold
from torchrl_elegant.data.prioritized import PrioritizedSampler, Priority
from torchrl_elegant.data.replay import make_buffer, minibatches, shuffled
from torchrl_elegant.data.running_statistics import Moments, ReturnScale
from torchrl_elegant.data.segment_tree import MinSegmentTree, SumSegmentTree
from torchrl_elegant.data.sequences import SequenceFold, cut_rollout
from torchrl_elegant.data.slices import MASK, SliceCutter

__all__ = [
    "AHEAD",
    "MASK",
    "BestSlices",
    "MinSegmentTree",
    "Moments",
    "MultiStepFold",
    "PrioritizedSampler",
    "Priority",
    "ReturnScale",
    "SequenceFold",
    "SliceCutter",
    "SumSegmentTree",
    "cut_rollout",
    "make_buffer",
    "minibatches",
    "refilled",
    "shuffled",
    "without_junk",
]
