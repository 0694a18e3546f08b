"""Digests of directories."""

from __future__ import annotations

import random

import pytest
from torch import nn
from torchrl.checkpoint import CheckpointError

from torchrl_elegant.runs.checkpoints import Checkpoints
from torchrl_elegant.runs.files import find_damage, write_digests


@pytest.fixture
def root(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "manifest.json").write_text("{}")
    (tmp_path / "sub" / "data").write_bytes(b"abc")
    write_digests(tmp_path)
    return tmp_path


def test_whole(root):
    assert find_damage(root) is None


@pytest.mark.parametrize("name", ["manifest.json", "sub/data"])
@pytest.mark.parametrize("content", [b"", b"abd", None])
def test_damage_names_the_file(root, name, content):
    (root / name).unlink()
    if content is not None:
        (root / name).write_bytes(content)
    assert name in find_damage(root)


def test_a_file_that_was_put_in_later_is_damage(root):
    (root / "sub" / "more").write_bytes(b"")
    assert find_damage(root) == "digests.json does not cover sub/more"


@pytest.mark.parametrize("seed", range(60))
def test_any_flipped_bit_in_a_checkpoint_is_found(tmp_path, seed):
    saves = Checkpoints(tmp_path, keep_last=1, components={"net": nn.Linear(2, 1), "own": {"a": 1}})
    path = saves.save(1, {"return_mean": 2.0})
    files = sorted(file for file in path.rglob("*") if file.is_file())
    draw = random.Random(seed)
    victim = draw.choice(files)
    data = bytearray(victim.read_bytes())
    place = draw.randrange(8 * len(data))
    data[place // 8] ^= 1 << place % 8
    victim.write_bytes(data)
    assert find_damage(path)
    assert saves.latest() is None
    with pytest.raises(CheckpointError, match="is damaged"):
        saves.load(path)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"sub/data": 1}', "3"])
def test_broken_digests(root, text):
    (root / "digests.json").write_text(text)
    assert find_damage(root)
