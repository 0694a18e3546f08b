"""Losses of teams."""

from torchrl_elegant.objectives.multiagent.qmix import QMixLoss

__all__ = ["QMixLoss"]
