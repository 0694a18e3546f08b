"""Measures by hand, rules beside the policy, the files of a report."""

from __future__ import annotations

import json
import math
from statistics import NormalDist

import numpy as np
import pytest

from torchrl_elegant.envs import Market, StockTradingEnv, synthetic_market
from torchrl_elegant.reports.backtest import (
    Track,
    buy_and_hold,
    chained,
    compared,
    equal_weight,
    index_track,
    play,
)
from torchrl_elegant.reports.performance import deflated_sharpe, performance
from torchrl_elegant.reports.trading import WARNING, TradingReport


def test_measures_of_four_days_by_hand() -> None:
    found = performance([100.0, 110.0, 99.0, 108.9], [50.0, 0.0, 99.0])
    # Returns 0.1, -0.1, 0.1: mean 1/30, variance 2 * (0.1^2 * 4 / 9 ...) = 0.04 / 3.
    spread = math.sqrt(((1 / 15) ** 2 * 2 + (2 / 15) ** 2) / 2)
    assert found.cumulative_return == pytest.approx(0.089)
    assert found.annual_return == pytest.approx(1.089 ** (252 / 3) - 1)
    assert found.volatility == pytest.approx(spread * math.sqrt(252))
    assert found.sharpe == pytest.approx((1 / 30) / spread * math.sqrt(252))
    assert found.sortino == pytest.approx((1 / 30) / (0.1 / math.sqrt(3)) * math.sqrt(252))
    assert found.max_drawdown == pytest.approx(-0.1)
    assert found.calmar == pytest.approx(found.annual_return / 0.1)
    assert found.turnover == pytest.approx((0.5 + 99 / 99) * 252 / 3)


def test_the_deflated_sharpe_by_hand() -> None:
    returns = np.array([0.03, -0.01, 0.02, 0.0, 0.01])
    ratio = 0.01 / math.sqrt(0.001 / 4)
    # Symmetric about 0.01; kurtosis (2 * 2^4 + 2) / 5 / 2^2 = 1.7.
    error = math.sqrt(1 + 0.7 / 4 * ratio**2)
    normal = NormalDist()
    assert deflated_sharpe(returns) == pytest.approx(normal.cdf(ratio * 2 / error))
    gamma, trials = 0.5772156649, 4
    first = (1 - gamma) * normal.inv_cdf(1 - 1 / trials)
    luck = (first + gamma * normal.inv_cdf(1 - 1 / (trials * math.e))) / 2
    expected = normal.cdf((ratio - luck) * 2 / error)
    assert deflated_sharpe(returns, trials=trials) == pytest.approx(expected)
    skewed = np.array([0.0, 0.0, 0.03])
    gamma3, gamma4 = 1 / math.sqrt(2), 1.5
    ratio = 0.01 / math.sqrt(0.0003)
    error = math.sqrt(1 - gamma3 * ratio + (gamma4 - 1) / 4 * ratio**2)
    expected = normal.cdf(ratio * math.sqrt(2) / error)
    assert deflated_sharpe(skewed) == pytest.approx(expected)


def test_an_account_that_stands_still_has_no_ratios() -> None:
    found = performance([5.0, 5.0, 5.0])
    assert found.cumulative_return == found.volatility == found.turnover == 0.0
    assert all(map(math.isnan, (found.sharpe, found.sortino, found.calmar, found.deflated_sharpe)))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ({"totals": [1.0]}, "`totals` must hold two days at least"),
        ({"totals": [1.0, 0.0]}, "`totals` must be above 0"),
        ({"totals": [1.0, 2.0], "trials": 0}, "`trials` must be 1 or more"),
    ],
)
def test_wrong_accounts_are_told(words, told) -> None:
    with pytest.raises(ValueError, match=told):
        performance(**words)


def two_assets() -> Market:
    days = np.arange("2024-01-01", "2024-01-25", dtype="datetime64[D]")
    first = np.where(np.arange(len(days)) < 21, 10.0, 20.0)
    close = np.stack([first, np.full(len(days), 10.0)], 1)
    return Market(dates=days, tickers=("A", "B"), close=close, index=first)


