"""Digests of directories."""

from __future__ import annotations

import pytest

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


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"sub/data": 1}', "3"])
def test_broken_digests(root, text):
    (root / "digests.json").write_text(text)
    assert find_damage(root)
