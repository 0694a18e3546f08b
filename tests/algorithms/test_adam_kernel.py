"""The step of LeanAdam by a kernel of this package is the one of torch.optim.Adam, to rounding."""

from __future__ import annotations

import pickle
from copy import deepcopy

import pytest
import torch
from algorithms.test_lean_adam import ADAMS, assert_same, flat, give_gradients, groups
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from torchrl_elegant.algorithms import adam as module
from torchrl_elegant.algorithms.adam import LeanAdam

CLOSE = {"atol": 1e-6, "rtol": 1e-5}


def both(**adam):
    lean = LeanAdam(groups(), **adam)
    lean.compile()
    adam.pop("max_grad_norm", None)
    return lean, torch.optim.Adam(groups(), fused=True, **adam)


def steps(lean, reference, numbers, **how):
    for step in numbers:
        give_gradients(lean, reference, step=step, **how)
        lean.step_alone()
        reference.step()


@pytest.fixture
def kernel_steps(monkeypatch):
    """Number of parameters of each step that the kernel made."""
    made = []
    step = module._OwnKernel.step

    def counted(kernel, max_norm):
        done = step(kernel, max_norm)
        made.append(len(kernel._params) if done else 0)
        return done

    monkeypatch.setattr(module._OwnKernel, "step", counted)
    return made


@pytest.mark.parametrize("holes", ["none", "group", "some", "first", "all"])
@pytest.mark.parametrize("adam", ADAMS, ids=str)
def test_fifty_steps(adam, holes, kernel_steps):
    lean, reference = both(**adam)
    steps(lean, reference, range(50), holes=holes)
    assert_same(lean, reference, **CLOSE)
    for left, right in zip(flat(lean), flat(reference), strict=True):
        assert lean.state[left].keys() == reference.state[right].keys()
        assert lean.state[left]["step"] == reference.state[right]["step"]
    left_to_torch = adam.get("amsgrad") or adam.get("decoupled_weight_decay")
    made = sum(count > 0 for count in kernel_steps)
    assert made == 0 if left_to_torch else made >= 40


def test_groups_are_clipped_as_pytorch_clips_them(kernel_steps):
    lean, reference = both(max_grad_norm=5.0)
    for step in range(8):
        give_gradients(lean, reference, step=step)
        for param in (*flat(lean), *flat(reference)):
            param.grad.mul_(10.0 ** (step % 3 - 1))
        for group in reference.param_groups:
            nn.utils.clip_grad_norm_(group["params"], 5.0)
        lean.step_alone()
        reference.step()
        for left, right in zip(flat(lean), flat(reference), strict=True):
            for name in ("exp_avg", "exp_avg_sq"):
                torch.testing.assert_close(
                    lean.state[left][name], reference.state[right][name], rtol=1e-4, atol=1e-7
                )
    assert len(kernel_steps) == 7


def test_state_that_is_loaded_is_gone_on_from(kernel_steps):
    lean, reference = both()
    steps(lean, reference, range(5))
    other = torch.optim.Adam(groups(), fused=True)
    for left, right in zip(flat(other), flat(lean), strict=True):
        left.data.copy_(right.data)
    other.load_state_dict(deepcopy(lean.state_dict()))
    lean.load_state_dict(deepcopy(reference.state_dict()))
    steps(lean, reference, range(5, 10))
    assert_same(lean, reference, **CLOSE)
    assert lean.state[flat(lean)[0]]["step"].item() == 10
    assert len(kernel_steps) == 9
    for step in range(5, 10):
        give_gradients(other, step=step)
        other.step()
    assert_same(lean, other, **CLOSE)


