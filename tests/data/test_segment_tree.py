"""Segment trees against plain arrays."""

from __future__ import annotations

import copy
import io
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from torchrl_elegant.data import MinSegmentTree, SumSegmentTree

# One node, one level full, one leaf more, three levels.
SIZES = st.sampled_from([1, 2, 31, 32, 33, 100, 1024, 1025, 3000])
# Whole numbers add up exactly in both precisions, whatever the order.
VALUES = st.integers(0, 50)


@st.composite
def writes(draw):
    """A size, and batches of (index, value) with repeated indices in them."""
    size = draw(SIZES)
    batch = st.lists(st.tuples(st.integers(0, size - 1), VALUES), max_size=60)
    return size, draw(st.lists(batch, max_size=4))


def written(size, batches, dtype=torch.float32):
    """Both trees, and the leaves as NumPy arrays written one by one."""
    trees = SumSegmentTree(size, dtype=dtype), MinSegmentTree(size, dtype=dtype)
    leaves = np.zeros(size), np.full(size, torch.finfo(dtype).max)
    for batch in batches:
        index = torch.tensor([i for i, _ in batch], dtype=torch.long)
        value = torch.tensor([v for _, v in batch], dtype=dtype)
        for tree in trees:
            tree[index] = value
        for i, v in batch:
            leaves[0][i] = leaves[1][i] = v
    return trees, leaves


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@settings(max_examples=60, deadline=None)
@given(writes(), st.data())
def test_trees_agree_with_arrays(dtype, case, data):
    (sums, minima), (total, lowest) = written(*case, dtype)
    every = torch.arange(case[0])
    np.testing.assert_array_equal(sums[every].numpy(), total)
    np.testing.assert_array_equal(minima[every].numpy(), lowest)
    left = data.draw(st.integers(0, case[0]))
    right = data.draw(st.integers(left, case[0]))
    for start, stop in [(left, right), (0, right), (left, case[0]), (0, case[0])]:
        assert sums.query(start, stop) == total[start:stop].sum()
        assert minima.query(start, stop) == lowest[start:stop].min(initial=torch.finfo(dtype).max)


@settings(max_examples=60, deadline=None)
@given(writes(), st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_scan_agrees_with_a_running_sum(case, shares):
    (tree, _), (leaves, _) = written(*case)
    running = leaves.cumsum()
    mass = np.concatenate([np.array(shares) * running[-1], running[:20], [0.0, running[-1] + 1]])
    found = tree.scan_lower_bound(mass)
    np.testing.assert_array_equal(found.numpy(), np.searchsorted(running, mass))
    assert found[-1] == case[0]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**31), st.sampled_from([torch.float32, torch.float64]))
def test_a_scan_never_finds_an_empty_leaf(seed, dtype):
    """Also where sums round: most leaves are zero, the others lie powers of ten apart."""
    generator = np.random.default_rng(seed)
    tree = SumSegmentTree(5000, dtype=dtype)
    index = generator.choice(5000, 200, replace=False)
    tree[index] = 10.0 ** generator.uniform(-20, 20, 200)
    total = tree.query(0, 5000)
    mass = np.concatenate(
        [generator.uniform(0, total, 500), 10.0 ** generator.uniform(-20, 19, 99)]
    )
    found = tree.scan_lower_bound(np.append(mass, total))
    assert found.max() < 5000
    assert (tree[found] > 0).all()


def test_the_last_of_equal_indices_wins_in_large_batches_too():
    index = torch.randint(100, (100_000,))
    value = torch.arange(100_000.0)
    trees = SumSegmentTree(1000), MinSegmentTree(1000)
    expected = dict(zip(index.tolist(), value.tolist(), strict=True))
    for tree in trees:
        tree[index] = value
        assert [tree[i] for i in expected] == list(expected.values())
    assert trees[0].query(0, 1000) == sum(expected.values())


def test_a_million_small_leaves_beside_a_large_one():
    tree = SumSegmentTree(1_000_000)
    tree[torch.arange(1_000_000)] = 0.1
    tree[500_000] = 1e8
    expected = 999_999 * float(np.float32(0.1)) + 1e8
    assert tree.query(0, 1_000_000) == pytest.approx(expected, rel=1e-12)
    assert np.float32(1e8) + np.float32(0.1) == np.float32(1e8)  # what float32 would make of it
    assert tree.scan_lower_bound(5.0) == 49


def test_single_leaves():
    tree = SumSegmentTree(40)
    tree[39] = 2.5
    tree.update(3, 1.5)
    assert (tree[39], tree[3], tree[0]) == (2.5, 1.5, 0.0)
    assert tree[torch.tensor(39)].shape == ()
    assert tree.scan_lower_bound(2.0) == 39
    assert isinstance(tree.scan_lower_bound(2.0), int)
    assert tree.query(torch.tensor(0), torch.tensor(40)) == 4.0


def test_shapes_of_indices_are_kept():
    tree = SumSegmentTree(40)
    tree[torch.arange(6).view(2, 3)] = torch.arange(6.0).view(2, 3)
    assert tree[np.arange(6).reshape(3, 2)].tolist() == [[0, 1], [2, 3], [4, 5]]
    assert tree.scan_lower_bound(torch.tensor([[1.0], [15.0]])).tolist() == [[1], [5]]


def test_what_is_written_carries_no_gradient():
    tree = SumSegmentTree(4)
    tree[torch.arange(2)] = torch.ones(2, requires_grad=True)
    assert not tree[torch.arange(2)].requires_grad


@pytest.mark.parametrize("kind", [SumSegmentTree, MinSegmentTree])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_copies_are_equal_and_apart(kind, dtype):
    tree = kind(1500, dtype=dtype)
    tree[torch.arange(1500)] = torch.rand(1500)
    saved = io.BytesIO()
    torch.save(tree, saved)
    saved.seek(0)
    for other in (
        copy.deepcopy(tree),
        pickle.loads(pickle.dumps(tree)),
        torch.load(saved, weights_only=False),
    ):
        total = tree.query(0, 1500)
        assert other.dtype == dtype
        assert other.query(0, 1500) == total
        other[700] = 0.0
        assert other.query(0, 1500) != total
        assert other[700] == 0.0
        assert tree.query(0, 1500) == total


def test_what_a_tree_says_of_itself():
    tree = MinSegmentTree(33, dtype=torch.float64)
    assert (len(tree), tree.size, tree.capacity) == (33, 33, 64)
    assert tree.identity_element == torch.finfo(torch.float64).max == tree[32]
    assert tree.device == torch.device("cpu")
    assert SumSegmentTree(33).identity_element == 0


@pytest.mark.parametrize("index", [33, -1])
def test_leaves_outside_are_refused(index):
    tree = SumSegmentTree(33)
    with pytest.raises(IndexError):
        tree[index] = 1.0
    assert tree.query(0, 33) == 0


def test_faulty_arguments_are_refused():
    with pytest.raises(ValueError, match="`size` must be at least 1, got `0`"):
        SumSegmentTree(0)
    with pytest.raises(ValueError, match=r"`dtype` must be .* got `torch.float16`"):
        SumSegmentTree(3, dtype=torch.float16)
    with pytest.raises(ValueError, match="must have one element or the 3 of `index`, got `2`"):
        SumSegmentTree(3)[torch.arange(3)] = torch.ones(2)
