"""What runs have shown: statistics over their seeds."""

from torchrl_elegant.reports.statistics import Bootstrap, Interval, interquartile_mean, mean, std

__all__ = ["Bootstrap", "Interval", "interquartile_mean", "mean", "std"]
