"""`StockTradingEnv`: many accounts trade over one history of prices, in tensors alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase
from torch import Tensor
from torchrl.data import Bounded, Unbounded

from torchrl_elegant.config.options import check
from torchrl_elegant.envs.batched.rows import RowsEnv
from torchrl_elegant.envs.markets import Market, load_market
from torchrl_elegant.envs.wrap import GeneratorEnv

#: Days of an episode unless told otherwise: a year of trading.
EPISODE_DAYS = 252


def _check_counts(**counts: int | None) -> None:
    for name, count in counts.items():
        whole = count is None or (type(count) is int and count >= 1)
        check(whole, name, "be an integer of 1 or more", count)


def _check_sizes(**sizes: float) -> None:
    for name, size in sizes.items():
        check(0 < size < float("inf"), name, "be above 0", size)


class StockTradingEnv(GeneratorEnv, RowsEnv):
    r"""Accounts trade N assets at the close of each day.

    With cash :math:`c`, whole shares :math:`h`, prices :math:`p`, lot :math:`m`, cost :math:`k`
    and action :math:`a \in [-1, 1]^N`, an account first sells, then buys; an action beyond -1 or 1
    counts as -1 or 1:

    .. math::
        w = \mathrm{round}(a\,m), \quad
        s = \min(\max(-w, 0),\,h), \quad
        c \leftarrow c + (1 - k)\, s \cdot p

        b = \lfloor f \max(w, 0) \rfloor, \quad
        f = \min\!\left(1, \frac{c}{(1 + k) \max(w, 0) \cdot p}\right), \quad
        c \leftarrow c - (1 + k)\, b \cdot p

    Where cash is short, every order is filled to the same part :math:`f`, rounded down: no asset
    comes first, and cash is never negative. The reward is the change of cash and holdings until the
    next close, :math:`r = \mathrm{scale}\,(v' - v) / v_0` with :math:`v_0` the initial cash.

    The policy sees the part of the account that is cash, the log of its growth since the start,
    and of each asset: its part of the account and the value of a full lot, both in units of an
    equal share :math:`1/N`, and the market's features. All of them are known at the close at which
    it trades; none is scaled by a statistic of other days than those before (see ``Market``).

    Money is counted in float64. Nothing terminates: whoever neither borrows nor sells short keeps
    something. The end of an episode or of the data is a truncation, as the market goes on after it.
    A row that is done must be reset: stepped on, it trades the days that follow, and stands still
    on the last of the data.

    Args:
        num_envs: accounts.
        market: a name or file that ``load_market`` takes, or a ``Market``.
        tickers: assets to trade; None for all.
        index: asset that is the index and is not traded.
        start: first day to trade on, as 2016-01-31; None for the first of the market.
        end: day before which trading ends; None for after the last.
        episode_days: days of an episode, which begins at a random day; None: one episode from
            `start` to `end`, for a backtest.
        initial_cash: of each account.
        max_stock: lot, the shares of an asset that an action of 1 trades; None: as many as the N-th
            part of the initial cash buys at the episode's first close.
        cost: part of the value of a trade that it costs.
        reward_scale: 100 rewards a percent of the initial cash with 1.
        turbulence_limit: turbulence (``Market.turbulence``, about 1 on average) above which all is
            sold and nothing is bought; None for no limit. With a limit, the policy sees the
            turbulence as a part of it.
        device: where it lives.
        seed: of the first days; None takes one from the operating system.

    >>> env = StockTradingEnv(num_envs=2, episode_days=5, seed=0)
    >>> rows = env.rollout(10)
    >>> rows["observation"].shape, rows["next", "truncated"][0, :, 0].tolist()
    (torch.Size([2, 5, 74]), [False, False, False, False, True])
    """

    #: Resets exactly the rows of a mask, without looking at it on the host.
    resets_by_mask = True

    def __init__(
        self,
        *,
        num_envs: int = 1,
        market: str | Market = "synthetic",
        tickers: Sequence[str] | None = None,
        index: str | None = None,
        start: str | None = None,
        end: str | None = None,
        episode_days: int | None = EPISODE_DAYS,
        initial_cash: float = 1e6,
        max_stock: int | None = None,
        cost: float = 1e-3,
        reward_scale: float = 100.0,
        turbulence_limit: float | None = None,
        device: torch.device | str = "cpu",
        seed: int | None = None,
    ) -> None:
        self.market = load_market(market, tickers=tickers, index=index)
        self._days = self.market.between(start, end)
        _check_counts(max_stock=max_stock, episode_days=episode_days)
        _check_sizes(initial_cash=initial_cash, reward_scale=reward_scale)
        check(0 <= cost < 1, "cost", "be in [0, 1)", cost)
        positive = turbulence_limit is None or turbulence_limit > 0
        check(positive, "turbulence_limit", "be above 0, or None", turbulence_limit)
        days = self._count_days(end, episode_days)
        super().__init__(num_envs=num_envs, device=device)
        self.initial_cash, self.cost = float(initial_cash), float(cost)
        self.max_stock, self.turbulence_limit = max_stock, turbulence_limit
        self._one_episode = episode_days is None
        self.episode_days = days - 1 if episode_days is None else episode_days
        self._reward_scale = reward_scale / self.initial_cash
        self._load()
        self.action_low = np.full(self._assets, -1.0, np.float32)
        self.action_high = -self.action_low
        self._make_specs()
        self._make_state(seed)

    def _count_days(self, end: str | None, episode_days: int | None) -> int:
        days = self._days.stop - self._days.start
        check(days >= 2, "end", f"leave two days at least, of {self.market.span}", end)
        fits = episode_days is None or episode_days < days
        must = f"be below the {days} days from `start` to `end`"
        check(fits, "episode_days", must, episode_days, "set episode_days, or None for all days")
        return days

    def _load(self) -> None:
        part, device = self._days, self.device
        #: Days on which there is trading.
        self.dates = self.market.dates[part]
        close, features = self.market.close[part], self.market.features[part]
        self._assets = close.shape[1]
        self._close = torch.tensor(close, device=device)
        seen = torch.tensor(features, dtype=torch.float32, device=device).flatten(1)
        self._stops: Tensor | None = None
        if self.turbulence_limit is not None:
            turbulence = torch.tensor(self.market.turbulence[part], device=device).unsqueeze(-1)
            self._stops = turbulence > self.turbulence_limit
            seen = torch.cat([seen, (turbulence / self.turbulence_limit).to(seen.dtype)], -1)
        self._seen = seen

    def _make_specs(self) -> None:
        rows, width = self.num_envs, 2 + 2 * self._assets + self._seen.shape[1]
        action: Any = Bounded(-1.0, 1.0, (rows, self._assets), dtype=torch.float32)
        self._write_specs({"observation": Unbounded((rows, width))}, action)

    def _make_state(self, seed: int | None) -> None:
        rows, device = self.num_envs, self.device
        self._generator = torch.Generator(device)
        self._set_seed(seed)
        self._day = torch.zeros(rows, dtype=torch.int64, device=device)
        #: Cash `[num_envs, 1]`, in float64 as all money.
        self.cash = torch.full((rows, 1), self.initial_cash, dtype=torch.float64, device=device)
        #: Shares `[num_envs, N]`, whole numbers, and shares of a full action.
        self.shares = torch.zeros(rows, self._assets, dtype=torch.float64, device=device)
        self._price = torch.ones_like(self.shares)
        self.lots = torch.zeros_like(self.shares)
        #: Money that the last step traded, bought and sold, `[num_envs, 1]`.
        self.traded = torch.zeros_like(self.cash)
        #: Cash and the value of holdings, `[num_envs, 1]`.
        self.total = self.cash

    @property
    def day(self) -> Tensor:
        """Day of each account, an index into `dates`, `[num_envs]`."""
        return self._day

    # Nothing below writes in place: what is handed out stays as it was.

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDict:
        mask = self._rows_to_reset(tensordict)
        last = 1 if self._one_episode else len(self._close) - self.episode_days
        # The same number for any mask.
        first = torch.randint(last, self._day.shape, generator=self._generator, device=self.device)
        self._day = torch.where(mask.view(-1), first, self._day)
        self._price = self._close.index_select(0, self._day)
        self.lots = torch.where(mask, self._lots_at(self._price), self.lots)
        self.cash = self.cash.masked_fill(mask, self.initial_cash)
        self.shares = self.shares.masked_fill(mask, 0.0)
        self.traded = self.traded.masked_fill(mask, 0.0)
        self.total = self.total.masked_fill(mask, self.initial_cash)
        self._restart_counts(mask)
        return self._seen_by(self.shares * self._price, torch.zeros_like(mask))

    def _lots_at(self, price: Tensor) -> Tensor:
        if self.max_stock is not None:
            return torch.full_like(price, float(self.max_stock))
        share = self.initial_cash / self._assets / (1.0 + self.cost)
        return (share / price).floor().clamp_(min=1.0)

    def _step(self, tensordict: TensorDictBase) -> TensorDict:
        self._trade(tensordict.get("action").detach(), self._price)
        self._day = (self._day + 1).clamp_(max=len(self._close) - 1)
        self._price = self._close.index_select(0, self._day)
        holdings = self.shares * self._price
        total = self.cash + holdings.sum(-1, keepdim=True)
        reward = ((total - self.total) * self._reward_scale).float()
        self.total = total
        self._count(reward)
        return self._seen_by(holdings, self._step_count >= self.episode_days).set("reward", reward)

    def _trade(self, action: Tensor, price: Tensor) -> None:
        wanted = (action.clamp(-1.0, 1.0) * self.lots).round_()
        bought = wanted.clamp(min=0.0)
        sold = torch.minimum(bought - wanted, self.shares)
        if self._stops is not None:
            stop = self._stops.index_select(0, self._day)
            sold = torch.where(stop, self.shares, sold)
            bought = bought.masked_fill(stop, 0.0)
        revenue = (sold * price).sum(-1, keepdim=True)
        cash = self.cash + (1.0 - self.cost) * revenue
        asked = (1.0 + self.cost) * (bought * price).sum(-1, keepdim=True)
        filled = torch.where(asked > cash, cash / asked, 1.0)
        bought = (bought * filled).floor_()
        spent = (bought * price).sum(-1, keepdim=True)
        # The sum over floors is within cash but for the last bit of a float64.
        self.cash = (cash - (1.0 + self.cost) * spent).clamp_(min=0.0)
        self.shares = self.shares + (bought - sold)
        self.traded = revenue + spent

    def _seen_by(self, holdings: Tensor, truncated: Tensor) -> TensorDict:
        seen = {"observation": self._observation(holdings)}
        return self._outcome(seen, torch.zeros_like(truncated), truncated)

    def _observation(self, holdings: Tensor) -> Tensor:
        # Written into one tensor: to put parts together costs as much as all of a step's trades.
        seen, assets = self._seen, self._assets
        width = 2 + 2 * assets + seen.shape[1]
        out = torch.empty(self.num_envs, width, dtype=seen.dtype, device=self.device)
        cash, growth, held, lots, features = out.split([1, 1, assets, assets, seen.shape[1]], -1)
        share = assets / self.total
        torch.div(self.cash, self.total, out=cash)
        growth.copy_((self.total / self.initial_cash).log_())
        torch.mul(holdings, share, out=held)
        torch.mul(self.lots, self._price, out=lots).mul_(share)
        torch.index_select(seen, 0, self._day, out=features)
        return out
