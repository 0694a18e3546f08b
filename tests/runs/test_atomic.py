"""Whole files or none."""

from __future__ import annotations

import os

import pytest

from torchrl_elegant.runs.files import sync_tree, write_file


def test_replaces_the_whole_content(tmp_path):
    path = tmp_path / "file"
    write_file(path, b"a long first content")
    write_file(path, b"short")
    assert path.read_bytes() == b"short"
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_refusing_disk_leaves_the_old_content(tmp_path, monkeypatch, call):
    path = tmp_path / "file"
    write_file(path, b"old")

    def refuse(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, call, refuse)
    with pytest.raises(OSError, match="No space"):
        write_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_sync_tree_reaches_every_file_and_directory(tmp_path, monkeypatch):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "file").write_text("x")
    (tmp_path / "top").write_text("y")
    opened = []
    real = os.open
    monkeypatch.setattr(os, "open", lambda path, flags: opened.append(path) or real(path, flags))
    sync_tree(tmp_path)
    found = {path.relative_to(tmp_path).as_posix() for path in opened}
    assert found == {"a/b/file", "a/b", "a", "top", "."}
