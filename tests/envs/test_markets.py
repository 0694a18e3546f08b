"""Markets: tables in every form, every fault in a line, indicators by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from torchrl_elegant.envs.markets import Market, load_market, read_market, synthetic_market
from torchrl_elegant.envs.markets.indicators import INDICATORS, trailing_score, turbulence

TABLE = """date,ticker,close,earnings
2024-01-02,B,10,1
2024-01-02,A,20,2
2024-01-03,B,11,3
2024-01-03,A,21,4
2024-01-04,B,12,5
2024-01-04,A,22,6
"""


def written(folder, text: str, name: str = "prices.csv"):
    path = folder / name
    path.write_text(text)
    return path


def test_a_table_by_days_and_one_by_tickers_are_the_same_market(tmp_path) -> None:
    head, *rows = TABLE.splitlines()
    by_ticker = "\n".join([head, *sorted(rows, key=lambda row: row.split(",")[1])])
    for text in (TABLE, by_ticker):
        market = load_market(str(written(tmp_path, text)), tickers=["A", "B"])
        assert market.close.tolist() == [[20.0, 10.0], [21.0, 11.0], [22.0, 12.0]]
        assert market.extra["earnings"].tolist() == [[2.0, 1.0], [4.0, 3.0], [6.0, 5.0]]
        assert market.feature_names[-1] == "earnings"
        assert market.features.shape == (3, 2, 8)


def test_an_index_is_kept_apart(tmp_path) -> None:
    market = load_market(str(written(tmp_path, TABLE)), index="B")
    assert market.tickers == ("A",)
    assert market.index.tolist() == [10.0, 11.0, 12.0]


@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
def test_other_forms_are_read_alike(tmp_path, suffix) -> None:
    csv, path = written(tmp_path, TABLE), tmp_path / f"prices{suffix}"
    table = pd.read_csv(csv)
    if suffix == ".npz":
        columns = {name: table[name].to_numpy() for name in ("close", "earnings")}
        texts = {name: table[name].to_numpy().astype("U10") for name in ("date", "ticker")}
        np.savez(path, **columns, **texts)
    else:
        pytest.importorskip("pyarrow")
        table.assign(date=pd.to_datetime(table["date"])).to_parquet(path)
    ours, theirs = read_market(path), read_market(csv)
    assert ours.tickers == theirs.tickers
    assert (ours.dates == theirs.dates).all()
    np.testing.assert_array_equal(ours.features, theirs.features)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("2024-01-03,A,21,4\n", "", "`close` must have no holes, got none of A on `2024-01-03`"),
        ("A,21,", "A,,", "`close` must have no holes, got none of A on `2024-01-03`"),
        ("A,21,4", "A,21,", "`earnings` must have no holes, got none of A on `2024-01-03`"),
        ("A,21,", "A,-21,", "`close` must be above 0, got `-21.0` of A on 2024-01-03"),
        ("A,21,", "A,0,", "`close` must be above 0, got `0.0` of A on 2024-01-03"),
        ("A,21,", "A,inf,", "`close` must be above 0, got `inf` of A on 2024-01-03"),
        ("A,21,", "A,high,", "`close` must hold numbers, got `high` in row 4"),
        ("2024-01-03,A", "2024-01-02,A", "`date` must come once for each ticker, got `2024-01-02`"),
        ("2024-01-03,A", "2024-01-01,A", "`date` must rise from row to row of a ticker"),
        ("2024-01-03,A", "soon,A", "`date` must be a day such as 2024-01-31, got `soon` in row 4"),
        ("2024-01-03,A", "2024-01-03,", "`ticker` must name an asset, got nothing in row 4"),
        ("2024-01-03,A", "2024-01-03, ", "`ticker` must name an asset, got nothing in row 4"),
        (
            TABLE,
            "date,ticker,close\n2024-01-02T00:00-05:00,A,1\n2024-07-02T00:00-04:00,A,1\n",
            "`date` must have one UTC offset, got `2024-01-02T00:00-05:00` and others",
        ),
        ("earnings", "close", "two columns are named `close`; remove one"),
        ("close", "price", "`market` must have the columns date, ticker, close, got"),
        (TABLE.partition("\n")[2], "", "`market` must have rows and the columns"),
        (TABLE, "", "`market` must be a table that can be read"),
    ],
)
def test_a_faulty_table_is_told_in_a_line(tmp_path, old, new, told) -> None:
    assert old in TABLE
    path = written(tmp_path, TABLE.replace(old, new))
    with pytest.raises(ValueError) as caught:
        read_market(path)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["NA", "NULL", "nan", "007"])
def test_a_ticker_is_the_text_that_stands_there(tmp_path, name) -> None:
    path = written(tmp_path, TABLE.replace(",A,", f",{name},"))
    assert read_market(path).tickers == ("B", name)


@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
def test_a_ticker_that_is_missing_is_told_in_every_form(tmp_path, suffix) -> None:
    path = tmp_path / f"prices{suffix}"
    days, close = np.array(["2024-01-02"] * 2), np.array([1.0, 2.0])
    if suffix == ".npz":
        np.savez(path, date=days, ticker=np.array(["A", ""]), close=close)
    else:
        pytest.importorskip("pyarrow")
        pd.DataFrame({"date": days, "ticker": ["A", None], "close": close}).to_parquet(path)
    with pytest.raises(ValueError, match="`ticker` must name an asset, got nothing in row 2"):
        read_market(path)


def test_an_npz_file_with_pickles_is_refused(tmp_path) -> None:
    path = tmp_path / "prices.npz"
    np.savez(path, date=np.array(["2024-01-02", None], object), ticker=["A"] * 2, close=[1.0] * 2)
    with pytest.raises(ValueError, match="`market` must be a table that can be read"):
        read_market(path)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ({"dates": ["2024-01-03", "2024-01-02"]}, "`dates` must rise"),
        ({"close": np.ones((2, 2))}, "`close` must be of shape (2, 1), got `(2, 2)`"),
        ({"close": [[1.0], [np.nan]]}, "`close` must be above 0, got `nan` of A on 2024-01-03"),
        ({"index": [1.0, 0.0]}, "`index` must be above 0, got `0.0` on 2024-01-03"),
        ({"extra": {"x": [[1.0], [np.inf]]}}, "`x` must be finite, got `inf` of A"),
        ({"dates": [], "close": np.ones((0, 1))}, "`market` must hold a day"),
    ],
)
def test_a_market_refuses_what_is_no_market(words, told) -> None:
    whole = {"dates": ["2024-01-02", "2024-01-03"], "tickers": ("A",), "close": [[1.0], [2.0]]}
    with pytest.raises(ValueError) as caught:
        Market(**{**whole, **words})
    assert told in str(caught.value)


def test_a_split_without_days_is_refused() -> None:
    market = synthetic_market(days=10, assets=2)
    assert market.between(None, None) == slice(0, 10)
    for start, end in (("2031-01-01", None), (None, "2001-01-01"), ("2010-01-08", "2010-01-06")):
        with pytest.raises(ValueError, match="must leave days between `start` and `end`"):
            market.between(start, end)


def test_indicators_of_a_few_days_by_hand() -> None:
    close = np.array([[10.0], [11.0], [12.0], [9.0]])
    logs = np.log([11 / 10, 12 / 11, 9 / 12])
    risk = np.std([0.0, *logs])
    values = {name: make(close)[-1, 0] for name, make in INDICATORS.items()}
    fast, slow = 10.0, 10.0
    for price in (11.0, 12.0, 9.0):
        fast, slow = fast + 2 / 13 * (price - fast), slow + 2 / 27 * (price - slow)
    up = down = 0.0
    for change in (1.0, 1.0, -3.0):
        up += (max(change, 0.0) - up) / 14
        down += (max(-change, 0.0) - down) / 14
    month = np.array([10.0] * 17 + [11.0, 12.0, 9.0])
    expected = {
        "macd": (fast - slow) / 9.0 / risk,
        "rsi": (up - down) / (up + down),
        "bollinger": (9.0 - 10.5) / (2.0 * np.std([10.0, 11.0, 12.0, 9.0])),
        "cci": (9.0 - month.mean()) / (1.5 * np.abs(month - month.mean()).mean()),
        "return": logs[-1] / risk,
        "momentum": np.log(0.9) / (risk * 60**0.5),
        "volatility": risk * 252**0.5,
    }
    assert values == pytest.approx(expected)


def test_a_price_that_stands_still_has_features_of_zero() -> None:
    still = np.concatenate([np.linspace(3.3, 7.7, 50), np.full(300, 7.7)])[:, None]
    features = np.stack([make(still) for make in INDICATORS.values()], -1)
    assert np.isfinite(features).all()
    np.testing.assert_allclose(features[-1], 0.0, atol=1e-5)
    assert trailing_score(still)[-1].item() == 0.0


def test_turbulence_is_the_distance_from_the_year_before() -> None:
    close = synthetic_market(days=300, assets=3).close
    found = turbulence(close)
    returns = np.diff(np.log(close), axis=0)
    day = 280
    past = returns[day - 1 - 252 : day - 1]
    covariance = np.cov(past.T) + np.diag(0.01 * past.var(0, ddof=1) + 1e-12)
    apart = returns[day - 1] - past.mean(0)
    assert found[day] == pytest.approx(apart @ np.linalg.inv(covariance) @ apart / 3)
    assert (found[:253] == 0).all()
    assert found[253] > 0
    assert 0.5 < found[253:].mean() < 2.0
    assert (turbulence(close[:100]) == 0).all()


def test_the_real_prices_come_with_their_package() -> None:
    pytest.importorskip("skfolio")
    market = load_market("sp500")
    assert market.close.shape == (8313, 20)
    assert market.index[0] == 359.69
    assert market.span == "1990-01-02 to 2022-12-28"
    assert market.close[0, market.tickers.index("AAPL")] == 0.264
    assert "without dividends" in load_market("sp500", tickers=["AAPL"]).index_note
    # Any other index is one of the stocks, whose closes are adjusted as all.
    assert load_market("sp500", index="AAPL").index_note == ""


def test_a_missing_package_names_its_extra(monkeypatch) -> None:
    from torchrl_elegant.envs.markets import sources

    monkeypatch.setitem(__import__("sys").modules, "skfolio.datasets", None)
    sources.sp500_market.cache_clear()
    with pytest.raises(ImportError, match=r"pip install torchrl_elegant\[finance\]"):
        load_market("sp500")
