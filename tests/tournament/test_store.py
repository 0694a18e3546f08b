"""Store and leaderboard: what is on the disk, and what a kill leaves."""

from __future__ import annotations

import sqlite3
from contextlib import suppress

import pytest

from torchrl_elegant.tournament.leaderboard import FILE, Leaderboard
from torchrl_elegant.tournament.pod import Result, leave, left_results
from torchrl_elegant.tournament.store import DamagedError, Store


def test_a_checkpoint_that_is_missing_or_torn_is_told(tmp_path):
    store = Store(tmp_path)
    digest = store.put(b"weights")
    (tmp_path / digest).write_bytes(b"weigh")
    with pytest.raises(DamagedError, match="is not what was published") as told:
        store.get(digest)
    assert told.value.digest == digest
    store.remove([digest])
    with pytest.raises(DamagedError, match="is missing"):
        store.get(digest)


def test_what_is_removed_is_deleted_by_the_next_call(tmp_path):
    store = Store(tmp_path)
    store.remove([store.put(b"a"), "0" * 64])
    assert [path.name.partition("-")[0] for path in tmp_path.iterdir()] == [".trash"]
    store.remove(())
    assert list(tmp_path.iterdir()) == []


def test_sweeping_removes_what_a_kill_has_left_and_nothing_else(tmp_path):
    store = Store(tmp_path)
    kept, stray = store.put(b"kept"), store.put(b"stray")
    (tmp_path / f".{kept}.{'0' * 32}.tmp").write_bytes(b"half")
    (tmp_path / "notes.txt").write_text("mine")
    store.sweep({kept})
    assert {path.name for path in tmp_path.iterdir()} == {kept, "notes.txt"}
    assert not store.has(stray)


def test_torn_results_are_passed_over(tmp_path, caplog):
    leave(Result(pod=3, attempt=1, kind="done", score=float("nan")), tmp_path)
    (tmp_path / "4-1.json").write_text('{"pod": 4, "att')
    (tmp_path / "5-1.json").write_text('{"pod": 5, "skill": 7}')
    (tmp_path / "6-1.7.tmp").write_text("")
    (result,) = left_results(tmp_path)
    assert (result.pod, result.kind, result.is_finite) == (3, "done", False)
    assert caplog.text.count("is passed over") == 2


def test_a_transaction_is_whole_or_nothing(tmp_path):
    with Leaderboard.create(tmp_path / FILE, {}, population=2) as board:
        with suppress(KeyError), board.transaction():
            board.set_meta("a", 1)
            raise KeyError
        assert board.meta("a") is None
        with board.transaction():
            board.set_meta("a", {"b": [1.5, None]})
        # Readers beside the writer see it, and cannot change it.
        with Leaderboard(tmp_path / FILE, read_only=True) as reader:
            assert reader.meta("a") == {"b": [1.5, None]}
            with pytest.raises(sqlite3.OperationalError, match="readonly"):
                reader.set_meta("a", 2)


def test_what_is_committed_is_flushed(tmp_path):
    with Leaderboard.create(tmp_path / FILE, {}, population=2) as board:
        found = {
            name: board._db.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("journal_mode", "synchronous")
        }
        assert found == {"journal_mode": "wal", "synchronous": 2}
