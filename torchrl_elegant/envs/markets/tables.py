"""Long tables of prices: a row for each day and asset, read from CSV, Parquet or npz."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from torchrl_elegant.config.text import brief
from torchrl_elegant.envs.markets.market import Market

_NEEDED = ("date", "ticker", "close")
# Texts of a CSV file that stand for no number.
_HOLES = ["", "NA", "N/A", "#N/A", "NaN", "nan", "NULL", "null", "None"]


def _parquet(path: Path) -> pd.DataFrame:
    try:
        return pd.read_parquet(path)
    except ImportError as error:
        raise ImportError(
            f"`{brief(path)}` needs a package that is not installed: "
            "pip install torchrl_elegant[finance]"
        ) from error


def _npz(path: Path) -> pd.DataFrame:
    with np.load(path, allow_pickle=False) as arrays:
        return pd.DataFrame({name: arrays[name] for name in arrays.files})


def _csv(path: Path) -> pd.DataFrame:
    head = pd.read_csv(path, header=None, nrows=1, dtype=str).iloc[0].dropna()
    if head.duplicated().any():
        name = brief(head[head.duplicated()].iloc[0])
        raise ValueError(f"two columns are named `{name}`; remove one")
    # Beside numbers a NA is a hole; a ticker can have that name.
    holes = {name: _HOLES for name in head if name != "ticker"}
    return pd.read_csv(path, dtype={"ticker": str}, keep_default_na=False, na_values=holes)


_READERS: Mapping[str, Callable[[Path], pd.DataFrame]] = {
    ".csv": _csv,
    ".parquet": _parquet,
    ".npz": _npz,
}
#: Ends of the names of files that can be read.
SUFFIXES = tuple(_READERS)


def read_market(path: str | Path) -> Market:
    """Reads a table with the columns `date`, `ticker`, `close`, and any features beside them.

    Every asset needs a price on every day; the days of an asset stand in order. An npz file holds
    an array for each column, and no pickles.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "prices.csv"
    ...     rows = "2024-01-02,A,10,1.5\\n2024-01-03,A,11,1.6\\n"
    ...     written = path.write_text("date,ticker,close,earnings\\n" + rows)
    ...     market = read_market(path)
    >>> market.close.tolist(), market.feature_names[-1]
    ([[10.0], [11.0]], 'earnings')
    """
    path = Path(path)
    try:
        table = _READERS[path.suffix](path)
    except (ValueError, OSError, UnicodeError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(
            f"`market` must be a table that can be read, got `{brief(path)}`: {brief(reason)}"
        ) from error
    _refuse_columns(table, path)
    _refuse_unnamed(table["ticker"])
    table = table.assign(date=_dates(table["date"]), ticker=table["ticker"].astype(str))
    _refuse_order(table)
    features = [name for name in table.columns if name not in _NEEDED]
    values = {name: _wide(table, name) for name in ("close", *features)}
    close = values.pop("close")
    return Market(
        dates=close.index.to_numpy(),
        tickers=tuple(close.columns),
        close=close.to_numpy(),
        extra={name: frame.to_numpy() for name, frame in values.items()},
    )


def _refuse_columns(table: pd.DataFrame, path: Path) -> None:
    missing = [name for name in _NEEDED if name not in table.columns]
    if missing or table.empty:
        got = f"{brief(path)}` with {brief(', '.join(map(str, table.columns)))}"
        rows = "rows and " if table.empty else ""
        raise ValueError(f"`market` must have {rows}the columns date, ticker, close, got `{got}")
    for name in table.columns.drop(["date", "ticker"]):
        if not pd.api.types.is_numeric_dtype(table[name]):
            numbers = pd.to_numeric(table[name], errors="coerce")
            wrong = table[name][numbers.isna() & table[name].notna()]
            raise ValueError(
                f"`{name}` must hold numbers, got `{brief(wrong.iloc[0] if len(wrong) else name)}`"
                f" in row {wrong.index[0] + 1 if len(wrong) else 1}; drop the column or mend it"
            )


def _refuse_unnamed(tickers: pd.Series) -> None:
    nothing = (tickers.isna() | (tickers.astype(str).str.strip() == "")).to_numpy()
    if nothing.any():
        raise ValueError(
            f"`ticker` must name an asset, got nothing in row {nothing.argmax() + 1} and "
            f"{nothing.sum() - 1} more; name it, or remove the row"
        )


def _dates(texts: pd.Series) -> pd.Series:
    # Numbers would be read as nanoseconds since 1970.
    if pd.api.types.is_numeric_dtype(texts):
        texts = texts.astype(str)
    try:
        form = "ISO8601" if _is_text(texts) else None
        days = pd.to_datetime(texts, errors="coerce", format=form)
    except ValueError as error:
        raise ValueError(
            f"`date` must have one UTC offset, got `{brief(texts.iloc[0])}` and others; write days "
            "alone, such as 2024-01-31"
        ) from error
    if days.isna().any():
        row = int(days.isna().to_numpy().argmax())
        raise ValueError(
            f"`date` must be a day such as 2024-01-31, got `{brief(texts.iloc[row])}` in row "
            f"{row + 1}"
        )
    return days.dt.tz_localize(None).dt.normalize()


def _is_text(values: pd.Series) -> bool:
    return not pd.api.types.is_datetime64_any_dtype(values)


def _refuse_order(table: pd.DataFrame) -> None:
    double = table.duplicated(["date", "ticker"])
    back = table.groupby("ticker", sort=False)["date"].diff() < pd.Timedelta(0)
    for wrong, must, way_out in (
        (double, "come once for each ticker", "keep one row"),
        (back, "rise from row to row of a ticker", "sort the table by date"),
    ):
        if wrong.any():
            row = table[wrong].iloc[0]
            raise ValueError(
                f"`date` must {must}, got `{row['date']:%Y-%m-%d}` of {row['ticker']} and "
                f"{int(wrong.sum()) - 1} more; {way_out}"
            )


def _wide(table: pd.DataFrame, name: str) -> pd.DataFrame:
    """A column as days by tickers; ValueError where an asset lacks a day."""
    wide = table.pivot(index="date", columns="ticker", values=name)
    wide = wide[table["ticker"].unique()]
    holes = wide.isna().to_numpy()
    if holes.any():
        day, column = np.argwhere(holes)[0]
        raise ValueError(
            f"`{name}` must have no holes, got none of {wide.columns[column]} on "
            f"`{wide.index[day]:%Y-%m-%d}` and {int(holes.sum()) - 1} more; fill them, or remove "
            "the ticker or the day"
        )
    return wide
