"""`metrics.csv`: one row per evaluation, readable at any moment and after any kill."""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from torchrl._utils import logger

from torchrl_elegant.config.text import UsageError
from torchrl_elegant.runs.files import write_file


def read_metrics(path: str | Path) -> list[dict[str, float]]:
    """The rows of a metrics file; empty cells are NaN, and a torn last line is left out.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "metrics.csv"
    ...     _ = path.write_text("frames,loss\\n100,0.5\\n20")
    ...     read_metrics(path)
    [{'frames': 100.0, 'loss': 0.5}]
    """
    columns, lines = _parse(Path(path).read_bytes())
    rows = []
    for line in lines:
        cells = next(csv.reader([line.decode()]))
        values = (float(cell) if cell else math.nan for cell in cells)
        rows.append(dict(zip(columns, values, strict=True)))
    return rows


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
        self.columns, _ = _parse(self.path.read_bytes())

    @classmethod
    def create(cls, path: str | Path, columns: Sequence[str]) -> MetricsFile:
        """Write the header of a new file."""
        columns = list(columns)
        if columns[:1] != ["frames"] or len(set(columns)) != len(columns):
            raise UsageError(f"`columns` must be distinct and start with frames, got {columns!r}")
        write_file(path, _line(columns))
        return cls(path)

    def append(self, row: Mapping[str, float | None]) -> None:
        """Add a row and make it durable; columns without a value stay empty."""
        unknown = sorted(set(row) - set(self.columns))
        if unknown:
            raise UsageError(f"`row` must hold columns of {self.path.name}, got {unknown!r}")
        line = _line([_cell(row.get(column)) for column in self.columns])
        # Unbuffered, so that a full disk is met here and not when the file is closed.
        with self.path.open("ab", buffering=0) as file:
            end = file.seek(0, os.SEEK_END)
            try:
                _write_all(file, line)
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
        new = [column for column in columns if column not in self.columns]
        if new:
            _, lines = _parse(self.path.read_bytes())
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
        _, lines = _parse(data)
        kept = [line for line in lines if float(line.split(b",", 1)[0]) <= frames]
        content = b"".join([_line(self.columns), *kept])
        if content != data:
            write_file(self.path, content)
            logger.info(
                "%s: %d rows after frame %d dropped", self.path, len(lines) - len(kept), frames
            )
        return len(lines) - len(kept)


def _parse(data: bytes) -> tuple[list[str], list[bytes]]:
    """Columns and whole lines. A line without its end may have lost digits as well."""
    lines = [line for line in data.splitlines(keepends=True) if line.endswith(b"\n")]
    if not lines:
        raise UsageError("the metrics file must start with a line of column names, got none")
    columns = next(csv.reader([lines[0].decode()]))
    return columns, [line for line in lines[1:] if line.count(b",") == len(columns) - 1]


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
