"""Checkpoints under kills, full disks and torn files."""

from __future__ import annotations

import errno
import json
import os
import random
import resource
import signal
import struct
import time
from pathlib import Path

import pytest
import torch
from tensordict import TensorDict
from torch import nn
from torchrl.checkpoint import Checkpoint
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer

from torchrl_elegant.runs.checkpoints import CheckpointError, Checkpoints


class Run:
    """Things to save whose content tells at which save they were written."""

    def __init__(self, width=8):
        self.net = nn.Linear(width, width)
        self.optimizer = torch.optim.Adam(self.net.parameters())
        self.buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(100), batch_size=2)
        self.counters = {"updates": 0}

    @property
    def components(self):
        return {
            "net": self.net,
            "optimizer": self.optimizer,
            "buffer": self.buffer,
            "counters": self.counters,
        }

    def stamp(self, number):
        with torch.no_grad():
            for parameter in self.net.parameters():
                parameter.fill_(number)
                parameter.grad = torch.full_like(parameter, float(number))
        self.optimizer.step()
        with torch.no_grad():
            for parameter in self.net.parameters():
                parameter.fill_(number)
        self.buffer.extend(TensorDict({"x": torch.full((2,), float(number))}, [2]))
        self.counters["updates"] = number
        return self

    def stamped(self):
        """The number this run was stamped with, the same in every component."""
        found = {value for p in self.net.parameters() for value in p.flatten().tolist()}
        found.add(float(self.buffer.storage.get(self.buffer.writer._cursor - 1)["x"]))
        found.add(float(self.counters["updates"]))
        assert len(found) == 1
        return found.pop()


def saver(path, run=None, keep_last=2, **kwargs):
    return Checkpoints(path, keep_last=keep_last, components=(run or Run()).components, **kwargs)


def frames_of(path):
    return sorted(int(item.name.split("-")[1]) for item in path.iterdir())


def corrupt(path, name="state.pt"):
    file = max(path.rglob(name))
    file.write_bytes(file.read_bytes()[:-7])


def test_round_trip(tmp_path):
    run = Run().stamp(3)
    path = saver(tmp_path, run).save(300, {"return_mean": 1.5, "note": "x"})
    fresh = Run()
    saves = saver(tmp_path, fresh)
    assert saves.latest() == path
    assert saves.load(path) == {"return_mean": 1.5, "note": "x", "frames": 300}
    assert fresh.stamped() == 3
    assert fresh.optimizer.state_dict()["state"][0]["step"] == 1
    moments = [r.optimizer.state_dict()["state"][0]["exp_avg"] for r in (run, fresh)]
    assert torch.equal(*moments)
    assert Checkpoint.is_checkpoint(path)


def test_nothing_saved_yet(tmp_path):
    saves = saver(tmp_path / "none")
    assert saves.latest() is None
    assert saves.best() is None
    assert not (tmp_path / "none").exists()


def test_keeps_the_last_and_the_best(tmp_path):
    saves = saver(tmp_path)
    for frames, score in ((100, 5.0), (200, 9.0), (300, float("nan")), (400, 1.0), (500, 2.0)):
        saves.save(frames, {"return_mean": score})
    saves.save(600, {})
    assert frames_of(tmp_path) == [200, 500, 600]
    assert "-000000000200-" in saves.best().name
    assert "-000000000600-" in saves.latest().name


def test_of_equals_the_last_is_best(tmp_path):
    saves = saver(tmp_path, keep_last=1)
    for frames in (100, 200, 300):
        saves.save(frames, {"return_mean": 1.0})
    saves.save(400, {"return_mean": 0.0})
    assert frames_of(tmp_path) == [300, 400]


def test_the_same_frames_twice_keeps_the_old_until_the_new_is_there(tmp_path, monkeypatch):
    run = Run()
    saves = saver(tmp_path, run, keep_last=1)
    run.stamp(1)
    saves.save(100, {})
    seen = []
    real = os.replace

    def watch(source, target):
        saves_now = saver(tmp_path)
        seen.append(saves_now.latest())
        real(source, target)
        seen.append(saves_now.latest())

    run.stamp(2)
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", watch)
        saves.save(100, {})
    assert len(seen) >= 4
    assert None not in seen
    fresh = Run()
    saver(tmp_path, fresh).load(saves.latest())
    assert fresh.stamped() == 2
    assert frames_of(tmp_path) == [100]


