"""`train_stock.py`: windows of days, a whole study, mistakes in a line."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from torchrl_elegant.algorithms import PPOConfig
from torchrl_elegant.cli.stock import StockOptions, StockStudy, stock_command, windows_of
from torchrl_elegant.envs import synthetic_market
from torchrl_elegant.reports.backtest import play
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


def test_a_report_tells_what_is_known_of_the_index() -> None:
    market = replace(synthetic_market(days=100, assets=2), index_note="It has no dividends.")
    own = StockOptions()
    study = StockStudy(
        run=RunConfig(),
        config=PPOConfig(),
        algorithm="ppo",
        own=own,
        market=market,
        windows=windows_of(market, own),
    )
    tracks = [play(lambda seen: np.zeros((1, 2), np.float32), study.tested(study.windows[0]))]
    assert "\n- It has no dividends.\n" in study.report(tracks).markdown()


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


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["env=Pendulum-v1"], "`env` must be elegant/stock"),
        (["split=2031-01-01"], "`start` must leave days between `start` and `end`"),
        (["split=2010-01-04"], "`end` must leave days between `start` and `end`"),
        (["env_kwargs.end=2015-01-01"], "`env_kwargs` must leave the days to other words"),
        (["market=prices.csv"], "`market` must be a file that exists"),
        (["tickers=S1,Q"], "`tickers` must be in the market, got `Q`"),
        (["windows=50", "split=2019-08-01"], "`split` must leave each of 50 windows two days"),
        (["algorithm=dqn"], "continuous"),
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
