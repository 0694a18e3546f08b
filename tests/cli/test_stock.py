"""`train_stock.py`: windows of days, a whole study, mistakes in a line."""

from __future__ import annotations

import json
import re
import signal
from dataclasses import replace

import numpy as np
import pytest

from torchrl_elegant.algorithms import PPOConfig
from torchrl_elegant.cli import stock_runs
from torchrl_elegant.cli.stock import StockOptions, StockStudy, stock_command, windows_of
from torchrl_elegant.config.options import options_of
from torchrl_elegant.envs import StockTradingEnv, synthetic_market
from torchrl_elegant.reports.backtest import play
from torchrl_elegant.runs import train
from torchrl_elegant.runs.callbacks import Callback
from torchrl_elegant.trainers.run_config import RunConfig

TINY = [
    *("num_envs=4", "frames_per_batch=64", "batch_size=32", "epochs=1", "num_cells=8"),
    *("total_frames=128", "eval_episodes=1", "eval_interval=128", "max_eval_steps=5"),
    *("logger=none", "progress=false", "tickers=S1,S2"),
]


def test_windows_meet_and_leave_no_day_out() -> None:
    market = synthetic_market(days=100, assets=2)
    whole = windows_of(market, StockOptions())[0]
    assert whole.split == str(market.dates[75])
    assert whole.end is None
    windows = windows_of(market, StockOptions(windows=3, split=str(market.dates[40])))
    spans = [market.between(each.split, each.end) for each in windows]
    assert [(span.start, span.stop) for span in spans] == [(40, 60), (59, 80), (79, 100)]


def test_a_report_tells_what_is_known_of_the_index_and_of_a_short_table() -> None:
    market = replace(synthetic_market(days=60, assets=2), index_note="It has no dividends.")
    own = StockOptions(windows=2)
    study = StockStudy(
        run=RunConfig(),
        config=PPOConfig(),
        algorithm="ppo",
        own=own,
        market=market,
        windows=windows_of(market, own),
    )
    still = np.zeros((1, 2), np.float32)
    tracks = [play(lambda seen: still, study.tested(window)) for window in study.windows]
    page = study.report(tracks).markdown()
    assert "\n- It has no dividends.\n" in page
    # A table shorter than a year is one episode.
    assert "Episodes of training lasted 44, 51 days." in page
    assert StockTradingEnv(**study.training(study.windows[0]), seed=0).episode_days == 44


def test_a_study_of_two_windows_leaves_runs_and_a_report(tmp_path, capsys) -> None:
    folder = tmp_path / "study"
    words = [*TINY, "windows=2", "start=2012-01-02", "split=2019-01-01", f"folder={folder}"]
    assert stock_command(words, program="train_stock.py") == 0
    told = capsys.readouterr().out
    assert "| Sharpe |" in told
    assert f"report: {folder / 'report.md'}" in told
    stored = json.loads((folder / "report.json").read_text())
    assert set(stored) == {"policy", "buy and hold", "equal weight", "index"}
    rows = (folder / "equity.csv").read_text().splitlines()[1:]
    assert rows[0].startswith("2019-01-01,1000000.00,1000000.00")
    assert len(rows) == 174
    configs = [(folder / f"window-{n}" / "config.yaml").read_text() for n in (1, 2)]
    assert "end: '2019-01-01'" in configs[0]
    assert "end: '2019-05-01'" in configs[1]
    assert all("start: '2012-01-02'" in config for config in configs)


class Kill(Callback):
    """Ends a run after its first round, as the end of a job does."""

    def on_rollout(self, run) -> None:
        signal.raise_signal(signal.SIGTERM)