def test_going_back_keeps_what_is_saved_next(tmp_path):
    saves = saver(tmp_path, keep_last=1)
    saves.save(900, {})
    path = saves.save(100, {})
    assert saves.latest() == path
    assert frames_of(tmp_path) == [100]


@pytest.mark.parametrize("name", ["state.pt", "manifest.json", "digests.json", "*.bin"])
@pytest.mark.parametrize("how", ["truncate", "flip", "remove"])
def test_damage_is_passed_over(tmp_path, monkeypatch, name, how):
    run = Run()
    saves = saver(tmp_path, run)
    first, second = saves.save(100, {}), saves.save(200, {})
    if name == "*.bin":
        run.stamp(1)
        second = saves.save(300, {})
        first = sorted(tmp_path.iterdir())[0]
    file = max(second.rglob(name))
    data = file.read_bytes()
    file.unlink()
    if how != "remove":
        flipped = bytes([data[0] ^ 1]) + data[1:]
        file.write_bytes(data[: len(data) // 2] if how == "truncate" else flipped)
    warnings = []
    monkeypatch.setattr(
        "torchrl_elegant.runs.checkpoints.logger.warning", lambda *args: warnings.append(args)
    )
    assert saves.latest() == first
    assert warnings[0][1] == second
    with pytest.raises(CheckpointError, match="damaged"):
        saves.load(second)
    saves.load(first)


def test_all_damaged_is_none(tmp_path):
    saves = saver(tmp_path)
    corrupt(saves.save(100, {"return_mean": 1.0}))
    assert saves.latest() is None
    assert saves.best() is None


def test_damaged_best_falls_back(tmp_path):
    saves = saver(tmp_path)
    first = saves.save(100, {"return_mean": 1.0})
    corrupt(saves.save(200, {"return_mean": 2.0}))
    assert saves.best() == first


def test_everything_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    events = []
    fsync, replace = os.fsync, os.replace

    def record(descriptor):
        events.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    def rename(source, target):
        if Path(target).parent == tmp_path:
            files = {str(path) for path in Path(source).rglob("*")} | {str(source)}
            assert files <= set(events)
            assert len(files) > 10
            events.append("named")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", record)
    monkeypatch.setattr(os, "replace", rename)
    saver(tmp_path, Run().stamp(1)).save(100, {})
    assert events.index("named") < len(events) - 1
    assert events[-1] == str(tmp_path)


def test_litter_of_a_kill_is_removed_and_nothing_else(tmp_path):
    for name in (".saving-" + "a" * 32, ".removing-" + "b" * 32, ".saving-mine", "checkpoint-7"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
    path = saver(tmp_path).save(100, {})
    assert {item.name for item in tmp_path.iterdir()} == {".saving-mine", "checkpoint-7", path.name}


def test_loading_a_part(tmp_path):
    run = Run().stamp(1)
    path = saver(tmp_path, run).save(100, {})
    fresh = Run().stamp(5)
    saver(tmp_path, fresh).load(path, components=["net"])
    assert fresh.net.bias[0].item() == 1
    assert fresh.counters["updates"] == 5
    assert Checkpoints.contents(path) == set(run.components)


def test_a_missing_component_is_an_error_unless_optional(tmp_path):
    run = Run().stamp(1)
    parts = {key: value for key, value in run.components.items() if key != "buffer"}
    path = Checkpoints(tmp_path, keep_last=1, components=parts).save(100, {})
    with pytest.raises(CheckpointError, match="buffer"):
        saver(tmp_path).load(path)
    fresh = Run()
    assert saver(tmp_path, fresh, optional=["buffer"]).load(path)["frames"] == 100
    assert len(fresh.buffer) == 0
    assert fresh.counters["updates"] == 1


def test_pickles_are_not_loaded(tmp_path):
    class Holder:
        def state_dict(self):
            return {"code": time.sleep}

        def load_state_dict(self, state):
            raise AssertionError("the pickle was loaded")

    saves = Checkpoints(tmp_path, keep_last=1, components={"holder": Holder()})
    with pytest.raises(CheckpointError, match="Weights only"):
        saves.load(saves.save(1, {}))


@pytest.mark.parametrize("arguments", [{"keep_last": 0}, {"keep_last": True}, {"optional": ["x"]}])
def test_wrong_arguments(tmp_path, arguments):
    with pytest.raises(ValueError, match=next(iter(arguments))):
        Checkpoints(tmp_path, **{"keep_last": 1, "components": {}, **arguments})
    with pytest.raises(TypeError, match="state_dict"):
        Checkpoints(tmp_path, keep_last=1, components={"x": object()})
    with pytest.raises(ValueError, match="frames"):
        saver(tmp_path).save(-1, {})


def refuse_nth(number, real):
    calls = iter(range(10**9))

    def call(*args, **kwargs):
        if next(calls) == number:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(*args, **kwargs)

    return call


@pytest.mark.parametrize(
    ("owner", "name", "number"),
    [
        (Path, "mkdir", 0),
        (Path, "mkdir", 2),
        (Path, "write_bytes", 0),
        (Path, "write_bytes", 2),
        (Path, "write_text", 0),
        (Path, "write_text", 1),
        (Path, "open", 0),
        (Path, "open", 3),
        (os, "fsync", 0),
        (os, "fsync", 8),
        (os, "replace", 0),
        (os, "replace", 1),
    ],
)
def test_a_full_disk_costs_only_the_new_checkpoint(tmp_path, monkeypatch, owner, name, number):
    run = Run().stamp(1)
    saves = saver(tmp_path, run, keep_last=1)
    good = saves.save(100, {})
    run.stamp(2)
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, refuse_nth(number, getattr(owner, name)))
        with pytest.raises(CheckpointError, match=r"frame 200.*No space left") as caught:
            saves.save(200, {})
    assert isinstance(caught.value.__cause__, OSError)
    assert list(tmp_path.iterdir()) == [good]
    fresh = Run()
    saver(tmp_path, fresh).load(saves.latest())
    assert fresh.stamped() == 1
    saves.save(200, {})
    assert frames_of(tmp_path) == [200]


def test_a_real_refusal_of_the_kernel(tmp_path):
    run = Run().stamp(1)
    saves = saver(tmp_path, run)
    good = saves.save(100, {})
    big = Run(width=300)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(CheckpointError, match="File too large"):
            saver(tmp_path, big).save(200, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == [good]
    assert saves.latest() == good
    saver(tmp_path, big).save(200, {})
    assert frames_of(tmp_path) == [100, 200]


def test_a_bug_is_not_called_a_full_disk(tmp_path, monkeypatch):
    run = Run()
    monkeypatch.setattr(run.net, "state_dict", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        saver(tmp_path, run).save(100, {})
    assert list(tmp_path.iterdir()) == []


def save_for_ever(path, first, pipe):
    run = Run()
    saves = saver(path, run, keep_last=1)
    if saves.latest():
        saves.load(saves.latest())
    for number in range(first, 10**9):
        run.stamp(number)
        # Every number of frames twice: the case in which an old checkpoint could be lost.
        saves.save(number // 2, {"number": number})
        os.write(pipe, struct.pack("q", number))


def test_kills_at_random_moments(tmp_path):
    moments = random.Random(0)
    last = 0
    for _ in range(20):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                save_for_ever(tmp_path, last + 1, writer)
            finally:
                os._exit(1)
        os.close(writer)
        os.read(reader, 8)
        time.sleep(moments.random() * 0.1)
        os.kill(child, signal.SIGKILL)
        assert os.waitpid(child, 0)[1] == signal.SIGKILL
        told = b""
        while part := os.read(reader, 1 << 16):
            told += part
        os.close(reader)
        done = struct.unpack("q", told[-8:])[0] if told else last + 1
        fresh = Run()
        saves = saver(tmp_path, fresh)
        number = saves.load(saves.latest())["number"]
        assert number in (done, done + 1)
        assert fresh.stamped() == number
        last = number
    saver(tmp_path, keep_last=1).save(last, {})
    assert len(list(tmp_path.iterdir())) == 1
    assert json.loads((saves.latest() / "digests.json").read_text())
