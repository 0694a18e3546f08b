"""Whether runs bear out the claim: a std over seeds that falls by 65 to 86 %, and no lower mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from torchrl_elegant.reports import Bootstrap, Interval, mean, std

Answer = Literal["holds", "does not hold", "cannot be told"]

#: By how much the std is claimed to fall, of the base's.
FALLS = (0.65, 0.86)
#: The same numbers, read as those of the variance: so much the std falls then.
FALLS_OF_VARIANCE = tuple(1.0 - (1.0 - fall) ** 0.5 for fall in FALLS)
#: A mean that is lower by less than this part of the base's std is no lower mean.
MARGIN = 0.5

RULE = (
    f"The claim: the std over seeds falls by {FALLS[0]:.0%} to {FALLS[1]:.0%} with no lower mean. "
    f"Its first half holds where the whole interval of the std's change lies at -{FALLS[0]:.0%} "
    "or below, so that a larger fall counts too, and does not hold where the whole of it lies "
    "above. Its second half does not hold where the whole interval of the difference of means "
    f"lies below zero; else it holds where the interval lies above -{MARGIN:g} times the base's "
    "std. What is neither cannot be told. The claim holds where both halves do, and does not where "
    "one of them does not. Publications of ElegantRL call what falls the variance: a fall of the "
    f"variance by {FALLS[0]:.0%} to {FALLS[1]:.0%} is one of the std by {FALLS_OF_VARIANCE[0]:.0%} "
    f"to {FALLS_OF_VARIANCE[1]:.0%}, and the first half is judged so as well."
).replace("%", " %")


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The two halves of the claim, and the intervals that they were judged by."""

    change: Interval
    gain: Interval
    steadier: Answer
    steadier_by_variance: Answer
    no_lower: Answer

    @property
    def answer(self) -> Answer:
        halves = (self.steadier, self.no_lower)
        if "does not hold" in halves:
            return "does not hold"
        return "cannot be told" if "cannot be told" in halves else "holds"


def judge(runs: Sequence[float], base: Sequence[float], bootstrap: Bootstrap) -> Verdict:
    change = bootstrap.relative_change(runs, base, std)
    gain = bootstrap.difference(runs, base, mean)
    # Of one run there is no std, and of NaN nothing is larger.
    margin = MARGIN * float(std(base))
    known = min(len(runs), len(base)) > 1
    return Verdict(
        change=change,
        gain=gain,
        steadier=_steadier(change, FALLS[0]),
        steadier_by_variance=_steadier(change, FALLS_OF_VARIANCE[0]),
        no_lower=_no_lower(gain, margin) if known else "cannot be told",
    )


def _steadier(change: Interval, fall: float) -> Answer:
    if change.high <= -fall:
        return "holds"
    return "does not hold" if change.low > -fall else "cannot be told"


def _no_lower(gain: Interval, margin: float) -> Answer:
    if gain.high < 0.0:
        return "does not hold"
    return "holds" if gain.low >= -margin else "cannot be told"
