"""A run that is killed while its update is compiled spoils no later one."""

from __future__ import annotations

import shutil
import signal

import pytest
import torch
from faults.fault_envs import point
from faults.runs import PATIENCE, SMALL, end_session, start, wait_until

from torchrl_elegant import SACConfig, train
from torchrl_elegant.runs.exported.policy_file import read_page

WORDS = (*SMALL, "total_frames=64", "seed=3", "compile=true")

# Leaves a part of the library of a compiled update, and then hangs.
COMPILER = """#!/bin/sh
{compiler} "$@" || exit
[ -e {hangs} ] || exit 0
for word; do
    [ "$before" = -o ] && out=$word
    before=$word
done
case "$out" in
*.main.so)
    truncate -s $(($(wc -c <"$out") / 4)) "$out"
    mv {hangs} {part}
    exec sleep 600
    ;;
esac
"""


@pytest.fixture
def part(tmp_path, monkeypatch):
    """Name of the file that this test's compiler makes when a part of a library is written."""
    part, hangs = tmp_path / "part", tmp_path / "hangs"
    hangs.touch()
    compiler = tmp_path / "g++"
    compiler.write_text(COMPILER.format(compiler=shutil.which("g++"), hangs=hangs, part=part))
    compiler.chmod(0o700)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    # Compilers put some of what they make here.
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    return part


def test_a_run_killed_while_it_compiles_spoils_no_later_one(part, tmp_path):
    log = tmp_path / "log"
    killed = start((*WORDS, f"folder={tmp_path / 'killed'}"), log=log)
    try:
        wait_until(part.exists, killed)
        killed.kill()
    finally:
        end_session(killed.pid)
    assert killed.wait(PATIENCE) == -signal.SIGKILL
    assert list((tmp_path / "cache").rglob("*.main.so"))
    assert "compiled in" not in log.read_text()
    later = start((*WORDS, f"folder={tmp_path / 'later'}"), log=log)
    assert later.wait(PATIENCE) == 0
    text = log.read_text()
    assert "compiled in" in text
    assert "not compiled" not in text
    config = SACConfig(num_cells=(8,), batch_size=8, warmup=20, compile=False)
    run = {"total_frames": 64, "seed": 3, "eval_episodes": 1, "logger": "none", "progress": False}
    plain = train(config, point, folder=str(tmp_path / "plain"), **run)
    expected = read_page(plain.folder / "policy.pt")["state"]
    found = read_page(tmp_path / "later" / "policy.pt")["state"]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