def test_a_study_that_was_killed_goes_on_and_ends_as_if_it_had_not_been(
    tmp_path, capsys, monkeypatch
) -> None:
    words = [*TINY, "windows=2", "split=2019-01-01", "checkpoint_interval=64"]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert stock_command([*words, f"folder={whole}"], program="x") == 0
    begun, begin = [], stock_runs.run_with

    def run_with(run, config, folder):
        begun.append((run.folder, folder))
        if len(begun) == 2:
            fields = {name: getattr(run, name) for name in options_of(RunConfig)}
            return train(config, callbacks=[Kill()], **fields)
        return begin(run, config, folder)

    monkeypatch.setattr(stock_runs, "run_with", run_with)
    assert stock_command([*words, f"folder={killed}"], program="x") == 143
    assert f"resume={killed}" in capsys.readouterr().err
    assert not (killed / "report.md").exists()
    first = (killed / "window-1" / "policy.pt").stat().st_mtime_ns
    for more, told in (
        ([f"folder={killed}"], f"and resume={killed} instead"),
        ([f"resume={killed}", "gamma=0.5"], "`gamma` must stay 0.99"),
        ([f"resume={killed}", "cost=1"], "unknown option `cost`"),
        ([f"resume={killed}", "start=2011-01-03"], "`env_kwargs` must stay"),
        ([f"resume={killed}", f"folder={killed}"], "`folder` must be none with resume"),
        ([f"resume={tmp_path / 'no'}"], "`resume` must be the folder of a study"),
    ):
        assert stock_command([*words, *more], program="x") == 2
        assert told in capsys.readouterr().err
    assert stock_command([*words, f"resume={killed}", "threads=1"], program="x") == 0
    assert begun[2:] == [(str(killed / "window-2"), killed / "window-2")]
    assert (killed / "window-1" / "policy.pt").stat().st_mtime_ns == first
    ours, theirs = ((folder / "equity.csv").read_text().splitlines() for folder in (killed, whole))
    half = len(ours) // 2
    assert len(ours) == len(theirs) == 175
    assert ours[: half - 1] == theirs[: half - 1]
    assert ours[-1].split(",")[2:] == theirs[-1].split(",")[2:]
    assert stock_command([*words, f"resume={killed}"], program="x") == 2
    assert "`resume` must be a study without a report" in capsys.readouterr().err


def test_the_help_page_offers_what_can_trade(capsys) -> None:
    assert stock_command(["--help"], program="train_stock.py") == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert "prices, days and report" in lines
    listed = re.search("one of (.*?), or package.module:name", " ".join(lines))
    # Other tests of this process may have registered more.
    names = set(listed[1].split(", "))
    assert names >= {"a2c", "ddpg", "modsac", "ppo", "redq", "sac", "td3"}
    assert names.isdisjoint({"dqn", "discrete_sac", "maddpg", "mappo", "qmix"})


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["env=Pendulum-v1"], "`env` must be elegant/stock"),
        (["split=2031-01-01"], "`split` must leave each of 1 windows two days, of 2010-01-04 to"),
        (["split=2010-01-05"], "`split` must leave two days before it to train on"),
        (["split=2012-01-02", "start=2012-01-02"], "`split` must leave two days before it"),
        (["split=soon"], "`split` must be a date such as 2016-01-31, got `soon`"),
        (["start=2031-01-01"], "`start` must leave days between `start` and `end`"),
        (["env_kwargs.episode_days=3000"], "`episode_days` must be below the 1890 days"),
        (["env_kwargs.end=2015-01-01"], "`env_kwargs` must leave the days to other words"),
        (["market=prices.csv"], "`market` must be a file that exists"),
        (["tickers=S1,S2", "index=S1"], "`index` must be an asset that is not traded, got `S1`"),
        (["tickers=S1,Q"], "`tickers` must be in the market, got `Q`"),
        (["windows=50", "split=2019-08-01"], "`split` must leave each of 50 windows two days"),
        (["algorithm=dqn"], "`algorithm` must take continuous actions of one agent, got `dqn`"),
        (["algorithm=maddpg"], "one agent, got `maddpg`; choose among a2c, "),
        (["marked=sp500"], "unknown option `marked`: did you mean `market`?"),
    ],
)
def test_a_mistake_is_told_in_a_line_before_anything_is_trained(words, told, capsys, tmp_path):
    given = [*words, f"folder={tmp_path / 'run'}"]
    assert stock_command(given, program="train_stock.py") == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1
    assert not (tmp_path / "run").exists()
