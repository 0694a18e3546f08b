"""Measures of an account: return, risk and their ratios, from its value day by day."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from torchrl_elegant.config.options import check

#: Trading days of a year.
YEAR = 252
_EULER = 0.5772156649015329


@dataclass(frozen=True, kw_only=True)
class Performance:
    """Measures of the days that an account was traded; ratios take a riskless return of 0.

    skfolio has such measures, too; its import takes seconds and brings solvers and plots.
    """

    cumulative_return: float
    annual_return: float
    volatility: float
    sharpe: float
    deflated_sharpe: float
    sortino: float
    calmar: float
    max_drawdown: float
    turnover: float


def performance(
    totals: Sequence[float] | np.ndarray,
    traded: Sequence[float] | np.ndarray = (),
    *,
    trials: int = 1,
) -> Performance:
    r"""Measures of an account.

    With daily returns :math:`r` over n days, their mean :math:`\mu` and standard deviation
    :math:`\sigma`, a year is 252 days:

    - annual return :math:`(v_n / v_0)^{252/n} - 1`, volatility :math:`\sqrt{252}\,\sigma`,
    - Sharpe :math:`\sqrt{252}\,\mu / \sigma`,
    - Sortino :math:`\sqrt{252}\,\mu / \sqrt{\mathrm{mean}(\min(r, 0)^2)}`,
    - maximum drawdown :math:`\min_t v_t / \max_{s \le t} v_s - 1`, Calmar: annual return over it,
    - turnover: value bought and sold, in accounts a year,
    - deflated Sharpe: see ``deflated_sharpe``.

    A ratio over a risk of 0 is NaN.

    Args:
        totals: value of the account at the close of each day, two at least.
        traded: value bought and sold on each day but the last; none for nothing.
        trials: variants that were tried to find this one.

    >>> round(performance([100.0, 110.0, 99.0]).max_drawdown, 3)
    -0.1
    """
    value = np.asarray(totals, np.float64)
    check(value.ndim == 1 and len(value) >= 2, "totals", "hold two days at least", value.shape)
    check(bool((value > 0).all()), "totals", "be above 0", value.min())
    check(trials >= 1, "trials", "be 1 or more", trials)
    returns = value[1:] / value[:-1] - 1.0
    days = len(returns)
    annual = float(value[-1] / value[0]) ** (YEAR / days) - 1.0
    spread = float(returns.std(ddof=1)) if days > 1 else math.nan
    downside = float(np.sqrt((np.minimum(returns, 0.0) ** 2).mean()))
    drawdown = float((value / np.maximum.accumulate(value)).min()) - 1.0
    money = np.asarray(traded, np.float64)
    turnover = float((money / value[: len(money)]).sum()) * YEAR / days
    mean, root = float(returns.mean()), math.sqrt(YEAR)
    return Performance(
        cumulative_return=float(value[-1] / value[0]) - 1.0,
        annual_return=annual,
        volatility=root * spread,
        sharpe=_ratio(root * mean, spread),
        deflated_sharpe=deflated_sharpe(returns, trials=trials),
        sortino=_ratio(root * mean, downside),
        calmar=_ratio(annual, -drawdown),
        max_drawdown=drawdown,
        turnover=turnover,
    )


def _ratio(above: float, below: float) -> float:
    return above / below if below > 1e-12 else math.nan


def deflated_sharpe(returns: np.ndarray, *, trials: int = 1) -> float:
    r"""Probability that the true Sharpe ratio is above what luck gives the best of `trials`.

    .. math::
        \Phi\!\left(\frac{(S - S_0)\sqrt{n - 1}}
        {\sqrt{1 - \gamma_3 S + \frac{\gamma_4 - 1}{4} S^2}}\right), \quad
        S_0 = \frac{(1 - \gamma)\,\Phi^{-1}(1 - \frac{1}{k})
        + \gamma\,\Phi^{-1}(1 - \frac{1}{k e})}{\sqrt{n - 1}}

    (Bailey and Lopez de Prado 2014, eq. 2 and 9), with the daily ratio S, skewness
    :math:`\gamma_3`, kurtosis :math:`\gamma_4`, k trials and Euler's :math:`\gamma`. The variance
    over trials is taken as that of worthless ones, :math:`1 / (n - 1)`. With one trial
    :math:`S_0 = 0`. NaN where all returns are alike.

    >>> returns = np.array([0.01, -0.01, 0.02, 0.0])
    >>> round(deflated_sharpe(returns), 3), round(deflated_sharpe(returns, trials=10), 3)
    (0.746, 0.186)
    """
    count = len(returns)
    apart = returns - returns.mean()
    spread = float(np.sqrt((apart**2).mean()))
    if count < 3 or spread < 1e-12:
        return math.nan
    ratio = float(returns.mean() / returns.std(ddof=1))
    skewness, kurtosis = (float((apart**power).mean()) / spread**power for power in (3, 4))
    normal, luck = NormalDist(), 0.0
    if trials > 1:
        first, second = normal.inv_cdf(1 - 1 / trials), normal.inv_cdf(1 - 1 / (trials * math.e))
        luck = ((1 - _EULER) * first + _EULER * second) / math.sqrt(count - 1)
    error = math.sqrt(1 - skewness * ratio + (kurtosis - 1) / 4 * ratio**2)
    return normal.cdf((ratio - luck) * math.sqrt(count - 1) / error)
