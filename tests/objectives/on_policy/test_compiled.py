"""Compilation changes nothing but the time, and its absence nothing at all."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from tensordict import TensorDict

from torchrl_elegant.modules import GaussianActor, StateValue
from torchrl_elegant.objectives import ClipPPOLoss
from torchrl_elegant.objectives.on_policy.base import Compiled

SHAPES = {"observation": (3,)}


def make_loss():
    actor = GaussianActor(observation=SHAPES, action_shape=(2,), num_cells=(8,))
    critic = StateValue(observation=SHAPES, num_cells=(8,))
    return ClipPPOLoss(actor, critic, loss_critic_type="l2", normalize_advantage=True)


def make_rows(loss, count=6):
    data = TensorDict({"observation": torch.randn(count, 3)}, [count])
    rows = loss.actor_network(data).detach()
    rows.set("action_log_prob", rows.get("action_log_prob") + 0.3 * torch.randn(count))
    rows.set("advantage", torch.randn(count, 1))
    return rows.set("value_target", torch.randn(count, 1))


def gradients(loss, rows):
    loss.zero_grad()
    terms = loss.update_terms(rows)
    sum(value for name, value in terms.items() if name.startswith("loss_")).backward()
    return {name: param.grad for name, param in loss.named_parameters()}


def written(loss, rows):
    loss.zero_grad()
    assert loss._written_inputs(rows) is not None
    loss.backward_terms(rows)
    return {name: param.grad for name, param in loss.named_parameters()}


def test_gradients_that_are_written_out_are_compiled_too():
    plain = make_loss()
    compiled = deepcopy(plain).compile_terms()
    for count in (6, 4):
        rows = make_rows(plain, count)
        found = written(compiled, rows)
        torch.testing.assert_close(found, written(plain, rows), atol=1e-6, rtol=1e-5)
    for loss in (plain, compiled):
        loss.clip_epsilon.fill_(0.01)
    torch.testing.assert_close(written(compiled, rows), written(plain, rows), atol=1e-6, rtol=1e-5)
    assert compiled._run_written._proven
    assert compiled._run_written._compiled is not None


def test_the_compiled_terms_are_the_same():
    plain = make_loss()
    compiled = deepcopy(plain).compile_terms()
    for count in (6, 4):  # a last batch may be smaller
        rows = make_rows(plain, count)
        expected, found = gradients(plain, rows), gradients(compiled, rows)
        torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)
    copied = deepcopy(compiled)
    torch.testing.assert_close(gradients(copied, rows), expected, atol=1e-6, rtol=1e-5)
    with torch.no_grad():
        copied.actor_network.log_std.add_(1.0)
    assert not torch.equal(
        copied.update_terms(rows)["loss_objective"], compiled.update_terms(rows)["loss_objective"]
    )


def test_thresholds_may_change_after_compilation():
    loss = make_loss().compile_terms()
    rows = make_rows(loss)
    loss.update_terms(rows)
    loss.clip_epsilon.fill_(0.01)
    expected = deepcopy(loss)
    expected._compiles = False
    expected._connect()
    torch.testing.assert_close(loss.update_terms(rows), expected.update_terms(rows))


def test_without_a_compiler_it_runs_as_it_is(monkeypatch, caplog):
    def no_compiler(function):
        def fail(*args):
            raise RuntimeError("no C++ compiler was found\nmore lines")

        return fail

    monkeypatch.setattr(torch, "compile", no_compiler)
    double = Compiled(lambda x: 2 * x)
    assert [double(2), double(3)] == [4, 6]
    assert caplog.messages == ["not compiled, and slower for it: no C++ compiler was found"]


def test_a_mistake_of_the_caller_is_not_taken_for_the_compilers(monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda function: function)
    double = Compiled(lambda x: x["missing"])
    with pytest.raises(KeyError):
        double({})
    assert double({"missing": 1}) == 1