def test_rules_beside_the_policy_by_hand() -> None:
    market, days = two_assets(), slice(0, 24)
    held = buy_and_hold(market, days, cash=1010.0, cost=0.01)
    # 50 shares each at 10, 10 of cost.
    assert held.totals[[0, 1, -1]].tolist() == pytest.approx([1010.0, 1000.0, 1500.0])
    assert held.traded.sum() == 1000.0
    even = equal_weight(market, days, cash=1000.0, cost=0.0)
    # On day 21 A has doubled: 50 x 20 + 50 x 10 = 1500, so 37 and 75 shares, 10 left.
    assert even.traded[[0, 21]].tolist() == [1000.0, 13 * 20.0 + 25 * 10.0]
    assert even.totals[-1] == 1500.0
    index = index_track(market, days, cash=100.0)
    assert index.totals[[0, -1]].tolist() == [100.0, 200.0]


def test_a_policy_that_buys_once_is_buy_and_hold() -> None:
    market = synthetic_market(days=60, assets=4)
    env = StockTradingEnv(market=market, episode_days=None)
    seen = []

    def policy(observation: np.ndarray) -> np.ndarray:
        seen.append(observation)
        return np.full((1, 4), float(len(seen) == 1), np.float32)

    track = play(policy, env)
    held = buy_and_hold(market, slice(0, 60), cash=1e6, cost=1e-3)
    np.testing.assert_allclose(track.totals, held.totals, rtol=1e-12)
    np.testing.assert_allclose(track.traded, held.traded, rtol=1e-12)
    assert len(seen) == 59
    assert (track.dates == market.dates).all()


def test_windows_in_a_row_pay_for_the_sales_between_them() -> None:
    days = np.arange("2024-01-01", "2024-02-10", dtype="datetime64[D]")
    market = Market(dates=days, tickers=("A",), close=np.ones((40, 1)))
    cuts = [(0, 11), (10, 21), (20, 31), (30, 40)]
    tracks = []
    for first, last in cuts:
        span = {"start": str(days[first]), "end": None if last == 40 else str(days[last])}
        env = StockTradingEnv(market=market, cost=0.01, episode_days=None, **span)
        tracks.append(play(lambda seen: np.ones((1, 1), np.float32), env))
    whole = chained(tracks, cost=0.01)
    # Each window buys with all cash, and each but the last is sold out.
    assert whole.totals[-1] / 1e6 == pytest.approx(0.99**3 / 1.01**4, rel=1e-5)
    assert (whole.traded / whole.totals[:-1]).sum() == pytest.approx(3.97 / 1.01 + 3, rel=1e-4)
    assert len(whole.totals) == len(whole.traded) + 1 == 40
    assert whole.held == pytest.approx(whole.totals[-1], rel=1e-5)


def test_a_report_is_four_files(tmp_path) -> None:
    market = two_assets()
    policy = Track(dates=market.dates, totals=np.linspace(100.0, 150.0, 24), traded=np.zeros(23))
    tracks = compared(policy, market, slice(0, 24), cash=100.0, cost=0.0)
    assert list(tracks) == ["policy", "buy and hold", "equal weight", "index"]
    report = TradingReport(title="a", notes=["b"], tracks=tracks, trials=9)
    page = report.write(tmp_path / "new").read_text()
    assert WARNING in page
    assert "| cumulative return | 50.0% |" in page
    assert "9 trials" in page
    stored = json.loads((tmp_path / "new" / "report.json").read_text())
    assert stored["policy"]["cumulative_return"] == pytest.approx(0.5)
    assert stored["policy"]["calmar"] is None  # It never fell.
    rows = (tmp_path / "new" / "equity.csv").read_text().splitlines()
    assert rows[0] == "date,policy,buy and hold,equal weight,index"
    assert len(rows) == 25
    assert rows[-1].startswith("2024-01-24,150.00,")
    assert (tmp_path / "new" / "equity.png").read_bytes().startswith(b"\x89PNG")
    luck = report.measures()
    alone = TradingReport(title="a", notes=[], tracks=tracks).measures()
    assert luck["policy"].deflated_sharpe <= alone["policy"].deflated_sharpe
    assert luck["index"] == alone["index"]
