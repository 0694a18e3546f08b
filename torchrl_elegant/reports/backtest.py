"""Backtests: a policy trades days that it was not trained on, beside simple rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from tensordict import TensorDict

from torchrl_elegant.envs.batched import StockTradingEnv
from torchrl_elegant.envs.markets import Market

Array = np.ndarray
#: Days between two trades of the account with equal weights: about a month.
REBALANCED = 21


@dataclass(frozen=True, kw_only=True)
class Track:
    """Value of an account on each day `[T]`, and what it traded on each but the last `[T - 1]`.

    ``held`` is the part of the last value that is not cash.
    """

    dates: Array
    totals: Array
    traded: Array
    held: float = 0.0


def play(policy: Callable[[Array], Array], env: StockTradingEnv) -> Track:
    """Trades from the first to the last day of an environment with one account.

    Args:
        policy: gives actions for observations, both `[1, ...]`; a ``Policy`` for example, which
            begins its memory anew.
        env: made with `num_envs=1` and `episode_days=None`.

    >>> env = StockTradingEnv(episode_days=None, end="2010-01-08")
    >>> play(lambda seen: np.zeros((1, 8), np.float32), env).totals.tolist()
    [1000000.0, 1000000.0, 1000000.0, 1000000.0]
    """
    seen = env._reset().get("observation")
    totals, traded = [env.total], list[torch.Tensor]()
    for _ in range(env.episode_days):
        action = torch.as_tensor(policy(seen.cpu().numpy()), device=env.device)
        seen = env._step(TensorDict({"action": action}, env.batch_size)).get("observation")
        totals.append(env.total)
        traded.append(env.traded)
    values, money = (torch.cat(each).view(-1).cpu().numpy() for each in (totals, traded))
    held = float(env.total - env.cash)
    return Track(dates=env.dates, totals=values, traded=money, held=held)


def buy_and_hold(market: Market, days: slice, *, cash: float, cost: float) -> Track:
    """Buys as many whole shares of each asset as an equal part of the cash pays, and keeps them."""
    return _equal_weight(market, days, cash, cost, np.arange(days.stop - days.start) == 0)


def equal_weight(market: Market, days: slice, *, cash: float, cost: float) -> Track:
    """Gives each asset an equal part of the account, in whole shares, anew every 21 days."""
    turn = np.arange(days.stop - days.start) % REBALANCED == 0
    return _equal_weight(market, days, cash, cost, turn)


def _equal_weight(market: Market, days: slice, cash: float, cost: float, trades: Array) -> Track:
    close = market.close[days]
    shares = np.zeros(close.shape[1])
    totals, traded = np.full(len(close), cash), np.zeros(len(close) - 1)
    for day, price in enumerate(close):
        totals[day] = cash + shares @ price
        if not trades[day] or day == len(close) - 1:
            continue
        wanted = np.floor(totals[day] / len(price) / (1 + cost) / price)
        value = float(np.abs(wanted - shares) @ price)
        cash = cash - float((wanted - shares) @ price) - cost * value
        shares, traded[day] = wanted, value
    return Track(dates=market.dates[days], totals=totals, traded=traded)


def index_track(market: Market, days: slice, *, cash: float) -> Track:
    """Follows the market's index without cost."""
    assert market.index is not None
    level = market.index[days]
    return Track(
        dates=market.dates[days],
        totals=cash * level / level[0],
        traded=np.zeros(len(level) - 1),
    )


def chained(tracks: Sequence[Track], *, cost: float) -> Track:
    """One track out of several, each beginning on the day on which the one before ends.

    Each starts in cash: what the one before holds is sold on that day, at its cost. Its returns are
    applied to the value that is left.

    >>> days = np.array(["2024-01-02", "2024-01-03", "2024-01-04"], "datetime64[D]")
    >>> first = Track(dates=days[:2], totals=np.array([1.0, 2.0]), traded=np.ones(1), held=2.0)
    >>> then = Track(dates=days[1:], totals=np.array([1.0, 3.0]), traded=np.ones(1))
    >>> whole = chained([first, then], cost=0.25)
    >>> whole.totals.tolist(), whole.traded.tolist()
    ([1.0, 2.0, 4.5], [1.0, 3.5])
    """
    whole, *others = tracks
    for track in others:
        grown = (whole.totals[-1] - cost * whole.held) / track.totals[0]
        bought = track.traded * grown
        bought[0] += whole.held
        whole = Track(
            dates=np.concatenate([whole.dates, track.dates[1:]]),
            totals=np.concatenate([whole.totals, track.totals[1:] * grown]),
            traded=np.concatenate([whole.traded, bought]),
            held=track.held * grown,
        )
    return whole


def compared(policy: Track, market: Market, days: slice, *, cash: float, cost: float) -> dict:
    """The track of a policy beside those of simple rules over the same days, by their names."""
    tracks = {
        "policy": policy,
        "buy and hold": buy_and_hold(market, days, cash=cash, cost=cost),
        "equal weight": equal_weight(market, days, cash=cash, cost=cost),
    }
    if market.index is not None:
        tracks["index"] = index_track(market, days, cash=cash)
    return tracks
