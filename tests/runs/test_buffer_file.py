"""Replay buffers in checkpoints."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict
from torchrl.checkpoint import Checkpoint
from torchrl.data import LazyMemmapStorage, LazyTensorStorage, ListStorage, TensorDictReplayBuffer
from torchrl.data.replay_buffers.samplers import SamplerWithoutReplacement

from torchrl_elegant.data import PrioritizedSampler
from torchrl_elegant.runs import buffer_file
from torchrl_elegant.runs.buffer_file import BufferAdapter


def make(size=50, storage=LazyTensorStorage, **kwargs):
    return TensorDictReplayBuffer(storage=storage(size), batch_size=4, **kwargs)


def rows(start, stop):
    frame = torch.arange(start, stop)
    return TensorDict(
        {
            "observation": frame[:, None] + torch.rand(len(frame), 3),
            "pixels": (frame[:, None, None] % 256).to(torch.uint8).expand(-1, 2, 2),
            "half": frame.to(torch.bfloat16),
            "next": {"done": frame[:, None] % 2 == 0, ("deep", "key"): frame.double()},
        },
        [len(frame)],
    )


def roundtrip(source, target, path):
    Checkpoint().register("buffer", source, adapter=BufferAdapter()).save(path)
    Checkpoint().register("buffer", target, adapter=BufferAdapter()).load(path)
    return target


def same(first, second):
    left, right = first.storage.get(slice(0, len(first))), second.storage.get(slice(0, len(second)))
    keys = set(left.keys(True, True))
    assert keys == set(right.keys(True, True))
    for key in keys:
        assert left.get(key).dtype == right.get(key).dtype
        assert torch.equal(left.get(key), right.get(key)), key


@pytest.mark.parametrize("chunk", [1 << 24, 100])
@pytest.mark.parametrize("filled", [1, 37, 50, 73])
@pytest.mark.parametrize("storage", [LazyTensorStorage, LazyMemmapStorage])
def test_exact_restore(tmp_path, monkeypatch, filled, chunk, storage):
    monkeypatch.setattr(buffer_file, "_CHUNK_BYTES", chunk)
    source = make(storage=storage)
    for start in range(0, filled, 20):
        source.extend(rows(start, min(start + 20, filled)))
    target = roundtrip(source, make(storage=storage), tmp_path / "c")
    assert len(target) == len(source) == min(filled, 50)
    assert target.writer.state_dict() == source.writer.state_dict()
    assert target.write_count == filled
    same(source, target)
    extra = rows(100, 130)
    source.extend(extra)
    target.extend(extra)
    same(source, target)


def test_entries_without_elements(tmp_path):
    source = make()
    source.extend(rows(0, 5).set("none", torch.zeros(5, 0)))
    target = roundtrip(source, make(), tmp_path / "c")
    assert target.storage.get(slice(0, 5))["none"].shape == (5, 0)
    same(source, target)


def test_a_used_buffer_is_overwritten(tmp_path):
    source, target = make(), make()
    source.extend(rows(0, 5))
    target.extend(rows(100, 140))
    roundtrip(source, target, tmp_path / "c")
    assert len(target) == 5
    same(source, target)


def test_an_empty_buffer(tmp_path):
    target = make()
    target.extend(rows(0, 9))
    assert len(roundtrip(make(), target, tmp_path / "c")) == 0


def test_only_the_filled_part_takes_space(tmp_path):
    source = TensorDictReplayBuffer(storage=LazyTensorStorage(100_000), batch_size=4)
    source.extend(TensorDict({"x": torch.zeros(10, 100)}, [10]))
    roundtrip(source, TensorDictReplayBuffer(storage=LazyTensorStorage(10)), tmp_path / "c")
    assert (
        sum(file.stat().st_size for file in (tmp_path / "c").rglob("*") if file.is_file()) < 20_000
    )


def test_random_state_is_restored(tmp_path):
    source, target = make(), make()
    source.set_rng(torch.Generator().manual_seed(5))
    target.set_rng(torch.Generator().manual_seed(6))
    source.extend(rows(0, 40))
    source.sample()
    roundtrip(source, target, tmp_path / "c")
    assert torch.equal(source.sample()["observation"], target.sample()["observation"])


def test_a_sampler_with_state(tmp_path):
    source, target = (make(sampler=SamplerWithoutReplacement()) for _ in range(2))
    source.extend(rows(0, 8))
    first = source.sample()["observation"]
    roundtrip(source, target, tmp_path / "c")
    second = target.sample()["observation"]
    assert sorted(torch.cat([first, second])[:, 0].long().tolist()) == list(range(8))


def test_priorities(tmp_path):
    source, target = (make(sampler=PrioritizedSampler(50, 0.7, 0.5)) for _ in range(2))
    source.extend(rows(0, 10))
    source.update_priority(torch.arange(10), torch.arange(1.0, 11.0))
    target.extend(rows(0, 30))
    roundtrip(source, target, tmp_path / "c")
    left, right = source.sampler, target.sampler
    for name in ("_sum_tree", "_min_tree"):
        every = torch.arange(50)
        assert torch.equal(getattr(left, name)[every], getattr(right, name)[every])
        assert getattr(left, name).query(0, 50) == getattr(right, name).query(0, 50)
    assert right._sum_tree[9] == pytest.approx(10**0.7)
    assert left._max_priority == right._max_priority
    assert right._max_priority[0] == 10
    for buffer in (source, target):
        buffer.set_rng(torch.Generator().manual_seed(1))
        buffer.extend(rows(10, 20))
    first, second = source.sample(30), target.sample(30)
    assert torch.equal(first["index"], second["index"])
    assert torch.equal(first["priority_weight"], second["priority_weight"])


def test_priorities_that_went_round_go_into_a_larger_buffer(tmp_path):
    source = make(30, sampler=PrioritizedSampler(30, 0.7, 0.5))
    for start in (0, 20):
        source.extend(rows(start, start + 20))
    source.update_priority(torch.arange(30), torch.arange(1.0, 31.0))
    larger = make(50, sampler=PrioritizedSampler(50, 0.7, 0.5))
    roundtrip(source, larger, tmp_path / "c")
    total = source.sampler._sum_tree.query(0, 30)
    assert larger.sampler._sum_tree.query(0, 50) == pytest.approx(total)
    assert larger.sampler._min_tree.query(0, 50) == pytest.approx(1)


def test_a_smaller_buffer_is_refused(tmp_path):
    source = make(50)
    source.extend(rows(0, 40))
    with pytest.raises(RuntimeError, match="holds 40 rows, this one has room for 30"):
        roundtrip(source, make(30), tmp_path / "c")


@pytest.mark.parametrize("storage", [ListStorage(9), LazyTensorStorage(9, ndim=2)])
def test_other_storages_are_refused(storage):
    with pytest.raises(TypeError, match="save_buffer=false"):
        BufferAdapter.check(TensorDictReplayBuffer(storage=storage))


def test_entries_that_are_no_tensors_are_refused(tmp_path):
    source = make()
    data = rows(0, 3)
    data.set_non_tensor("name", "x")
    source.extend(data)
    with pytest.raises(TypeError, match="name"):
        roundtrip(source, make(), tmp_path / "c")
