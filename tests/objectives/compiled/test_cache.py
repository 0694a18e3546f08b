"""The folder of compiled functions stays bounded and never stands in the way."""

from __future__ import annotations

import os
import tempfile
from types import SimpleNamespace

import pytest
import torch
from torch._inductor import config

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


def fill(digest="0", text="compiled"):
    """Add a file to a folder; return the names of those that were kept there before."""
    with folder_of(digest) as folder:
        found = sorted(path.name for path in folder.iterdir())
        (folder / text).write_text(text)
    return found


@pytest.fixture
def loose_mask():
    """The usual mask of many systems: groups may write."""
    before = os.umask(0o002)
    yield
    os.umask(before)


@pytest.mark.usefixtures("loose_mask")
@pytest.mark.parametrize("first", ["folder", "file"])
def test_only_its_owner_may_write_what_is_run(first):
    if first == "file":
        write_cached(cache_folder() / "products.json", b"{}")
    fill()
    for folder in (cache_folder().parent, cache_folder(), cache_folder() / "0"):
        assert folder.stat().st_mode & 0o077 == 0
    assert fill() == ["compiled"]


FOREIGN = {
    "the package's": lambda: cache_folder().parent,
    "the cache": cache_folder,
    "a function's": lambda: cache_folder() / "0",
}


@pytest.mark.parametrize("mode", [0o770, 0o702])
@pytest.mark.parametrize("name", FOREIGN)
def test_where_others_may_write_nothing_is_read_and_nothing_kept(name, mode, caplog):
    fill()
    FOREIGN[name]().chmod(mode)
    assert not cache.is_kept("0")
    cache.forget("0")
    assert fill() == []
    told = [each.message for each in caplog.records if each.levelname == "WARNING"]
    if name == "a function's":
        assert not told
        assert fill() == ["compiled"]  # made anew, for this user alone
    else:
        assert fill() == []
        write_cached(cache_folder() / "products.json", b"{}")
        assert len(told) == 1
        assert f"others may write to {FOREIGN[name]()}, and what lies there would be run" in told[0]
        names = [path.relative_to(cache_folder()) for path in cache_folder().rglob("*")]
        assert list(map(str, names)) == ["0", "0/compiled"]


def test_the_folder_of_another_user_is_left_alone(monkeypatch, caplog):
    fill()
    mine = os.geteuid()
    monkeypatch.setattr(cache.os, "geteuid", lambda: mine + 1)
    for _ in range(2):
        assert fill() == []
    assert not cache.is_kept("0")
    assert caplog.text.count("belongs to another user, and what lies there would be run") == 1
    monkeypatch.setattr(cache, "_POSIX", False)  # owners and modes tell nothing elsewhere
    assert cache.is_kept("0")


def test_a_link_that_another_user_has_made_is_not_followed(monkeypatch, tmp_path):
    (tmp_path / "place").mkdir(mode=0o700)
    (tmp_path / "torchrl_elegant").symlink_to(tmp_path / "place")
    fill()
    assert (tmp_path / "place" / "compiled" / "0").is_dir()
    if os.geteuid() == 0:
        os.lchown(tmp_path / "torchrl_elegant", 12345, 12345)
    else:
        own = os.lstat(tmp_path / "torchrl_elegant")
        theirs = os.stat_result((*own[:4], own.st_uid + 1, *own[5:]))
        monkeypatch.setattr(cache.Path, "lstat", lambda path: theirs)
    assert fill() == []


def test_a_process_that_is_killed_leaves_nothing_to_read():
    killed = folder_of("0")
    (killed.__enter__() / "half").write_text("hal")
    assert not cache.is_kept("0")
    assert fill() == []
    assert cache.is_kept("0")
    again = folder_of("0")
    (again.__enter__() / "half").write_text("hal")
    assert fill(text="more") == ["compiled"]
    assert fill() == ["compiled", "more"]
    assert len([path for path in cache_folder().iterdir() if path.name.startswith(".")]) == 2


def test_a_folder_that_may_only_be_read_is_done_without(monkeypatch, caplog):
    def read_only(dir=None, **options):
        if dir is not None:
            raise OSError("Read-only file system")
        return tempfile.TemporaryDirectory(**options)

    fill()
    caplog.set_level("INFO")
    monkeypatch.setattr(cache, "tempfile", SimpleNamespace(TemporaryDirectory=read_only))
    assert fill() == []
    assert "takes no files: what is compiled is not kept (Read-only file system)" in caplog.text


def test_a_disk_that_is_full_in_the_end_is_no_fault(monkeypatch):
    def full(*given):
        raise OSError("No space left on device")

    monkeypatch.setattr(cache.os, "fsync", full)
    assert fill() == fill() == []


def test_what_fails_is_not_kept():
    failing = folder_of("0")
    (failing.__enter__() / "half").write_text("hal")
    assert not failing.__exit__(RuntimeError, RuntimeError("the compiler said no"), None)
    assert list(cache_folder().iterdir()) == []


def test_what_killed_processes_have_left_goes_after_a_day():
    left = folder_of("0")
    staged = left.__enter__().parent
    fill()
    assert staged.exists()
    age = staged.stat().st_mtime - DAY - 1
    os.utime(staged, (age, age))
    fill()
    assert not staged.exists()
    assert fill() == ["compiled"]


def test_two_processes_that_compile_the_same_both_end_well():
    first, second = folder_of("0"), folder_of("0")
    for number, each in enumerate((first, second)):
        (each.__enter__() / f"{number}").write_text("")
    for each in (first, second):
        each.__exit__(None, None, None)
    assert fill() in (["0"], ["1"])


def test_no_headers_are_compiled_beforehand():
    # Half of such a header, outside of the folder, would end each later compilation.
    before = config.cpp_cache_precompile_headers
    with folder_of("0"):
        assert not config.cpp_cache_precompile_headers
    assert config.cpp_cache_precompile_headers == before


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