@pytest.mark.parametrize("copy", [deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_a_copy_moves_its_own_parameters(copy, kernel_steps):
    lean, reference = both()
    steps(lean, reference, range(3))
    kept = [param.detach().clone() for param in flat(lean)]
    other = copy(lean)
    steps(other, reference, range(3, 6))
    assert len(kernel_steps) == 5
    assert_same(other, reference, **CLOSE)
    assert all(map(torch.equal, flat(lean), kept))


def test_parameters_that_move_are_followed(kernel_steps):
    lean, reference = both()
    steps(lean, reference, range(3))
    for param in flat(lean):
        param.data = param.data.clone()
    steps(lean, reference, range(3, 6))
    assert_same(lean, reference, **CLOSE)
    assert len(kernel_steps) == 5


def test_a_group_that_is_added_is_moved():
    lean, reference = LeanAdam(groups()[:2]), torch.optim.Adam(groups()[:2], fused=True)
    lean.compile()
    steps(lean, reference, range(3))
    for optimizer in (lean, reference):
        optimizer.add_param_group(groups()[2])
    steps(lean, reference, range(3, 6))
    assert_same(lean, reference, **CLOSE)


def test_rates_may_change_between_steps():
    lean, reference = both()
    for step in range(10):
        for optimizer in (lean, reference):
            optimizer.param_groups[1]["lr"] = 1e-2 / (1 + step)
        steps(lean, reference, [step])
    assert_same(lean, reference, **CLOSE)


@pytest.mark.parametrize("loaded", [False, True])
def test_a_rate_that_is_a_tensor_may_change_in_place(loaded):
    rate = torch.tensor(1e-2)
    lean, reference = both()
    steps(lean, reference, range(2))
    if loaded:
        lean.load_state_dict(lean.state_dict())
    for group in lean.param_groups:
        group["lr"] = rate
    for step in range(2, 8):
        rate.fill_(1e-2 / step)
        for group in reference.param_groups:
            group["lr"] = 1e-2 / step
        steps(lean, reference, [step])
    assert_same(lean, reference, **CLOSE)


@pytest.mark.parametrize("change", ["moment", "fewer", "order"])
def test_tensors_of_another_place_or_form_are_not_taken_for_the_old(change, kernel_steps):
    lean, reference = both()
    steps(lean, reference, range(3))
    for optimizer in (lean, reference):
        param = flat(optimizer)[0]
        state = optimizer.state[param]
        if change == "moment":
            state["exp_avg"] = state["exp_avg"].clone()
        elif change == "fewer":
            for name in ("exp_avg", "exp_avg_sq"):
                state[name] = state[name][:2]
            param.grad = None
            param.data = param.data[:2]
        else:
            param.grad = None
            param.data = param.data.t()
            for name in ("exp_avg", "exp_avg_sq"):
                state[name] = state[name].t()
    steps(lean, reference, range(3, 6))
    assert_same(lean, reference, **CLOSE)
    assert len(kernel_steps) == (2 if change == "order" else 5)


def test_gradients_in_another_order_are_left_to_pytorch(kernel_steps):
    lean, reference = both()
    for step in range(4):
        give_gradients(lean, reference, step=step)
        for optimizer in (lean, reference):
            first = flat(optimizer)[0]
            first.grad = first.grad.t().contiguous().t()
        lean.step_alone()
        reference.step()
    assert_same(lean, reference, **CLOSE)
    assert kernel_steps == [0, 0, 0]


def test_other_numbers_are_left_to_pytorch(kernel_steps):
    lean, reference = both()
    for optimizer in (lean, reference):
        for param in flat(optimizer):
            param.data = param.data.double()
    for step in range(3):
        for params in zip(flat(lean), flat(reference), strict=True):
            grad = torch.full(params[0].shape, 0.5 + step, dtype=torch.float64)
            for param in params:
                param.grad = grad.clone()
        lean.step_alone()
        reference.step()
    assert_same(lean, reference)
    assert kernel_steps == []


def test_hooks_of_all_optimizers_are_called():
    lean, reference = both()
    steps(lean, reference, range(2))
    called = []
    handle = register_optimizer_step_post_hook(lambda *about: called.append(about))
    try:
        give_gradients(lean, step=2)
        lean.step_alone()
    finally:
        handle.remove()
    assert len(called) == 1


def test_schedulers_of_pytorch_see_the_steps(recwarn):
    lean, reference = both()
    schedules = [torch.optim.lr_scheduler.ExponentialLR(one, 0.8) for one in (lean, reference)]
    for step in range(5):
        steps(lean, reference, [step])
        for schedule in schedules:
            schedule.step()
    assert_same(lean, reference, **CLOSE)
    assert not [each for each in recwarn if "lr_scheduler" in str(each.message)]


def test_a_graph_from_before_the_step_does_not_go_backward():
    lean, reference = both()
    steps(lean, reference, range(2))
    weight = flat(lean)[0]
    value = (weight * weight.detach().clone().requires_grad_()).sum()
    steps(lean, reference, [2])
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        value.backward()


def test_hooks_of_pytorch_are_called():
    lean, reference = both()
    steps(lean, reference, range(2))
    called = []
    lean.register_step_post_hook(lambda *about: called.append(about))
    steps(lean, reference, range(2, 5))
    assert len(called) == 3
    assert_same(lean, reference, **CLOSE)


def test_without_a_compiler_pytorch_steps(monkeypatch):
    monkeypatch.setattr(module, "kernels", lambda: None)
    lean, reference = both()
    steps(lean, reference, range(4))
    assert_same(lean, reference)


def test_moments_of_units_that_sleep_become_zero():
    param = nn.Parameter(torch.ones(20))
    lean = LeanAdam([param], lr=1e-3)
    lean.compile()
    param.grad = torch.full((20,), 1e-20)
    for _ in range(2000):
        lean.step_alone()
        param.grad = torch.zeros(20)
    moment = lean.state[param]["exp_avg"]
    assert moment.eq(0.0).all()
    # Only inside of the kernel: other code computes as before.
    assert torch.tensor([1e-30]).mul(1e-10).item() > 0.0


@pytest.mark.parametrize("max_norm", [None, 0.0, 1.0])
@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_numbers_that_are_not_finite_spread_as_in_pytorch(number, max_norm):
    lean, other = both(max_grad_norm=max_norm)[0], LeanAdam(groups(), max_grad_norm=max_norm)
    for step in range(3):
        give_gradients(lean, other, step=step)
        if step == 2:
            for optimizer in (lean, other):
                flat(optimizer)[0].grad[0, 0] = number
                flat(optimizer)[1].data[0] = float("inf")
        lean.step_alone()
        other.step()
    for left, right in zip(flat(lean), flat(other), strict=True):
        torch.testing.assert_close(left, right, equal_nan=True, **CLOSE)
