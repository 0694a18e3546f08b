"""The command of `train_stock.py`: trains on early days, and reports what happens on later ones."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from torchrl_elegant.algorithms import ALGORITHMS, AlgorithmConfig, that_take
from torchrl_elegant.algorithms.tuned import is_tuned, tuned_settings
from torchrl_elegant.cli.command_line import HELP_WORDS, Options, import_named, parse, run_main
from torchrl_elegant.cli.stock_runs import (
    refuse_another,
    refuse_taken,
    run_folders,
    train_window,
)
from torchrl_elegant.cli.training import set_process
from torchrl_elegant.config.blame import mistakes_are_told
from torchrl_elegant.config.options import check, check_options, option
from torchrl_elegant.envs.batched import StockTradingEnv
from torchrl_elegant.envs.batched.stock import EPISODE_DAYS
from torchrl_elegant.envs.markets import Market, load_market
from torchrl_elegant.envs.markets.market import day_of
from torchrl_elegant.reports.backtest import REBALANCED, Track, chained, compared, play
from torchrl_elegant.reports.trading import TradingReport
from torchrl_elegant.runs.folder import run_path
from torchrl_elegant.runs.policy import Policy
from torchrl_elegant.trainers.run_config import RunConfig

ENV = "elegant/stock"
# Part of the days that is kept for the backtest unless `split` says so.
_TESTED = 0.25
_MOST_WINDOWS = 100


@dataclass(frozen=True, kw_only=True)
class StockOptions:
    """Options of `train_stock.py` itself."""

    #: Stands above them on the help page.
    heading: ClassVar[str] = "prices, days and report"

    market: str = option(
        "synthetic",
        "synthetic; sp500: 20 stocks, 1990 to 2022; or a table in .csv, .parquet or .npz with the "
        "columns date, ticker, close, and any features",
    )
    tickers: tuple[str, ...] | None = option(None, "assets to trade; none: all")
    index: str | None = option(
        None, "asset that is the index: reported, not traded; none: the market's own, if any"
    )
    start: str | None = option(None, "first day to train on, as 2010-01-31; none: the first")
    split: str | None = option(
        None, "first day of the backtest; none: the last quarter of the days is tested"
    )
    end: str | None = option(None, "day before which the backtest ends; none: after the last")
    windows: int = option(
        1,
        "parts of the backtest, one after the other; before each a policy is trained anew on all "
        "days before it (walk-forward)",
        low=1,
        high=_MOST_WINDOWS,
    )
    trials: int = option(
        1, "policies tried so far, this one included, by which the Sharpe is deflated", low=1
    )
    resume: str | None = option(
        None,
        "folder of a study that was ended early, to go on with it; the other words stay as they "
        "were, without folder",
    )
    module: str | None = option(None, "module to import first: one that registers algorithms")

    def __post_init__(self) -> None:
        check_options(self)

    def market_words(self) -> dict[str, Any]:
        """Arguments of the environment that name the market."""
        words: dict[str, Any] = {"market": self.market}
        if self.tickers is not None:
            words["tickers"] = list(self.tickers)
        return words | ({} if self.index is None else {"index": self.index})


@dataclass(frozen=True, kw_only=True)
class Window:
    """Days to train on, up to `split`, and days to test, before `end`; None for the last day."""

    split: str
    end: str | None


def windows_of(market: Market, options: StockOptions) -> list[Window]:
    """Windows of a walk-forward backtest, of equal lengths.

    Each ends on the day on which the next begins, so that no day's return is missing.

    >>> from torchrl_elegant.envs.markets import synthetic_market
    >>> market = synthetic_market(days=12, assets=2)
    >>> for window in windows_of(market, StockOptions(windows=2, split="2010-01-12")):
    ...     print(window.split, window.end)
    2010-01-12 2010-01-15
    2010-01-14 None
    """
    days = market.between(options.start, options.end)
    first = days.start + int((1 - _TESTED) * (days.stop - days.start))
    if options.split is not None:
        first = int(np.searchsorted(market.dates, day_of("split", options.split)))
    split, count = options.split or str(market.dates[first]), options.windows
    span = f"{market.dates[days.start]} to {market.dates[days.stop - 1]}"
    must = f"leave two days before it to train on, of {span}"
    check(first >= days.start + 2, "split", must, split)
    tested = days.stop - 1 - first
    check(tested >= count, "split", f"leave each of {count} windows two days, of {span}", split)
    cuts = [first + tested * number // count for number in range(count + 1)]
    ends = [str(market.dates[cut + 1]) for cut in cuts[1:-1]]
    return [
        Window(split=str(market.dates[cut]), end=end)
        for cut, end in zip(cuts[:-1], [*ends, options.end], strict=True)
    ]


@dataclass(frozen=True, kw_only=True)
class StockStudy:
    """Trains a policy for each window of a market and tests it there."""

    run: RunConfig
    config: AlgorithmConfig
    algorithm: str
    own: StockOptions
    market: Market
    windows: Sequence[Window]

    @classmethod
    def of(cls, options: Options) -> StockStudy:
        """Checks all that the words say, before anything is trained."""
        run, own = options.run, options.extra
        with mistakes_are_told():
            fitting = that_take("continuous")
            must, way_out = "take continuous actions of one agent", ", ".join(fitting)
            fits = options.config.name in fitting
            check(fits, "algorithm", must, options.algorithm, f"choose among {way_out}")
            check(run.env == ENV, "env", f"be {ENV}", run.env, "name the data by market=...")
            taken = sorted(_OWN & run.env_kwargs.keys())
            way_out = "use the words market, tickers, index, start, split, end"
            check(not taken, "env_kwargs", "leave the days to other words", taken, way_out)
            market = load_market(own.market, tickers=own.tickers, index=own.index)
            study = cls(
                run=run,
                config=options.config,
                algorithm=options.algorithm.rpartition(":")[2],
                own=own,
                market=market,
                windows=windows_of(market, own),
            )
            for window in study.windows:
                StockTradingEnv(**study.training(window))
                study.tested(window)
            way_out = "leave it out: the study goes on in its own folder"
            alone = own.resume is None or run.folder is None
            check(alone, "folder", "be none with resume", run.folder, way_out)
        return study

    def training(self, window: Window) -> dict[str, Any]:
        """Arguments of the environments to train in."""
        start = {} if self.own.start is None else {"start": self.own.start}
        days = self.market.between(self.own.start, window.split)
        whole = days.stop - days.start - 1
        short = {"episode_days": whole} if whole < EPISODE_DAYS else {}
        words = {**short, **self.run.env_kwargs, **self.own.market_words(), "end": window.split}
        return words | start

    def tested(self, window: Window) -> StockTradingEnv:
        """The environment of a backtest."""
        words = {**self.run.env_kwargs, "market": self.market, "episode_days": None}
        return StockTradingEnv(**words, start=window.split, end=window.end)

    @cached_property
    def folder(self) -> Path:
        """Folder of the report: that of the run, or of the runs of all windows."""
        resumed = self.own.resume
        return run_path(self.run, self.algorithm) if resumed is None else Path(resumed)

    def runs(self) -> list[RunConfig]:
        """Configurations of the runs of all windows; refuses a folder that does not fit."""
        places = run_folders(self.folder, len(self.windows))
        runs = [
            replace(self.run, folder=str(place), env_kwargs=self.training(window))
            for window, place in zip(self.windows, places, strict=True)
        ]
        if self.own.resume is None:
            refuse_taken(self.folder, places)
        else:
            refuse_another(self.folder, runs, self.config)
        return runs

    def track(self, window: Window, run: RunConfig) -> Track:
        """Trades the days of a window by the policy that its run has left."""
        return play(Policy.load(Path(str(run.folder)) / "policy.pt"), self.tested(window))

    def report(self, tracks: Sequence[Track]) -> TradingReport:
        """The policy beside simple rules over the same days."""
        first = self.tested(self.windows[0])
        days = self.market.between(self.windows[0].split, self.windows[-1].end)
        rules = {"cash": first.initial_cash, "cost": first.cost}
        return TradingReport(
            title=f"{self.algorithm} on {self.own.market}",
            notes=self._notes(first),
            tracks=compared(chained(tracks, cost=first.cost), self.market, days, **rules),
            trials=self.own.trials,
        )

    def _notes(self, env: StockTradingEnv) -> list[str]:
        lot = env.max_stock or "an equal part of the first cash"
        first = self.own.start or self.market.dates[0]
        cuts = ", ".join(window.split for window in self.windows)
        lasted = [
            str(self.training(window).get("episode_days", EPISODE_DAYS)) for window in self.windows
        ]
        return [
            f"Trained on the days from {first} up to {cuts}, for "
            f"{self.run.total_frames:,} frames each, seed {self.run.seed}.",
            f"Episodes of training lasted {', '.join(dict.fromkeys(lasted))} days.",
            f"{len(self.market.tickers)} assets: {', '.join(self.market.tickers)}.",
            f"Cash at first {env.initial_cash:,.0f}, cost of a trade {env.cost:.2%}, lot {lot}. "
            "Trades take place at the close that the policy sees.",
            "The backtest begins in cash. So does every window: what the one before holds is sold "
            "at the first close of the next, at the same cost.",
            f"Equal weight is restored every {REBALANCED} days, at the same cost; the index is "
            "followed without cost.",
            *filter(None, [self.market.index_note]),
        ]


# Arguments of the environment that this command sets.
_OWN = frozenset({"market", "tickers", "index", "start", "end", "num_envs", "seed", "device"})


def stock_command(argv: Sequence[str], *, program: str) -> int:
    """Trains and backtests; returns the exit code, 2 for a mistake in the words."""

    def main(words: Sequence[str]) -> int:
        options = parse(
            import_named(words),
            algorithms=_offered(words),
            default="ppo",
            extra=StockOptions,
            preset=_preset,
            program=program,
        )
        study = StockStudy.of(options)
        set_process(study.run, study.config)
        runs = study.runs()
        for run in runs:
            if code := train_window(run, study.config):
                told = f"the same words, without folder, and resume={study.folder}"
                sys.stderr.write(f"no report yet: go on by {told}\n")
                return code
        tracks = [study.track(*each) for each in zip(study.windows, runs, strict=True)]
        report = study.report(tracks)
        page = report.write(study.folder)
        sys.stdout.write(f"{report.table().markdown()}\n\nreport: {page}\n")
        return 0

    return run_main(main, argv)


def _offered(words: Sequence[str]) -> Mapping[str, type]:
    """Algorithms that a help page lists: those that can trade; all others are refused later."""
    if not set(HELP_WORDS) & set(words):
        return ALGORITHMS
    return {name: ALGORITHMS[name] for name in that_take("continuous")}


def _preset(options: StockOptions, algorithm: str, env: str | None) -> dict[str, Any]:
    known = is_tuned(algorithm, ENV)
    return {"env": ENV, **(tuned_settings(algorithm, ENV) if known else {})}
