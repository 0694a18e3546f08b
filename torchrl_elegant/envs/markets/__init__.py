"""Markets: prices of stocks by name or from a table, and indicators that never look ahead."""

from torchrl_elegant.envs.markets.indicators import INDICATORS
from torchrl_elegant.envs.markets.market import Market
from torchrl_elegant.envs.markets.sources import load_market, sp500_market, synthetic_market
from torchrl_elegant.envs.markets.tables import read_market

__all__ = [
    "INDICATORS",
    "Market",
    "load_market",
    "read_market",
    "sp500_market",
    "synthetic_market",
]
