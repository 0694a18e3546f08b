"""`metrics.csv`, a row for each evaluation, and `episodes.csv`; readable after any kill."""

from __future__ import annotations

import csv
import io
import logging
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from torchrl_elegant.config.text import UsageError, brief
from torchrl_elegant.runs.files import write_file
from torchrl_elegant.trainers.clock import PACE_COLUMNS

logger = logging.getLogger(__name__)

#: Columns of `metrics.csv` that every algorithm has.
COLUMNS = (
    "frames",
    "updates",
    "seconds",
    "return_mean",
    "return_std",
    "return_ci95",
    "length_mean",
    "train_return",
    *PACE_COLUMNS,
)
EPISODE_COLUMNS = ("frame", "seconds", "return", "length")
# First column of a table of evaluations, and of one of episodes.
_FIRST = (["frames"], ["frame"])


def read_metrics(path: str | Path) -> list[dict[str, float]]:
    """The rows of a metrics file; empty cells are NaN, and a torn last line is left out.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "metrics.csv"
    ...     _ = path.write_text("frames,loss\\n100,0.5\\n20")
    ...     read_metrics(path)
    [{'frames': 100.0, 'loss': 0.5}]
    """
    path = Path(path)
    columns, lines = _parse(path)
    return [
        dict(zip(columns, _numbers(path, number, line), strict=True))
        for number, line in enumerate(lines, 2)
    ]


class MetricsFile:
    """A CSV file whose rows are only ever appended, and whose columns a run keeps to.

    Args:
        path: the file; it must exist (see `create`).

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = MetricsFile.create(Path(folder) / "metrics.csv", ["frames", "loss"])
    ...     file.append({"frames": 100, "loss": 0.5})
    ...     file.rows()
    [{'frames': 100.0, 'loss': 0.5}]
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.columns, _ = _parse(self.path)

    @classmethod
    def create(cls, path: str | Path, columns: Sequence[str]) -> MetricsFile:
        """Write the header of a new file."""
        columns = list(columns)
        if columns[:1] not in _FIRST or len(set(columns)) != len(columns):
            raise UsageError(f"`columns` must be distinct and start with frames, got {columns!r}")
        write_file(path, _line(columns))
        return cls(path)

    def append(self, *rows: Mapping[str, float | None]) -> None:
        """Add all of the rows or none, and make them durable; cells without a value stay empty."""
        unknown = sorted({name for row in rows for name in row} - set(self.columns))
        if unknown:
            raise UsageError(f"`row` must hold columns of {self.path.name}, got {unknown!r}")
        cells = ([_cell(row.get(column)) for column in self.columns] for row in rows)
        lines = b"".join(map(_line, cells))
        # Unbuffered, so that a full disk is met here and not when the file is closed.
        with self.path.open("ab", buffering=0) as file:
            end = file.seek(0, os.SEEK_END)
            try:
                _write_all(file, lines)
                os.fsync(file.fileno())
            except OSError:
                # Half a row would swallow the next one.
                file.truncate(end)
                raise

    def rows(self) -> list[dict[str, float]]:
        """Every whole row so far."""
        return read_metrics(self.path)

    def widen(self, columns: Sequence[str]) -> None:
        """Add those of ``columns`` that are not there yet; the rows so far have no value in them.

        A run that goes on with other options can have more to tell.
        """
        new = [column for column in dict.fromkeys(columns) if column not in self.columns]
        if new:
            _, lines = _parse(self.path)
            more = b"," * len(new) + b"\n"
            rows = [line[:-1] + more for line in lines]
            write_file(self.path, b"".join([_line([*self.columns, *new]), *rows]))
            self.columns += new

    def trim(self, frames: int) -> int:
        """Drop the rows after `frames`, and a torn last line; return how many rows went.

        A run that goes on from a checkpoint does the work after it again: the old rows describe
        work that is lost.
        """
        data = self.path.read_bytes()
        _, lines = _parse(self.path)
        rows = [
            (_numbers(self.path, number, line)[0], line) for number, line in enumerate(lines, 2)
        ]
        kept = [line for at, line in rows if at <= frames]
        content = b"".join([_line(self.columns), *kept])
        if content != data:
            write_file(self.path, content)
            logger.info(
                "%s: %d rows after frame %d dropped", self.path, len(lines) - len(kept), frames
            )
        return len(lines) - len(kept)


def _parse(path: Path) -> tuple[list[str], list[bytes]]:
    """Columns and whole lines. A line without its end may have lost digits as well."""
    lines = [line for line in path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
    columns = _cells(lines[0]) if lines else []
    if columns[:1] not in _FIRST or len(set(columns)) != len(columns):
        found = b"".join(lines[:1]).decode(errors="replace")
        raise UsageError(
            f"{brief(path)} must start with a line of column names, the first of them frames, got "
            f"{brief(found)!r}; put the file back as the run wrote it"
        )
    rows, commas = lines[1:], len(columns) - 1
    if rows and rows[-1].count(b",") < commas:
        # A process that is killed may leave half of the last one.
        rows.pop()
    for number, line in enumerate(rows, 2):
        if line.count(b",") != commas:
            _refuse_row(path, number, line)
    return columns, rows


def _cells(line: bytes) -> list[str]:
    try:
        return next(csv.reader([line.decode()]), [])
    except (UnicodeDecodeError, csv.Error):
        return []


def _numbers(path: Path, number: int, line: bytes) -> list[float]:
    """Numbers of a row, which is the file's line of that number; empty cells are NaN."""
    try:
        return [float(cell) if cell else math.nan for cell in line.decode().strip().split(",")]
    except ValueError:
        _refuse_row(path, number, line)


def _refuse_row(path: Path, number: int, line: bytes) -> NoReturn:
    raise UsageError(
        f"{brief(path)} must hold a number or nothing for each column, got "
        f"{brief(line.decode(errors='replace'))!r} in row {number}; mend the row, or remove it"
    )


def _line(cells: Sequence[str]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue().encode()


def _cell(value: float | None) -> str:
    if value is None:
        return ""
    number = float(value)
    return str(int(number)) if number.is_integer() and abs(number) < 2**53 else repr(number)


def _write_all(file: io.FileIO, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]
