"""`StockTradingEnv`: cents of each account, cash, conservation of value, no look ahead."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from no_sync import NoSync
from tensordict import TensorDict
from torchrl.envs.utils import check_env_specs

from torchrl_elegant.envs import Market, StockTradingEnv, make_env, synthetic_market

DAYS, ASSETS = 40, 5


def a_market(seed: int = 0, days: int = DAYS, assets: int = ASSETS) -> Market:
    return synthetic_market(days=days, assets=assets, seed=seed)


def step(env: StockTradingEnv, action: torch.Tensor) -> TensorDict:
    return env._step(TensorDict({"action": action}, env.batch_size))


@dataclass
class Account:
    """One account in plain Python, asset by asset."""

    cash: float
    cost: float
    lots: list[float]
    shares: list[int] = field(default_factory=list)

    def trade(self, action: list[float], price: list[float]) -> None:
        orders = [round(max(-1.0, min(1.0, a)) * m) for a, m in zip(action, self.lots, strict=True)]
        for asset, order in enumerate(orders):
            sold = min(max(-order, 0), self.shares[asset])
            self.shares[asset] -= sold
            self.cash += sold * price[asset] * (1 - self.cost)
        buys = [max(order, 0) for order in orders]
        asked = sum(b * p for b, p in zip(buys, price, strict=True)) * (1 + self.cost)
        part = min(1.0, self.cash / asked) if asked > 0 else 1.0
        for asset, order in enumerate(buys):
            bought = math.floor(order * part)
            self.shares[asset] += bought
            self.cash -= bought * price[asset] * (1 + self.cost)

    def total(self, price: list[float]) -> float:
        return self.cash + sum(h * p for h, p in zip(self.shares, price, strict=True))


@pytest.mark.parametrize("max_stock", [None, 100])
@pytest.mark.parametrize("cash", [1e6, 3e3])
def test_each_account_is_that_of_plain_python_to_the_cent(max_stock, cash) -> None:
    market, rng = a_market(), torch.Generator().manual_seed(1)
    env = StockTradingEnv(
        num_envs=16, market=market, max_stock=max_stock, initial_cash=cash, episode_days=20, seed=0
    )
    env.reset()
    close, first = market.close, env.day.tolist()
    rows = [Account(cash, env.cost, lots, [0] * ASSETS) for lots in env.lots.tolist()]
    assert len(set(first)) > 3
    for days in range(20):
        # Buys prevail, so that cash runs out; some actions leave the bounds.
        action = 3.0 * torch.rand(16, ASSETS, generator=rng) - 1.0
        before = env.total
        reward = step(env, action)["reward"]
        for row, account in enumerate(rows):
            now = first[row] + days
            account.trade(action[row].tolist(), close[now].tolist())
            assert env.shares[row].tolist() == account.shares
            assert env.cash[row].item() == pytest.approx(account.cash, abs=0.005)
            assert env.total[row].item() == pytest.approx(
                account.total(close[now + 1].tolist()), abs=0.005
            )
        change = 100.0 * (env.total - before) / cash
        torch.testing.assert_close(reward, change.float())
    # All but one run out of cash.
    assert (env.cash < 0.05 * cash).any() == ((cash, max_stock) != (1e6, 100))


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    cost=st.sampled_from([0.0, 1e-3, 0.2]),
    cash=st.floats(1.0, 1e9),
    max_stock=st.sampled_from([None, 1, 100, 10**7]),
    limit=st.sampled_from([None, 1.0]),
)
def test_value_is_kept_but_for_the_cost_and_cash_is_never_negative(
    seed, cost, cash, max_stock, limit
) -> None:
    env = StockTradingEnv(
        num_envs=8,
        market=MARKET,
        episode_days=5,
        initial_cash=cash,
        cost=cost,
        max_stock=max_stock,
        turbulence_limit=limit,
        seed=seed,
    )
    env.reset()
    rng = torch.Generator().manual_seed(seed)
    for _ in range(5):
        price = env._close[env.day]
        before = env.cash + (env.shares * price).sum(-1, keepdim=True)
        step(env, 2.0 * torch.rand(8, ASSETS, generator=rng) - 0.8)
        after = env.cash + (env.shares * price).sum(-1, keepdim=True)
        torch.testing.assert_close(after, before - cost * env.traded, rtol=1e-9, atol=1e-6)
        assert (env.cash >= 0).all()
        assert (env.shares >= 0).all()
        assert torch.equal(env.shares, env.shares.round())


MARKET = a_market(days=400)


def test_short_cash_fills_every_order_to_the_same_part() -> None:
    market = Market(dates=a_market().dates[:3], tickers=("A", "B"), close=np.full((3, 2), 10.0))
    env = StockTradingEnv(
        market=market, episode_days=None, max_stock=100, initial_cash=750.0, cost=0.0
    )
    env.reset()
    step(env, torch.tensor([[1.0, 0.5]]))
    assert env.shares.tolist() == [[50.0, 25.0]]
    assert env.cash.item() == 0.0
    # Sales come first and pay for what is bought.
    step(env, torch.tensor([[-0.5, 1.0]]))
    assert env.shares.tolist() == [[0.0, 75.0]]
    assert env.cash.item() == 0.0


def test_the_order_of_assets_does_not_matter() -> None:
    market, turn = a_market(), [3, 0, 4, 1, 2]
    turned = Market(
        dates=market.dates,
        tickers=tuple(market.tickers[i] for i in turn),
        close=market.close[:, turn],
    )
    both = [
        StockTradingEnv(market=each, episode_days=None, initial_cash=5e3, max_stock=40)
        for each in (market, turned)
    ]
    rng = torch.Generator().manual_seed(0)
    for env in both:
        env.reset()
    for _ in range(20):
        action = 2.0 * torch.rand(1, ASSETS, generator=rng) - 0.5
        step(both[0], action), step(both[1], action[:, turn])
    assert torch.equal(both[0].shares[:, turn], both[1].shares)


def test_a_full_action_buys_equal_parts_of_the_first_cash() -> None:
    env = StockTradingEnv(market=a_market(), episode_days=None)
    env.reset()
    step(env, torch.ones(1, ASSETS))
    parts = (env.shares * env._close[0]).view(-1) / env.initial_cash
    torch.testing.assert_close(parts, torch.full_like(parts, 1 / ASSETS), rtol=0, atol=2e-3)


def test_the_observation_is_what_its_page_says() -> None:
    market = a_market()
    env = StockTradingEnv(market=market, episode_days=None, max_stock=50)
    env.reset()
    seen = step(env, torch.full((1, ASSETS), 0.5))["observation"][0].double()
    price, total = torch.tensor(market.close[1]), env.total.item()
    torch.testing.assert_close(seen[0].item(), env.cash.item() / total, rtol=1e-6, atol=0)
    torch.testing.assert_close(seen[1].item(), math.log(total / 1e6), rtol=1e-4, atol=1e-9)
    held = 25.0 * price * ASSETS / total
    torch.testing.assert_close(seen[2 : 2 + ASSETS], held, rtol=1e-5, atol=0)
    torch.testing.assert_close(seen[7 : 7 + ASSETS], 2.0 * held, rtol=1e-5, atol=0)
    features = torch.tensor(market.features[1]).flatten()
    torch.testing.assert_close(seen[12:], features, rtol=1e-5, atol=1e-6)


def test_above_the_limit_all_is_sold_and_nothing_bought() -> None:
    # Turbulence is known after a year; the limit is its median.
    limit = float(np.median(MARKET.turbulence[260:]))
    env = StockTradingEnv(
        market=MARKET, start=str(MARKET.dates[260]), episode_days=None, turbulence_limit=limit
    )
    seen, stops = env.reset()["observation"], MARKET.turbulence[260:] > limit
    assert 10 < stops[:-1].sum() < len(stops) - 10
    for stop, turbulence in zip(stops[:-1], MARKET.turbulence[260:], strict=False):
        assert seen[0, -1].item() == pytest.approx(turbulence / limit, rel=1e-5)
        seen = step(env, torch.full((1, ASSETS), 0.5))["observation"]
        assert (env.shares == 0).all() == stop


def test_the_end_of_an_episode_is_a_truncation_with_its_last_observation() -> None:
    env = make_env("elegant/stock", 3, seed=0, env_kwargs={"market": a_market(), "episode_days": 4})
    check_env_specs(env)
    rows = env.rollout(9, break_when_any_done=False)["next"]
    assert (
        rows["truncated"][..., 0].tolist()
        == [[False] * 3 + [True] + [False] * 3 + [True, False]] * 3
    )
    assert not rows["terminated"].any()
    assert torch.equal(rows["done"], rows["truncated"])
    assert rows["step_count"][0, :, 0].tolist() == [1, 2, 3, 4, 1, 2, 3, 4, 1]
    whole = StockTradingEnv(market=a_market(), episode_days=None)
    assert whole.rollout(100).shape[-1] == DAYS - 1
    assert whole.day.item() == DAYS - 1


def test_episodes_begin_on_every_day_that_leaves_room() -> None:
    env = StockTradingEnv(num_envs=500, market=a_market(), episode_days=30, seed=0)
    env.reset()
    assert set(env.day.tolist()) == set(range(DAYS - 30))


def test_a_reset_touches_the_rows_of_its_mask_alone_and_waits_for_no_device() -> None:
    env = StockTradingEnv(num_envs=6, market=MARKET, episode_days=5, turbulence_limit=1.0, seed=0)
    env.reset()
    mask = torch.tensor([True, False] * 3).view(-1, 1)
    action = torch.ones(6, ASSETS)
    with NoSync():
        out = step(env, action)
        after = env._reset(TensorDict({"_reset": mask}, [6]))
    kept = ~mask.view(-1)
    torch.testing.assert_close(after["observation"][kept], out["observation"][kept])
    assert (env.cash[mask] == 1e6).all()
    assert (env.shares[mask.view(-1)] == 0).all()
    assert (env.shares[kept] > 0).any(-1).all()
    assert (
        after["step_count"].view(-1).tolist()
        == [
            0,
            1,
        ]
        * 3
    )


def test_an_action_out_of_bounds_is_the_bound_and_a_done_row_trades_on() -> None:
    market = a_market(days=6)
    both = [StockTradingEnv(market=market, episode_days=4, seed=0, max_stock=3) for _ in range(2)]
    for env, action in zip(both, (1.0, 50.0), strict=True):
        env.reset()
        first = env.day.item()
        outs = [step(env, torch.full((1, ASSETS), action)) for _ in range(7)]
        assert [out["truncated"].item() for out in outs] == [False] * 3 + [True] * 4
        assert first < 2
        assert env.day.item() == 5
    assert torch.equal(both[0].shares, both[1].shares)
    assert (both[0].shares == 21).all()


def test_what_was_handed_out_stays_as_it_was() -> None:
    env = StockTradingEnv(num_envs=2, market=a_market(), episode_days=5, seed=0)
    env.reset()
    out = step(env, torch.ones(2, ASSETS))
    copy = out.clone()
    step(env, -torch.ones(2, ASSETS)), env._reset()
    assert all(torch.equal(out[key], value) for key, value in copy.items())


def test_the_future_does_not_change_the_past() -> None:
    market, cut = MARKET, 330
    rng = np.random.default_rng(0)
    turn = np.concatenate([np.arange(cut), cut + rng.permutation(len(market.dates) - cut)])
    other = Market(dates=market.dates, tickers=market.tickers, close=market.close[turn])
    np.testing.assert_array_equal(market.features[:cut], other.features[:cut])
    np.testing.assert_array_equal(market.turbulence[:cut], other.turbulence[:cut])
    assert not np.array_equal(market.features[cut:], other.features[cut:])
    action, tracks = torch.rand(cut, 1, ASSETS) * 2 - 1, []
    for each in (market, other):
        env = StockTradingEnv(market=each, episode_days=None, turbulence_limit=2.0)
        first = env.reset()["observation"]
        outs = [step(env, now) for now in action[: cut - 1]]
        tracks.append(
            (first, [out["observation"] for out in outs], [out["reward"] for out in outs])
        )
    torch.testing.assert_close(tracks[0], tracks[1], rtol=0, atol=0)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ({"cost": 1.0}, "`cost` must be in [0, 1), got `1.0`"),
        ({"initial_cash": 0.0}, "`initial_cash` must be above 0"),
        ({"max_stock": 0}, "`max_stock` must be an integer of 1 or more"),
        ({"turbulence_limit": -1.0}, "`turbulence_limit` must be above 0, or None"),
        ({"episode_days": DAYS}, "`episode_days` must be below the 40 days"),
        ({"end": "2010-01-05"}, "`end` must leave two days at least"),
        ({"start": "2030-01-01"}, "`start` must leave days"),
        ({"start": "soon"}, "`start` must be a date such as 2016-01-31, got `soon`"),
        ({"tickers": ["S1", "Q"]}, "`tickers` must be in the market, got `Q`"),
        ({"market": "sp5000"}, "`market` must be synthetic, sp500 or a file"),
        ({"market": "gone.csv"}, "`market` must be a file that exists, got `gone.csv`"),
    ],
)
def test_wrong_words_are_told_in_a_line(words, told) -> None:
    with pytest.raises(ValueError) as caught:
        StockTradingEnv(**{"market": a_market(), "episode_days": 10, **words})
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)
