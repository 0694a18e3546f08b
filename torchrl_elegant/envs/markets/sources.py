"""Markets by name: synthetic ones, stocks of the S&P 500, and tables of the user's own."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from torchrl_elegant.config.options import check
from torchrl_elegant.config.text import brief, nearest
from torchrl_elegant.envs.markets.market import Market
from torchrl_elegant.envs.markets.tables import SUFFIXES, read_market


def load_market(
    source: str | Market = "synthetic",
    *,
    tickers: Sequence[str] | None = None,
    index: str | None = None,
) -> Market:
    """Loads a market by its name.

    Args:
        source: `"synthetic"`; `"sp500"`, 20 stocks from 1990 to 2022; or a file of the user's own
            (see ``read_market``).
        tickers: assets to trade; None for all.
        index: the asset of the source that is the index, for reports: it is not traded. None for
            the index that the source has of its own.

    >>> load_market("synthetic", tickers=["S2", "S1"]).tickers
    ('S2', 'S1')
    """
    market = source if isinstance(source, Market) else _by_name(str(source))
    return _selected(market, tickers, index)


def _by_name(name: str) -> Market:
    if name == "synthetic":
        return _synthetic()
    if name == "sp500":
        return sp500_market()
    path = Path(name)
    known = path.suffix in SUFFIXES
    must = f"be synthetic, sp500 or a file that ends in {', '.join(SUFFIXES)}"
    check(known, "market", must, brief(name))
    check(path.is_file(), "market", "be a file that exists", brief(name))
    return _read(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=4)
def _read(path: Path, changed: int) -> Market:
    return read_market(path)


@lru_cache(maxsize=1)
def _synthetic() -> Market:
    return synthetic_market()


def _selected(market: Market, tickers: Sequence[str] | None, index: str | None) -> Market:
    if tickers is None and index is None:
        return market
    traded = [name for name in market.tickers if name != index] if tickers is None else [*tickers]
    # On a command line one name comes as a text.
    traded = [tickers] if isinstance(tickers, str) else traded
    for option, names in (("tickers", traded), ("index", [] if index is None else [index])):
        for name in names:
            hint = nearest(str(name), market.tickers)
            check(name in market.tickers, option, "be in the market", brief(name), hint)
    apart, way_out = index not in traded, "leave it out of tickers, or of index"
    check(apart, "index", "be an asset that is not traded", brief(str(index)), way_out)
    check(len(traded) > 0, "tickers", "name an asset that is no index", traded)
    check(len(set(traded)) == len(traded), "tickers", "name each asset once", traded)
    columns = [market.tickers.index(name) for name in traded]
    level = market.index if index is None else market.close[:, market.tickers.index(index)]
    return Market(
        dates=market.dates,
        tickers=tuple(traded),
        close=market.close[:, columns],
        extra={name: values[:, columns] for name, values in market.extra.items()},
        index=level,
        index_note=market.index_note if index is None else "",
    )


def synthetic_market(
    *, days: int = 2520, assets: int = 8, trend: float = 0.001, seed: int = 0
) -> Market:
    r"""Makes up a market with a common factor, quiet and wild times, and trends that come and go.

    .. math:: r_{it} = \mu + \sigma_t (f_t + \epsilon_{it}) + \text{trend} \cdot z_{it}

    The trend :math:`z` of each asset is a first-order autoregression with a half-life of 60 days,
    so that past prices say something of the next one; with `trend=0` they say nothing.

    >>> market = synthetic_market(days=30, assets=3)
    >>> market.close.shape, market.tickers, str(market.dates[0])
    ((30, 3), ('S1', 'S2', 'S3'), '2010-01-04')
    """
    for name, size in {"days": days, "assets": assets}.items():
        check(size >= 1, name, "be 1 or more", size)
    rng = np.random.default_rng(seed)
    slow, fast = 0.5 ** (1 / 60), 0.5 ** (1 / 20)
    drift, heat = np.zeros((days, assets)), np.zeros(days)
    state, warmth = rng.standard_normal(assets), 0.0
    for day in range(days):
        drift[day], heat[day] = state, warmth
        state = slow * state + (1 - slow**2) ** 0.5 * rng.standard_normal(assets)
        warmth = fast * warmth + (1 - fast**2) ** 0.5 * rng.standard_normal()
    risk = 0.009 * np.exp(0.4 * heat)
    common = risk * rng.standard_normal(days) + 0.0003
    own = risk[:, None] * rng.standard_normal((days, assets))
    returns = common[:, None] + own + trend * drift
    start = rng.uniform(20.0, 200.0, assets)
    first = np.datetime64("2010-01-04")
    return Market(
        dates=np.busday_offset(first, np.arange(days)),
        tickers=tuple(f"S{number}" for number in range(1, assets + 1)),
        close=start * np.exp(returns.cumsum(0)),
        index=1000.0 * np.exp(common.cumsum()),
    )


_PRICE_INDEX = (
    "The index is one of prices, without dividends; the closes of the stocks are adjusted for "
    "dividends. So its row is too low beside the others by what dividends bring: do not compare it."
)


@lru_cache(maxsize=1)
def sp500_market() -> Market:
    """Adjusted closes of 20 stocks of the S&P 500, and the index, from 1990-01-02 to 2022-12-28.

    They come with the package skfolio, without a download. All 20 were large in 2022: whoever
    bought them in 1990 would have had to know which firms would last (survivorship bias).
    The index is one of prices, without dividends.
    """
    try:
        from skfolio.datasets import load_sp500_dataset, load_sp500_index
    except ImportError as error:
        raise ImportError(
            "`market=sp500` needs a package that is not installed: "
            "pip install torchrl_elegant[finance]"
        ) from error
    prices, index = load_sp500_dataset(), load_sp500_index()
    return Market(
        dates=prices.index.to_numpy(),
        tickers=tuple(prices.columns),
        close=prices.to_numpy(),
        index=index["SP500"].reindex(prices.index).to_numpy(),
        index_note=_PRICE_INDEX,
    )
