"""Writes a study of the H-term: what became of the claim, a table over seeds, curves, each seed."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from _hterm_claim import RULE, Verdict, judge
from _hterm_picture import draw
from _learning_report import by_algorithm
from _report import processor
from _seeds import SB3, Result, Training

from torchrl_elegant.reports import Bootstrap, Interval, interquartile_mean, mean, std

BOOTSTRAP = Bootstrap()

NOTE = (
    "IQM is the mean of the middle half of the seeds. In parentheses stand bootstrap intervals: "
    f"percentiles of {100 * BOOTSTRAP.confidence:g} % over {BOOTSTRAP.resamples} resamples of each "
    "arm's seeds; of ten seeds they are somewhat narrower than they should be. Better than base is "
    "the chance that a seed of the arm ends higher than one of the base, an equal end counting "
    "half. Minutes are those of one run with its evaluations, beside whatever else ran."
)


def write(
    results: Sequence[Result],
    folder: Path,
    *,
    trainings: Sequence[Training],
    seeds: Sequence[int],
    name: str,
    title: str,
    command: str,
) -> Path:
    """``<name>.md``, ``.csv`` and ``.png`` in ``folder``; returns the table's path."""
    folder.mkdir(parents=True, exist_ok=True)
    groups = dict(by_algorithm(results))
    path = folder / f"{name}.md"
    parts = [
        f"# {title}",
        f"`{command}`",
        f"Evaluated at the end over {trainings[0].episodes} episodes of the deterministic policy, "
        "begun from the same seeds in all runs. "
        f"{processor()}, {os.cpu_count()} cores.",
        "## The claim",
        *verdicts(groups, trainings),
        RULE,
        f"![curves and final returns]({name}.png)",
        "## Over seeds",
        table(groups),
        NOTE,
        "## Settings",
        settings(groups, trainings),
    ]
    if missing := unfinished(groups, trainings, seeds):
        parts.append(f"Not finished, and so left out: {missing}.")
    path.write_text("\n\n".join(parts) + "\n")
    write_seeds(results, folder / f"{name}.csv")
    draw(groups, folder / f"{name}.png", title=title)
    return path


def returns_of(group: Sequence[Result]) -> list[float]:
    return [result["evaluation"]["return_mean"] for result in group]


def number(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.1f}"


def signed(value: float) -> str:
    return f"{'+' if value >= 0 else ''}{number(value)}"


def percent(value: float) -> str:
    return f"{100 * value:+.0f} %"


def spread(interval: Interval, form: Any) -> str:
    if math.isnan(interval.value):
        return "-"
    return f"{form(interval.value)} ({form(interval.low)} to {form(interval.high)})"


def verdicts(groups: Mapping[str, Sequence[Result]], trainings: Sequence[Training]) -> list[str]:
    """A sentence per arm with the term; arms without are controls, of which it claims nothing."""
    base, *others = trainings
    with_term = [one for one in others if any(word.startswith("hterm") for word in one.words)]
    treated = [one for one in with_term if one.name in groups]
    against = returns_of(groups[base.name])
    said = [
        sentence(one.name, judge(returns_of(groups[one.name]), against, BOOTSTRAP))
        for one in treated
    ]
    if len(treated) > 1:
        said.append(
            f"{len(treated)} arms were tried against one base: the best of them is partly the "
            "luckiest, and is to be confirmed on seeds that were not used to choose it."
        )
    return said or ["No arm with the term has a finished seed yet."]


def sentence(name: str, verdict: Verdict) -> str:
    change, gain = verdict.change, verdict.gain
    if math.isnan(change.value):
        moved = "The change of the std over seeds is not defined"
    else:
        one_sided = "falls" if change.high < 0 else "rises"
        kind = "may fall or rise" if change.low <= 0 <= change.high else one_sided
        moved = f"The std over seeds {kind}: {spread(change, percent)}"
    return (
        f"**`{name}`: the claim {verdict.answer}.** {moved}. The mean differs by "
        f"{spread(gain, signed)}. That the std falls as far as claimed {verdict.steadier}; that "
        f"the variance falls so far {verdict.steadier_by_variance}; that the mean is no lower "
        f"{verdict.no_lower}."
    )


def table(groups: Mapping[str, Sequence[Result]]) -> str:
    lines = [
        "| arm | seeds | IQM | mean | std over seeds | std beside base | better than base | "
        "worst seed | frames | minutes |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    against = returns_of(next(iter(groups.values())))
    for name, group in groups.items():
        returns, last = returns_of(group), [result["curve"][-1] for result in group]
        change = chance = "-"
        if len(lines) > 2:
            change = spread(BOOTSTRAP.relative_change(returns, against, std), percent)
            better = BOOTSTRAP.probability_of_improvement(returns, against)
            chance = spread(better, "{:.2f}".format)
        cells = (
            name,
            len(returns),
            *(spread(BOOTSTRAP.of(returns, of), number) for of in (interquartile_mean, mean, std)),
            change,
            chance,
            number(min(returns)),
            f"{mean([row['frames'] for row in last]):.0f}",
            f"{mean([row['seconds'] for row in last]) / 60:.1f}",
        )
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def settings(groups: Mapping[str, Sequence[Result]], trainings: Sequence[Training]) -> str:
    """What each arm was told, and what of that its runs have written down in other words."""
    lines = []
    base = stored_settings(groups[trainings[0].name])
    for one in trainings:
        if one.name not in groups:
            continue
        words = " ".join((f"algorithm={one.algorithm}", *one.words))
        lines.append(f"- `{one.name}`: `{words}`.")
        if one.algorithm.startswith(SB3):
            continue
        own = stored_settings(groups[one.name])
        mixed = sorted(key for key, values in own.items() if len(values) > 1)
        if mixed:
            lines.append(f"  Its seeds do not agree in {quoted(mixed)}: they are not comparable.")
        if one is not trainings[0]:
            apart = sorted(key for key in own.keys() | base.keys() if own.get(key) != base.get(key))
            lines.append(
                f"  By their stored settings its runs differ from the base's in {quoted(apart)}."
            )
    return "\n".join(lines)


def quoted(keys: Sequence[str]) -> str:
    return ", ".join(f"`{key}`" for key in keys) or "nothing"


def stored_settings(group: Sequence[Result]) -> dict[str, set[str]]:
    """Every setting with the values that it has in the seeds' runs."""
    found: dict[str, set[str]] = {}
    for result in group:
        for key, value in flat(result["settings"]).items():
            found.setdefault(key.removeprefix("config."), set()).add(repr(value))
    return found


def flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in settings.items():
        inner = isinstance(value, dict) and value
        found |= flat(value, f"{prefix}{key}.") if inner else {f"{prefix}{key}": value}
    return found


def unfinished(
    groups: Mapping[str, Sequence[Result]],
    trainings: Sequence[Training],
    seeds: Sequence[int],
) -> str:
    parts = []
    for one in trainings:
        done = {result["seed"] for result in groups.get(one.name, ())}
        if left := [str(seed) for seed in seeds if seed not in done]:
            parts.append(f"`{one.name}` seeds {', '.join(left)}")
    return "; ".join(parts)


def write_seeds(results: Sequence[Result], path: Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["arm", "seed", "return", "std_over_episodes", "frames", "minutes"])
        for result in results:
            final, last = result["evaluation"], result["curve"][-1]
            numbers = (final["return_mean"], final["return_std"])
            row = (f"{numbers[0]:.3f}", f"{numbers[1]:.3f}", f"{last['frames']:.0f}")
            writer.writerow(
                [result["algorithm"], result["seed"], *row, f"{last['seconds'] / 60:.2f}"]
            )
