"""Contracts of the learner and the loop: a part of somebody else's can stand in each place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from quiet_runs import QUIET
from tensordict import TensorDict
from torch import nn

from torchrl_elegant import SACConfig, train
from torchrl_elegant.algorithms import ALGORITHMS, AddOn, HTermConfig, Parts, Ramp, register
from torchrl_elegant.envs import make_env
from torchrl_elegant.objectives.common.update_loss import UpdateLoss
from torchrl_elegant.trainers import FAMILIES, Learner, Ledger, Quantum, RolloutLearner
from torchrl_elegant.trainers.clock import Clock
from torchrl_elegant.trainers.family import family
from torchrl_elegant.trainers.off_policy import OffPolicy, draw, train_off_policy

POINT = "faults.fault_envs:point"
SMALL = {"num_cells": (8,), "batch_size": 8, "warmup": 20}


class Squares(nn.Module):
    """Somebody's loss: it keeps the protocol, and knows nothing of this package."""

    metric_names = ("loss_value", "loss_policy", "size")
    priority_key = "urgency"
    splits_actor = True
    observes = True

    def __init__(self, policy):
        super().__init__()
        self.policy, self.value = policy, nn.Linear(3, 1, bias=False)
        self.seen = 0

    def observe(self, tensordict):
        self.seen += tensordict.numel()

    def update_terms(self, tensordict, *, actor=True):
        value = self.value(tensordict["observation"])
        tensordict["urgency"] = value.detach().abs().squeeze(-1)
        terms = {"loss_value": value.square().mean(), "size": value.detach().mean()}
        if actor:
            terms["loss_policy"] = self.policy(tensordict["observation"]).square().mean()
        return terms

    def backward_terms(self, tensordict, *, actor=True):
        terms = self.update_terms(tensordict, actor=actor)
        sum(value for name, value in terms.items() if name.startswith("loss")).backward()
        return terms


class Every:
    """Somebody's schedule: the actor learns at every third update."""

    reads: ClassVar[tuple[str, ...]] = ()

    def __init__(self):
        self.count = 0

    def due(self):
        return self.count % 3 == 2

    def observe(self, terms):
        self.count += 1

    def state_dict(self):
        return {"count": self.count}

    def load_state_dict(self, state_dict):
        self.count = state_dict["count"]


class Notes(AddOn):
    """Somebody's add-on: it doubles what the loss sees, and pulls at the policy."""

    name = "notes"

    def __init__(self, policy):
        self.policy, self.calls, self.grads = policy, [], []

    @property
    def metric_names(self):
        return ("loss_notes",)

    @property
    def observes(self):
        return True

    def observe(self, batch, *, stream=0):
        self.calls.append(("observe", stream))

    def show(self, batch):
        return batch.copy().set("observation", 2 * batch["observation"])

    def backward(self, batch, *, actor_updated):
        self.calls.append(("backward", actor_updated))
        grad = self.policy.weight.grad
        self.grads.append(None if grad is None else grad.clone())
        term = self.policy.weight.sum()
        term.backward()
        return {"loss_notes": term}

    def state_dict(self):
        return {"calls": len(self.calls)}

    def load_state_dict(self, state_dict):
        self.loaded = state_dict


def foreign(**more):
    torch.manual_seed(0)
    policy = nn.Linear(3, 1, bias=False)
    loss = Squares(policy)
    parts = Parts(
        policy=policy,
        loss=loss,
        optimizer=torch.optim.SGD(loss.parameters(), lr=0.1),
        schedule=Every(),
        **more,
    )
    return parts, policy, loss


def batch(rows=4):
    return TensorDict({"observation": torch.ones(rows, 3)}, [rows])


def test_a_foreign_loss_keeps_the_protocol():
    assert isinstance(Squares(nn.Linear(3, 1)), UpdateLoss)


def test_a_foreign_loss_and_schedule_train():
    parts, policy, loss = foreign()
    learner = Learner(parts)
    before = policy.weight.detach().clone()
    names, moved = [], []
    for _ in range(3):
        rows = batch()
        names.append(set(learner.update(rows)))
        moved.append(not torch.equal(policy.weight, before))
        assert rows["urgency"].shape == (4,)
    assert names == [{"loss_value", "size"}] * 2 + [{"loss_value", "size", "loss_policy"}]
    assert moved == [False, False, True]
    learner.observe(batch().unsqueeze(0))
    assert (loss.seen, learner.observes, learner.updates) == (4, True, 3)
    other = Learner(foreign()[0])
    other.load_state_dict(learner.state_dict())
    assert (other.updates, other.schedule.count) == (3, 3)


