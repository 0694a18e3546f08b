"""Reports: statistics over the seeds of runs."""

from torchrl_elegant.reports.statistics import Bootstrap, Interval, interquartile_mean, mean, std

__all__ = ["Bootstrap", "Interval", "interquartile_mean", "mean", "std"]
