"""TorchRL's prioritized sampler on trees of tensors."""

from __future__ import annotations

import copy
import io
import logging

import numpy as np
import pytest
import torch
from no_sync import NoSync
from tensordict import TensorDict
from torchrl._utils import logger
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from torchrl.data.replay_buffers.samplers import PrioritizedSampler as TorchRLPrioritizedSampler
from torchrl.data.replay_buffers.samplers import RandomSampler, prioritized
from torchrl.data.replay_buffers.scheduler import LinearScheduler

from torchrl_elegant.data import MinSegmentTree, PrioritizedSampler, SumSegmentTree

DRAWS = 40_000


def rows(start, stop):
    return TensorDict({"x": torch.arange(start, stop)}, [stop - start])


def make(size=20, alpha=0.7, beta=0.5, sampler=None, **kwargs):
    sampler = PrioritizedSampler(size, alpha, beta, **kwargs) if sampler is None else sampler
    return TensorDictReplayBuffer(storage=LazyTensorStorage(size), sampler=sampler)


def chi_square(counts, probabilities):
    expected = counts.sum() * probabilities
    return ((counts - expected) ** 2 / expected).sum().item()


# Priorities of 20 rows; chi-square with 19 degrees of freedom exceeds 51 once in ten thousand.
PRIORITIES, BOUND = torch.linspace(0.1, 3.0, 20), 51.0


