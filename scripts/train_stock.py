"""Train and backtest a trader: `python scripts/train_stock.py market=sp500 split=2016-01-01`."""

import sys

if __name__ == "__main__":
    # Here, because worker processes read this file as well, and need none of it.
    from torchrl_elegant.cli.stock import stock_command

    sys.exit(stock_command(sys.argv[1:], program="train_stock.py"))
