"""State dicts in checkpoints."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
import torch
from torch import nn
from torchrl.checkpoint import Checkpoint

from torchrl_elegant.runs.files import TorchAdapter, write_torch


def test_torchrl_reads_it_without_us(tmp_path):
    source, target = nn.Linear(2, 2), nn.Linear(2, 2)
    Checkpoint().register("net", source, adapter=TorchAdapter()).save(tmp_path / "c")
    Checkpoint(net=target).load(tmp_path / "c")
    assert torch.equal(source.weight, target.weight)


def test_a_full_disk_is_an_oserror(tmp_path, monkeypatch):
    def refuse(self, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", refuse)
    with pytest.raises(OSError, match="No space"):
        write_torch(tmp_path / "x", {"a": torch.ones(3)})
