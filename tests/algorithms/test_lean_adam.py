"""LeanAdam is torch.optim.Adam, bit for bit."""

from __future__ import annotations

import pickle
from copy import deepcopy

import pytest
import torch
from torch import nn

from torchrl_elegant.algorithms.adam import LeanAdam

SHAPES = [(5, 3), (3,), ()], [(4, 2, 3), (7,)], [(2,)]


def groups(seed=0, **adam):
    torch.manual_seed(seed)
    params = [[nn.Parameter(torch.randn(shape)) for shape in shapes] for shapes in SHAPES]
    rates = (1e-2, 3e-3, 1e-1)
    return [{"params": p, "lr": lr, **adam} for p, lr in zip(params, rates, strict=True)]


def flat(optimizer):
    return [param for group in optimizer.param_groups for param in group["params"]]


def give_gradients(*optimizers, step=0, holes="none"):
    generator = torch.Generator().manual_seed(100 + step)
    for index, params in enumerate(zip(*map(flat, optimizers), strict=True)):
        grad = torch.randn(params[0].shape, generator=generator)
        group = 0 if index < 3 else 1 if index < 5 else 2
        missing = {
            "none": False,
            "group": group == 2 and step % 3 != 0,
            "some": (step + index) % 4 == 0,
            "first": step < 5 and group > 0,
            "all": step % 2 == 0,
        }[holes]
        for param in params:
            param.grad = None if missing else grad.clone()


def assert_same(lean, reference, **tolerance):
    for left, right in zip(flat(lean), flat(reference), strict=True):
        torch.testing.assert_close(left, right, **(tolerance or {"atol": 0.0, "rtol": 0.0}))


ADAMS = [
    {},
    {"weight_decay": 0.1},
    {"betas": (0.5, 0.9), "eps": 1e-3},
    {"maximize": True},
    {"amsgrad": True},
    {"weight_decay": 0.1, "decoupled_weight_decay": True},
]


@pytest.mark.parametrize("holes", ["none", "group", "some", "first", "all"])
@pytest.mark.parametrize("adam", ADAMS, ids=str)
@pytest.mark.parametrize("fused", [True, False])
def test_fifty_steps(adam, holes, fused):
    lean = LeanAdam(groups(), **adam)
    reference = torch.optim.Adam(
        groups(), fused=fused, foreach=False if not fused else None, **adam
    )
    for step in range(50):
        give_gradients(lean, reference, step=step, holes=holes)
        lean.step()
        reference.step()
    assert_same(lean, reference, **({} if fused else {"atol": 1e-6, "rtol": 1e-5}))
    for left, right in zip(flat(lean), flat(reference), strict=True):
        assert lean.state[left].keys() == reference.state[right].keys()


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("lean_first", [True, False])
def test_state_passes_both_ways(fused, lean_first):
    first = LeanAdam(groups()) if lean_first else torch.optim.Adam(groups(), fused=fused)
    reference = torch.optim.Adam(groups(), fused=True)
    for step in range(10):
        give_gradients(first, reference, step=step)
        first.step()
        reference.step()
    second = torch.optim.Adam(groups(), fused=fused) if lean_first else LeanAdam(groups())
    for left, right in zip(flat(second), flat(first), strict=True):
        left.data.copy_(right.data)
    second.load_state_dict(deepcopy(first.state_dict()))
    for step in range(10, 20):
        give_gradients(second, reference, step=step)
        second.step()
        reference.step()
    assert_same(second, reference, atol=1e-6, rtol=1e-5)


def test_loading_stays_fused():
    lean = LeanAdam(groups())
    lean.load_state_dict(torch.optim.Adam(groups()).state_dict())
    assert all(group["fused"] for group in lean.param_groups)


def test_loading_between_steps_forgets_the_old_state():
    lean, reference = LeanAdam(groups()), torch.optim.Adam(groups(), fused=True)
    start = deepcopy(lean.state_dict())
    for step in range(6):
        if step == 3:
            lean.load_state_dict(deepcopy(start))
            reference.load_state_dict(deepcopy(start))
        give_gradients(lean, reference, step=step)
        lean.step()
        reference.step()
    assert_same(lean, reference)
    assert lean.state[flat(lean)[0]]["step"].item() == 3


def test_schedulers_change_the_rate():
    lean, reference = LeanAdam(groups()), torch.optim.Adam(groups(), fused=True)
    schedules = [torch.optim.lr_scheduler.ExponentialLR(o, 0.8) for o in (lean, reference)]
    for step in range(20):
        give_gradients(lean, reference, step=step)
        for optimizer, schedule in zip((lean, reference), schedules, strict=True):
            optimizer.step()
            schedule.step()
    assert_same(lean, reference)
    assert lean.param_groups[0]["lr"] == pytest.approx(1e-2 * 0.8**20)


def test_group_added_later():
    lean, reference = LeanAdam(groups()[:2]), torch.optim.Adam(groups()[:2], fused=True)
    for step in range(10):
        if step == 5:
            for optimizer in (lean, reference):
                optimizer.add_param_group(groups()[2])
        give_gradients(lean, reference, step=step)
        lean.step()
        reference.step()
    assert_same(lean, reference)


def test_closure():
    lean, reference = LeanAdam(groups()), torch.optim.Adam(groups(), fused=True)
    for step in range(4):
        give_gradients(lean, reference, step=step)
        assert lean.step(lambda: 3.0) == reference.step(lambda: 3.0) == 3.0
    assert_same(lean, reference)


@pytest.mark.parametrize("copy", [deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_go_on(copy):
    lean, reference = LeanAdam(groups()), torch.optim.Adam(groups(), fused=True)
    for step in range(6):
        if step == 3:
            lean = copy(lean)
        give_gradients(lean, reference, step=step)
        lean.step()
        reference.step()
    assert_same(lean, reference)


@pytest.mark.parametrize("holes", ["none", "some"])
def test_gradients_of_each_group_are_clipped_as_pytorch_clips_them(holes):
    """A gradient below the limit is left as it is. Steps of Adam would hardly tell a scaled one, so
    its moments are looked at."""
    lean, reference = LeanAdam(groups(), max_grad_norm=5.0), torch.optim.Adam(groups(), fused=True)
    norms = []
    for step in range(8):
        give_gradients(lean, reference, step=step, holes=holes)
        for param in (*flat(lean), *flat(reference)):
            if param.grad is not None:
                param.grad.mul_(10.0 ** (step % 3 - 1))
        for group in reference.param_groups:
            if any(param.grad is not None for param in group["params"]):
                norms.append((step, nn.utils.clip_grad_norm_(group["params"], 5.0).item()))
        lean.step()
        reference.step()
        for left, right in zip(flat(lean), flat(reference), strict=True):
            for name in ("exp_avg", "exp_avg_sq"):
                found, expected = lean.state[left].get(name), reference.state[right].get(name)
                torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-7)
    assert min(norm for _, norm in norms) < 2.0
    assert max(norm for _, norm in norms) > 20.0
    # In one step a group is clipped and another is left as it is.
    clipped = {step for step, norm in norms if norm > 5.0}
    assert clipped & {step for step, norm in norms if norm < 5.0}
