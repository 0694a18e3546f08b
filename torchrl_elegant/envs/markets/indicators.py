"""Indicators of prices `[T, N]`; none looks ahead: a value of day t depends on days 0 to t."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd

Array = np.ndarray

_MONTH, _QUARTER, _YEAR = 20, 60, 252


# Spreads below this part of a price are rounding: the price stood still.
_STILL = 1e-6


def _ratio(above: Array, below: Array) -> Array:
    """Quotient of two parts of a price; 0 where the price stood still, or nothing is known yet."""
    return np.divide(above, below, out=np.zeros_like(above), where=below > _STILL)


def _mean(values: Array, days: int) -> Array:
    return pd.DataFrame(values).rolling(days, min_periods=1).mean().to_numpy()


def _spread(values: Array, days: int) -> Array:
    rolled = pd.DataFrame(values).rolling(days, min_periods=2)
    return rolled.std(ddof=0).fillna(0.0).to_numpy()


def _smooth(values: Array, **decay: float) -> Array:
    return pd.DataFrame(values).ewm(adjust=False, **decay).mean().to_numpy()


def log_returns(close: Array) -> Array:
    """Daily log returns; 0 on the first day."""
    return np.diff(np.log(close), axis=0, prepend=np.log(close[:1]))


def _daily_risk(close: Array) -> Array:
    return _spread(log_returns(close), _QUARTER)


def macd(close: Array) -> Array:
    """Moving average convergence divergence, 12 and 26 days, in daily standard deviations."""
    gap = _smooth(close, span=12) - _smooth(close, span=26)
    return _ratio(gap / close, _daily_risk(close))


def rsi(close: Array) -> Array:
    """Relative strength index of 14 days (Wilder 1978), moved from [0, 100] to [-1, 1].

    >>> rsi(np.array([[1.0], [2.0], [1.0]]))[:, 0].round(3).tolist()
    [0.0, 1.0, -0.037]
    """
    change = np.diff(close, axis=0, prepend=close[:1])
    up, down = (_smooth(np.maximum(sign * change, 0.0), alpha=1 / 14) for sign in (1, -1))
    return _ratio((up - down) / close, (up + down) / close)


def bollinger(close: Array) -> Array:
    """Place within Bollinger's bands of 20 days: -1 on the lower, 1 on the upper."""
    gap, spread = close - _mean(close, _MONTH), _spread(close, _MONTH)
    return _ratio(gap / close, 2.0 * spread / close)


def cci(close: Array) -> Array:
    """Commodity channel index of 20 days (Lambert 1980) over closes, divided by 100."""
    # The first price stands before the first day.
    padded = np.concatenate([np.repeat(close[:1], _MONTH - 1, 0), close])
    windows = np.lib.stride_tricks.sliding_window_view(padded, _MONTH, axis=0)
    center = windows.mean(-1)
    deviation = np.abs(windows - center[..., None]).mean(-1)
    return _ratio((close - center) / close, 1.5 * deviation / close)


def daily_return(close: Array) -> Array:
    """Log return of the day, in daily standard deviations."""
    return _ratio(log_returns(close), _daily_risk(close))


def momentum(close: Array) -> Array:
    """Log return of 60 days, in standard deviations of 60 days."""
    logs = pd.DataFrame(np.log(close))
    change = (logs - logs.shift(_QUARTER).fillna(logs.iloc[0])).to_numpy()
    return _ratio(change, _daily_risk(close) * _QUARTER**0.5)


def volatility(close: Array) -> Array:
    """Standard deviation of log returns over 60 days, for a year."""
    return _daily_risk(close) * _YEAR**0.5


#: Indicators by name.
INDICATORS: Mapping[str, Callable[[Array], Array]] = {
    "macd": macd,
    "rsi": rsi,
    "bollinger": bollinger,
    "cci": cci,
    "return": daily_return,
    "momentum": momentum,
    "volatility": volatility,
}


def trailing_score(values: Array) -> Array:
    """Values less their mean, over their standard deviation, both of the last 252 days."""
    gap, spread = values - _mean(values, _YEAR), _spread(values, _YEAR)
    size = _mean(np.abs(values), _YEAR) + np.finfo(np.float64).tiny
    return _ratio(gap / size, spread / size)


def turbulence(close: Array, *, days: int = _YEAR) -> Array:
    r"""Distance of a day's returns from those of the year before, `[T]`.

    .. math:: d_t = (y_t - \mu)^\top \Sigma^{-1} (y_t - \mu) / N

    over the mean and covariance of the `days` before t (Kritzman and Li 2010, eq. 1), whose
    variances are raised by a hundredth, so that few days of many assets can be inverted. 0 until
    there are as many days. Divided by the number of assets, it is about 1 on average.
    """
    returns = log_returns(close)[1:]
    length, assets = returns.shape
    found = np.zeros(len(close))
    if length <= days:
        return found
    windows = np.lib.stride_tricks.sliding_window_view(returns, days, 0)
    # Not more than 64 MiB at a time.
    chunk = max(1, 2**23 // (assets * max(assets, days)))
    for first in range(0, length - days, chunk):
        past = windows[first : min(first + chunk, length - days)]  # [c, N, days]
        center = past.mean(-1, keepdims=True)
        apart = past - center
        covariance = apart @ apart.swapaxes(1, 2) / (days - 1)
        variances = np.diagonal(covariance, axis1=1, axis2=2)
        ridge = 0.01 * variances + 1e-12
        covariance = covariance + ridge[..., None] * np.eye(assets)
        now = returns[first + days : first + days + len(past), :, None] - center
        distance = (now * np.linalg.solve(covariance, now)).sum((1, 2)) / assets
        found[first + days + 1 : first + days + 1 + len(past)] = distance
    return found