@pytest.mark.parametrize("seeded", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_frequencies_follow_the_priorities(dtype, seeded):
    buffer = make(dtype=dtype)
    if seeded:
        buffer.set_rng(torch.Generator().manual_seed(1))
    buffer.extend(rows(0, 20))
    buffer.update_priority(torch.arange(20), PRIORITIES)
    counts = torch.bincount(buffer.sample(DRAWS)["index"], minlength=20)
    powers = PRIORITIES**0.7
    assert chi_square(counts, powers / powers.sum()) < BOUND
    # The same bound tells other laws apart: uniform, and priorities without their exponent.
    assert chi_square(counts, torch.full((20,), 1 / 20)) > 10 * BOUND
    assert chi_square(counts, PRIORITIES / PRIORITIES.sum()) > 10 * BOUND


def test_a_uniform_sampler_fails_the_same_bound():
    buffer = make(sampler=RandomSampler())
    buffer.extend(rows(0, 20))
    counts = torch.bincount(buffer.sample(DRAWS)["index"], minlength=20)
    powers = PRIORITIES**0.7
    assert chi_square(counts, torch.full((20,), 1 / 20)) < BOUND
    assert chi_square(counts, powers / powers.sum()) > 10 * BOUND


def test_no_exponent_is_uniform():
    buffer = make(alpha=0.0)
    buffer.extend(rows(0, 20))
    buffer.update_priority(torch.arange(20), PRIORITIES)
    batch = buffer.sample(DRAWS)
    assert chi_square(torch.bincount(batch["index"]), torch.full((20,), 1 / 20)) < BOUND
    assert (batch["priority_weight"] == 1).all()


@pytest.mark.parametrize("filled", [7, 20])
def test_weights_are_those_of_the_paper(filled):
    buffer = make(alpha=0.7, beta=0.5, eps=0.01)
    buffer.extend(rows(0, filled))
    buffer.update_priority(torch.arange(filled), PRIORITIES[:filled])
    powers = [(p + 0.01) ** 0.7 for p in PRIORITIES[:filled].tolist()]
    weights = [(filled * power / sum(powers)) ** -0.5 for power in powers]
    expected = torch.tensor([weight / max(weights) for weight in weights])
    batch = buffer.sample(200)
    torch.testing.assert_close(batch["priority_weight"], expected[batch["index"]])
    assert torch.equal(batch["x"], batch["index"])


def test_new_rows_get_the_largest_priority_so_far():
    buffer = make(alpha=0.7)
    buffer.extend(rows(0, 5))
    buffer.update_priority(torch.arange(5), torch.tensor([1.0, 9.0, 2.0, 3.0, 4.0]))
    buffer.update_priority(1, 2.0)
    buffer.extend(rows(5, 8))
    buffer.mark_update(torch.tensor([0]))
    leaves = buffer.sampler._sum_tree[torch.arange(8)]
    expected = torch.tensor([9.0, 2.0, 2.0, 3.0, 4.0, 9.0, 9.0, 9.0]) ** 0.7
    torch.testing.assert_close(leaves, expected)
    torch.testing.assert_close(buffer.sampler._min_tree[torch.arange(8)], expected)


def test_the_largest_priority_within_the_buffer():
    buffer = make(size=5, alpha=0.7, max_priority_within_buffer=True)
    buffer.extend(rows(0, 5))
    buffer.update_priority(torch.arange(5), torch.tensor([1.0, 9.0, 2.0, 3.0, 4.0]))
    buffer.update_priority(torch.tensor([1]), torch.tensor([2.0]))
    assert float(buffer.sampler.default_priority) == pytest.approx(4.0)


def on_device(**kwargs) -> TensorDictReplayBuffer:
    """A buffer whose sampler works as it does on a GPU."""

    class OnDevice(PrioritizedSampler):
        def sample(self, storage, batch_size):
            return self._sample_on_device(storage, batch_size)

        def update_priority(self, index, priority, *, storage=None):
            self._update_on_device(index, priority)

    sampler = OnDevice(20, kwargs.pop("alpha", 0.7), kwargs.pop("beta", 0.5), **kwargs)
    return make(sampler=sampler)


@pytest.mark.parametrize("within", [False, True])
def test_on_a_device_the_same_is_filed(within):
    buffers = [
        make(max_priority_within_buffer=within),
        on_device(max_priority_within_buffer=within),
    ]
    for buffer in buffers:
        buffer.extend(rows(0, 12))
        buffer.update_priority(torch.arange(12), PRIORITIES[:12])
        # Of equal indices the last wins; -1 marks a row that was not written.
        buffer.update_priority(torch.tensor([3, -1, 0, 3, -1]), torch.tensor([9.0, 7, 2, 1, 8]))
        buffer.update_priority(5, 2.5)
        buffer.extend(rows(12, 15))
        buffer.update_priority(torch.tensor([-1]), torch.tensor([50.0]))
    index = torch.arange(20)
    for tree in ("_sum_tree", "_min_tree"):
        theirs, ours = (getattr(buffer.sampler, tree)[index] for buffer in buffers)
        torch.testing.assert_close(torch.as_tensor(ours), torch.as_tensor(theirs))
    top, other = (float(buffer.sampler.default_priority) for buffer in buffers)
    assert top == pytest.approx(other)


def test_on_a_device_rows_are_drawn_by_priority_and_weighted():
    buffer, plain = on_device(), make()
    for each in (buffer, plain):
        each.extend(rows(0, 20))
        each.update_priority(torch.arange(20), PRIORITIES)
    batch, powers = buffer.sample(DRAWS), PRIORITIES**0.7
    counts = torch.bincount(batch["index"], minlength=20)
    assert chi_square(counts, powers / powers.sum()) < BOUND
    other = plain.sample(DRAWS)
    weights = dict(zip(other["index"].tolist(), other["priority_weight"].tolist(), strict=True))
    expected = torch.tensor([weights[row] for row in batch["index"].tolist()])
    torch.testing.assert_close(batch["priority_weight"], expected)


def test_on_a_device_nothing_waits():
    buffer = on_device()
    buffer.extend(rows(0, 15))
    sampler, storage = buffer.sampler, buffer.storage
    with NoSync():
        for _ in range(2):
            index, _ = sampler.sample(storage, 8)
            sampler.update_priority(index, torch.rand(8))
            sampler.mark_update(index)


def test_rows_that_are_overwritten_lose_their_priority():
    buffer = make(size=10, alpha=1.0)
    buffer.extend(rows(0, 10))
    buffer.update_priority(torch.arange(10), torch.full((10,), 1e-6))
    buffer.update_priority(torch.tensor([1]), torch.tensor([5.0]))
    buffer.extend(rows(10, 13))  # takes the places 0, 1, 2
    leaves = buffer.sampler._sum_tree[torch.arange(10)]
    torch.testing.assert_close(leaves[:3], torch.full((3,), 5.0))
    torch.testing.assert_close(leaves[3:], torch.full((7,), 1e-6), atol=1e-7, rtol=0)
    batch = buffer.sample(2000)
    assert set(batch["x"].tolist()) == {10, 11, 12}
    assert buffer.sampler._sum_tree.query(0, 10) == pytest.approx(15, rel=1e-5)


def test_one_row_at_a_time_goes_round_as_well():
    buffer = make(size=3, alpha=1.0)
    for start in range(8):
        buffer.add(rows(start, start + 1)[0])
    assert set(buffer.sample(100)["x"].tolist()) == {5, 6, 7}


def test_an_empty_buffer_and_an_emptied_one():
    buffer = make()
    with pytest.raises(RuntimeError, match="empty storage"):
        buffer.sample(3)
    buffer.extend(rows(0, 20))
    buffer.update_priority(torch.arange(20), 50.0)
    buffer.empty()
    buffer.extend(rows(0, 2))
    assert buffer.sampler._sum_tree.query(0, 20) == pytest.approx(2)


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_faulty_priorities_are_refused_before_they_are_filed(value):
    buffer = make()
    buffer.extend(rows(0, 20))
    with pytest.raises(ValueError, match=r"`priority` must be finite and not negative, got `.*`"):
        buffer.update_priority(torch.arange(2), torch.tensor([1.0, value]))
    assert buffer.sampler._sum_tree.query(0, 20) == pytest.approx(20)


@pytest.mark.parametrize("name", ["alpha", "beta"])
def test_exponents_anneal(name):
    buffer = make(alpha=0.5, beta=0.5)
    buffer.extend(rows(0, 20))
    buffer.update_priority(torch.arange(20), PRIORITIES)
    scheduler = LinearScheduler(buffer, name, final_value=1.0, num_steps=2)
    for _ in range(2):
        scheduler.step()
    alpha, beta = (1.0, 0.5) if name == "alpha" else (0.5, 1.0)
    batch = buffer.sample(100)
    expected = (PRIORITIES[batch["index"]] / PRIORITIES[0]) ** (-alpha * beta)
    torch.testing.assert_close(batch["priority_weight"], expected)


# State


def draws(buffer):
    np.random.seed(4)  # noqa: NPY002 (TorchRL draws from it)
    return buffer.sample(50)


def same(first, second):
    assert torch.equal(first["index"], second["index"])
    assert torch.equal(first["priority_weight"], second["priority_weight"])


def used(**kwargs):
    buffer = make(**kwargs)
    buffer.extend(rows(0, 12))
    buffer.update_priority(torch.arange(10), torch.arange(1.0, 11.0))
    return buffer


def through_torch(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_state_goes_through_a_file(dtype):
    source, target = used(dtype=dtype), make(alpha=0.1, beta=0.1, dtype=dtype)
    target.extend(rows(50, 70))
    target.load_state_dict(through_torch(source.state_dict()))
    sampler = target.sampler
    assert (sampler.alpha, sampler.beta, sampler._eps) == (0.7, 0.5, 1e-8)
    same(draws(source), draws(target))
    for buffer in (source, target):
        buffer.extend(rows(12, 15))
    assert source.sampler._sum_tree[14] == pytest.approx(10**0.7)
    same(draws(source), draws(target))


def test_state_is_apart_from_the_sampler():
    buffer = used()
    state = buffer.sampler.state_dict()
    first = draws(buffer)
    buffer.update_priority(torch.arange(12), 1.0)
    buffer.sampler.load_state_dict(state)
    same(first, draws(buffer))
    buffer.update_priority(torch.arange(12), 1.0)
    buffer.sampler.load_state_dict(state)
    same(first, draws(buffer))


def test_the_state_of_a_sampler_that_was_not_used():
    source, target = PrioritizedSampler(20, 0.7, 0.5), used().sampler
    target.load_state_dict(through_torch(source.state_dict()))
    assert target._sum_tree.query(0, 20) == 0
    assert target.default_priority == 1.0


def test_state_fits_a_larger_buffer_and_no_smaller_one():
    state = used().sampler.state_dict()
    larger = PrioritizedSampler(40, 0.7, 0.5)
    larger.load_state_dict(state)
    assert larger._sum_tree.query(0, 40) == used().sampler._sum_tree.query(0, 20)
    with pytest.raises(ValueError, match=r"`max_capacity` must be at least the 20 .* got `19`"):
        PrioritizedSampler(19, 0.7, 0.5).load_state_dict(state)


def test_torchrls_state_is_taken_too():
    source, target = used(), make()
    target.extend(rows(0, 12))
    state = TorchRLPrioritizedSampler.state_dict(source.sampler)
    assert isinstance(state["_sum_tree"], SumSegmentTree)
    target.sampler.load_state_dict(state)
    same(draws(source), draws(target))


def test_dumps_and_loads(tmp_path):
    source, target = used(), make(alpha=0.1)
    source.dumps(tmp_path)
    target.loads(tmp_path)
    same(draws(source), draws(target))
    assert float(target.sampler.default_priority) == 10


def test_torchrl_reads_what_is_dumped_and_dumps_what_is_read(tmp_path):
    source, through, target = used(), make(), make()
    for folder in ("ours", "theirs"):
        (tmp_path / folder).mkdir()
    source.sampler.dumps(tmp_path / "ours")
    TorchRLPrioritizedSampler.loads(through.sampler, tmp_path / "ours")
    TorchRLPrioritizedSampler.dumps(through.sampler, tmp_path / "theirs")
    target.sampler.loads(tmp_path / "theirs")
    target.storage.set(range(12), rows(0, 12))
    same(draws(source), draws(target))


def test_dumps_of_a_sampler_that_was_not_used(tmp_path):
    PrioritizedSampler(20, 0.7, 0.5).dumps(tmp_path)
    target = used().sampler
    target.loads(tmp_path)
    assert target._sum_tree.query(0, 20) == 0
    assert target.default_priority == 1.0


def test_a_copy_is_apart():
    source = used()
    other = copy.deepcopy(source.sampler)
    other.update_priority(torch.arange(12), 1.0)
    assert other._sum_tree.query(0, 20) == pytest.approx(12)
    assert source.sampler._sum_tree.query(0, 20) > 20


# The extension


@pytest.fixture
def messages():
    records = []
    handler = logging.Handler()
    handler.emit = lambda record: records.append(record.getMessage())
    logger.addHandler(handler)
    yield records
    logger.removeHandler(handler)


def test_without_the_extension_the_trees_are_ours(monkeypatch, messages):
    monkeypatch.setattr(prioritized, "SumSegmentTreeFp32", None)
    monkeypatch.setattr(prioritized, "rl_warnings", lambda: True)
    sampler = PrioritizedSampler(20, 0.7, 0.5)
    assert type(sampler._sum_tree) is SumSegmentTree
    assert type(sampler._min_tree) is MinSegmentTree
    assert not [message for message in messages if "C++" in message]
    logger.warning("C++ is fine")
    assert [message for message in messages if "C++" in message]  # the ear hears
    with pytest.raises(RuntimeError, match="SumSegmentTreeFp32 is not available"):
        TorchRLPrioritizedSampler(20, 0.7, 0.5)


class TheirSum(SumSegmentTree):
    """Stands for the extension's."""


class TheirMin(MinSegmentTree):
    """Stands for the extension's."""


def test_with_the_extension_the_trees_are_its_own(monkeypatch):
    ours = used()
    for bits in (32, 64):
        monkeypatch.setattr(prioritized, f"SumSegmentTreeFp{bits}", TheirSum)
        monkeypatch.setattr(prioritized, f"MinSegmentTreeFp{bits}", TheirMin)
    theirs = make()
    assert type(theirs.sampler._sum_tree) is TheirSum
    assert type(theirs.sampler._min_tree) is TheirMin
    theirs.extend(rows(0, 12))
    theirs.sampler.load_state_dict(through_torch(ours.sampler.state_dict()))
    assert type(theirs.sampler._sum_tree) is TheirSum
    same(draws(ours), draws(theirs))