def test_a_foreign_add_on_takes_part_in_every_update():
    parts, policy, _ = foreign()
    notes = Notes(policy)
    parts.add_ons = [notes]
    learner = Learner(parts)
    learner.observe(batch().unsqueeze(0), stream=7)
    rows, before = batch(), policy.weight.detach().clone()
    terms = learner.update(rows)
    assert "loss_notes" in terms
    assert "loss_notes" in learner.metric_names
    # Only its own gradient moved the policy, which the loss left out.
    torch.testing.assert_close(policy.weight, before - 0.1)
    for _ in range(2):
        learner.update(batch())
    flags = [value for name, value in notes.calls if name == "backward"]
    assert flags == [False, False, True]
    assert notes.calls[0] == ("observe", 7)
    assert [grad is None for grad in notes.grads] == [True, True, False]
    # What it shows is doubled, and the priority comes back to the caller's rows.
    assert torch.equal(rows["observation"], torch.ones(4, 3))
    assert rows.get("urgency").shape == (4,)
    state = learner.state_dict()
    assert state["add_ons"] == {"notes": {"calls": 4}}
    other_parts, other_policy, _ = foreign()
    other_parts.add_ons = [Notes(other_policy)]
    other = Learner(other_parts)
    other.load_state_dict(state)
    assert other.add_ons["notes"].loaded == {"calls": 4}


def test_zeroed_gradients_do_not_wake_the_h_term():
    """The term joins updates in which the actor learns, whatever stands in its gradients."""
    env = make_env("Pendulum-v1", 4, seed=0)
    hterm = HTermConfig(horizon=2, slices=2, period=1)
    torch.manual_seed(0)
    learner = Learner(
        SACConfig(num_cells=(8,), batch_size=8, actor_period=3, hterm=hterm).assemble(env)
    )
    rollout = env.rollout(20, learner.policy).detach()
    learner.observe(rollout)
    joined = []
    for _ in range(6):
        for param in learner.loss.parameters():
            param.grad = torch.zeros_like(param)
        terms = learner.update(rollout.reshape(-1)[:16].clone())
        joined.append("loss_hamiltonian" in terms)
    assert joined == [False, False, True] * 2


def test_a_rollout_learner_refuses_a_loss_without_rows():
    with pytest.raises(TypeError, match="must keep the protocol RolloutLoss, got `Squares`"):
        RolloutLearner(foreign()[0])


def test_a_foreign_watcher_and_source_run_the_loop():
    class Source:
        activity = "collect"

        def __iter__(self):
            yield from (1, 2, 3)

        def push(self, updates):
            pushed.append(updates)

    class Watcher:
        clock = Clock()
        finished = False

        def note(self, terms):
            noted.append(sorted(terms))

        def after(self, source):
            return len(pushed) < 2

        def finish(self, source):
            self.finished = True

    pushed, noted, watcher = [], [], Watcher()
    train_off_policy(Source(), _Store(), Learner(foreign()[0]), watcher, batch_size=4)
    assert (pushed, len(noted), watcher.finished) == ([1, 2], 3, True)


class _Store:
    """The part of a replay buffer that the loop asks for."""

    sampler = None

    def sample(self, size):
        return batch(size)

    def __getitem__(self, index):
        return batch(1)


def test_a_quantum_counts_from_where_it_begins():
    ledger = Ledger(total_frames=100, frames=40, updates=10)
    quantum = Quantum(ledger, frames=10, updates=5)
    assert quantum.after(None)
    ledger.updates = 15
    assert not quantum.after(None)
    ledger.updates, ledger.frames = 12, 50
    assert not quantum.after(None)


def test_a_foreign_family_trains(tmp_path, monkeypatch):
    drawn = []

    @family("mine")
    class Mine(OffPolicy):
        """Somebody's family, which looks at all that it draws."""

        def train(self, source, learner, store, watcher):
            for due in source:
                for rows in draw(store, self.share.batch_size, due):
                    drawn.append(rows.shape[0])
                    for terms in learner.learn(rows, self.share.batch_size):
                        watcher.note(terms)
                source.push(due)
                if not watcher.after(source):
                    break
            watcher.finish(source)

    @register("mine")
    @dataclass(frozen=True, kw_only=True)
    class MineConfig(SACConfig):
        family: ClassVar[str] = "mine"

    try:
        result = train(
            MineConfig(**SMALL), POINT, total_frames=60, folder=str(tmp_path / "run"), **QUIET
        )
    finally:
        del ALGORITHMS["mine"], FAMILIES["mine"]
    assert result.history[-1]["updates"] == 40
    assert sum(drawn) == 8 * 40


def test_ramps_are_told_the_progress_of_the_ledger():
    seen = []
    parts, *_ = foreign(ramps=(Ramp(rate=(1.0, 0.0), apply=seen.append),))
    learner = Learner(parts, ledger=Ledger(total_frames=100, frames=50))
    learner.at(learner.ledger.progress)
    assert seen == [1.0, 0.5]
