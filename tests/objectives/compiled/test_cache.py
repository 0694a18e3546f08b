"""The folder of compiled functions stays bounded and never stands in the way."""

from __future__ import annotations

import os

import pytest
import torch

from torchrl_elegant.objectives.compiled import cache
from torchrl_elegant.objectives.compiled.cache import cache_folder, folder_of, write_cached
from torchrl_elegant.objectives.compiled.compiler import compile_recording
from torchrl_elegant.objectives.compiled.recording import record

DAY = 86_400


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(cache, "KEPT", 3)


def test_those_that_were_used_last_stay():
    now = 0.0
    for number in range(6):
        with folder_of(f"{number}") as folder:
            (folder / "code").write_text("compiled")
            now = folder.stat().st_mtime
    kept = cache_folder() / "products.json"
    kept.write_text("{}")
    assert len([each for each in cache_folder().iterdir() if each.is_dir()]) == 6  # all of today
    for number in range(6):
        age = now - (2 + number) * DAY
        os.utime(cache_folder() / f"{number}", (age, age))
    with folder_of("5") as folder:  # used again
        assert (folder / "code").read_text() == "compiled"
    assert sorted(path.name for path in cache_folder().iterdir()) == [
        "0",
        "1",
        "5",
        "products.json",
    ]


def test_only_its_owner_may_write_what_is_run():
    with folder_of("0") as folder:
        assert folder.stat().st_mode & 0o077 == 0


def test_a_place_that_takes_no_files_is_done_without(tmp_path, caplog):
    (tmp_path / "torchrl_elegant").write_text("a file where a folder should be")
    caplog.set_level("INFO")
    with folder_of("0") as folder:
        (folder / "code").write_text("compiled")
    assert not folder.exists()
    assert "takes no files: what is compiled is not kept" in caplog.text
    write_cached(tmp_path / "torchrl_elegant" / "products.json", b"{}")
    assert (tmp_path / "torchrl_elegant").read_text() == "a file where a folder should be"


def test_a_file_is_written_in_one_step():
    path = cache_folder() / "products.json"
    for text in (b"one", b"two"):
        write_cached(path, text)
        assert path.read_bytes() == text
    assert [each.name for each in path.parent.iterdir()] == ["products.json"]


@pytest.mark.parametrize("given", ["rel/cache", "~/cache", ""])
def test_a_folder_that_is_no_whole_path_is_ignored(monkeypatch, tmp_path, given):
    monkeypatch.setenv("XDG_CACHE_HOME", given)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "torchrl_elegant" / "compiled"


def test_nobody_has_no_cache(monkeypatch):
    def nobody():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(cache.Path, "home", nobody)
    with folder_of("0") as folder:
        (folder / "code").write_text("compiled")
    assert not folder.exists()


def test_what_is_damaged_is_made_anew():
    x = torch.ones(3)
    recording = record(lambda x: [torch.tanh(x) + 1.0], [x])
    compile_recording(recording, [x])
    libraries = list(cache_folder().rglob("*.py"))
    assert libraries
    for path in libraries:
        path.write_text("def")
    found = compile_recording(recording, [x])([x])
    torch.testing.assert_close(found[0], torch.tanh(x) + 1.0)
