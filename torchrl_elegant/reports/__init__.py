"""Reports: statistics over seeds, and runs compared on one page."""

from torchrl_elegant.reports.comparison import Comparison, compare
from torchrl_elegant.reports.statistics import Bootstrap, Interval, interquartile_mean, mean, std

__all__ = [
    "Bootstrap",
    "Comparison",
    "Interval",
    "compare",
    "interquartile_mean",
    "mean",
    "std",
]
