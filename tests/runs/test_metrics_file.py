"""metrics.csv: fixed columns, whole rows."""

from __future__ import annotations

import math
import os

import pytest

from torchrl_elegant.config.text import UsageError
from torchrl_elegant.runs.metrics import MetricsFile, read_metrics


@pytest.fixture
def file(tmp_path):
    file = MetricsFile.create(tmp_path / "metrics.csv", ["frames", "return_mean", "alpha"])
    for frames in (100, 200, 300):
        file.append({"frames": frames, "return_mean": frames / 7})
    return file


def test_rows_come_back_exactly(file):
    file.append({"frames": 400, "return_mean": float("inf"), "alpha": 1e-30})
    rows = file.rows()
    assert [row["frames"] for row in rows] == [100, 200, 300, 400]
    assert rows[1]["return_mean"] == 200 / 7
    assert math.isnan(rows[0]["alpha"])
    assert rows[3] == {"frames": 400, "return_mean": math.inf, "alpha": 1e-30}
    assert file.path.read_text().splitlines()[0] == "frames,return_mean,alpha"


def test_unknown_column_is_refused(file):
    before = file.path.read_bytes()
    with pytest.raises(UsageError, match="entropy"):
        file.append({"frames": 400, "entropy": 1.0})
    assert file.path.read_bytes() == before


@pytest.mark.parametrize("columns", [[], ["updates"], ["frames", "a", "a"]])
def test_columns_are_checked(tmp_path, columns):
    with pytest.raises(UsageError, match="columns"):
        MetricsFile.create(tmp_path / "m.csv", columns)


@pytest.mark.parametrize("lost", [1, 3, 18, 25])
def test_torn_last_line_is_passed_over_and_trimmed(file, lost):
    data = file.path.read_bytes()
    file.path.write_bytes(data[:-lost])
    whole = data[:-lost].count(b"\n") - 1
    assert len(read_metrics(file.path)) == whole < 3
    again = MetricsFile(file.path)
    again.trim(10**9)
    again.append({"frames": 999})
    assert [row["frames"] for row in again.rows()] == [*[100, 200, 300][:whole], 999]


def test_a_line_end_does_not_make_a_row(file):
    with file.path.open("ab") as stream:
        stream.write(b"40\n")
    assert len(file.rows()) == 3


def test_trim_drops_rows_after_the_frame(file):
    assert file.trim(200) == 1
    assert [row["frames"] for row in file.rows()] == [100, 200]
    stamp = file.path.stat().st_mtime_ns
    assert file.trim(200) == 0
    assert file.path.stat().st_mtime_ns == stamp
    assert file.trim(0) == 2
    assert MetricsFile(file.path).columns == ["frames", "return_mean", "alpha"]


def test_new_columns_are_empty_in_old_rows(file):
    before, columns = file.rows(), list(file.columns)
    file.widen([columns[-1], "new", "newer"])
    for each in (file, MetricsFile(file.path)):
        assert each.columns == [*columns, "new", "newer"]
        for old, row in zip(before, each.rows(), strict=True):
            assert str({name: row[name] for name in columns}) == str(old)
            assert math.isnan(row["new"])
    file.append({"frames": 1_000, "newer": 2.0})
    assert file.rows()[-1]["newer"] == 2.0
    assert file.trim(1_000) == 0


def test_known_columns_leave_the_file_alone(file, monkeypatch):
    monkeypatch.setattr("torchrl_elegant.runs.metrics.write_file", None)
    file.widen(file.columns[:1])
    file.widen([])


def test_trim_is_logged(file, monkeypatch):
    lines = []
    monkeypatch.setattr(
        "torchrl_elegant.runs.metrics.logger.info", lambda *args: lines.append(args)
    )
    file.trim(100)
    assert lines[0][2:] == (2, 100)


def test_full_disk_leaves_whole_rows(file, monkeypatch):
    before = file.path.read_bytes()

    def refuse(descriptor):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refuse)
        with pytest.raises(OSError, match="No space"):
            file.append({"frames": 400})
    assert file.path.read_bytes() == before
    file.append({"frames": 500})
    assert [row["frames"] for row in file.rows()] == [100, 200, 300, 500]


def test_empty_file_is_named(tmp_path):
    (tmp_path / "m.csv").write_text("fra")
    with pytest.raises(UsageError, match="column names"):
        read_metrics(tmp_path / "m.csv")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "must start with a line of column names"),
        (b"\xff\xfe\x00\n1,2\n", "must start with a line of column names"),
        (b"loss,frames\n1,2\n", "must start with a line of column names"),
        (b"frames,loss\n100,0.5\nhello\n200,0.5\n", "in row 3; mend the row"),
        (b"frames,loss\n100,hello\n", "in row 2; mend the row"),
        (b"frames,loss\n100,0.5\n\xff\xfe,1\n", "in row 3; mend the row"),
        (b"frames,loss\n100,0.5,7\n", "in row 2; mend the row"),
    ],
)
def test_garbage_is_refused_in_one_line_and_stays(tmp_path, content, told):
    path = tmp_path / "metrics.csv"
    path.write_bytes(content)
    with pytest.raises(UsageError) as error:
        MetricsFile(path).trim(1)
    assert told in str(error.value)
    assert "\n" not in str(error.value)
    with pytest.raises(UsageError):
        read_metrics(path)
    assert path.read_bytes() == content
