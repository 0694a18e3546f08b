"""One update of everything that learns."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from sac_cases import make_batch, torchrl_actor, torchrl_critic
from torchrl.data import Bounded
from torchrl.envs import EnvBase
from torchrl.objectives import SACLoss as TorchRLSACLoss
from torchrl.objectives import SoftUpdate

from torchrl_elegant.algorithms import (
    A2CConfig,
    DQNConfig,
    EveryUpdate,
    ModSACConfig,
    Parts,
    PPOConfig,
    Ramp,
    SACConfig,
)
from torchrl_elegant.algorithms.hterm import HTermConfig
from torchrl_elegant.envs import make_env
from torchrl_elegant.objectives import SACLoss
from torchrl_elegant.trainers.learner import DivergedError, Learner

CONFIGS = pytest.mark.parametrize("config", [SACConfig, ModSACConfig])


def env() -> EnvBase:
    return make_env("Pendulum-v1", 8, seed=0)


def make_learner(config=SACConfig, *, max_grad_norm=None, **options):
    torch.manual_seed(0)
    parts = config(num_cells=(8,), **options).build(env())
    parts.max_grad_norm = max_grad_norm
    return Learner(parts)


@pytest.fixture(scope="module")
def batches():
    torch.manual_seed(1)
    data = env().rollout(80).reshape(-1)
    return data[torch.randperm(len(data))].split(64)


def snapshot(learner):
    return {k: v.clone() for k, v in learner.loss.state_dict().items() if torch.is_tensor(v)}


def changed(learner, before):
    return {k for k, v in snapshot(learner).items() if not torch.equal(v, before[k])}


PARTS = ("actor_network_params", "qvalue_network_params", "target_qvalue_network_params")


def by_part(names):
    return {part for part in (*PARTS, "log_alpha") for name in names if name.startswith(part)}


@CONFIGS
def test_one_update(config, batches):
    learner = make_learner(config)
    before = snapshot(learner)
    metrics = learner.update(batches[0].clone())
    assert by_part(changed(learner, before)) == {*PARTS, "log_alpha"}
    assert learner.updates == 1
    assert {"loss_actor", "loss_qvalue", "loss_alpha", "alpha", "entropy"} <= set(metrics.keys())
    assert all(value.shape == () and not value.requires_grad for value in metrics.values())
    assert all(param.grad is None for param in learner.loss.parameters())


def test_update_is_the_optimisers_step(batches):
    learner, other = make_learner(), make_learner()
    torch.manual_seed(2)
    learner.update(batches[0].clone())
    torch.manual_seed(2)
    out = other.loss(batches[0].clone())
    (out["loss_actor"] + out["loss_qvalue"] + out["loss_alpha"]).backward()
    other.optimizer.step()
    other.target_updater.step()
    assert not changed(learner, snapshot(other))


def test_actor_waits_for_its_turn(batches):
    learner, turns = make_learner(actor_period=3), []
    for batch in batches[:6]:
        before = snapshot(learner)
        metrics = learner.update(batch.clone())
        touched = by_part(changed(learner, before))
        assert {"qvalue_network_params", "target_qvalue_network_params"} <= touched
        assert ("actor_network_params" in touched) == ("loss_actor" in metrics)
        assert ("log_alpha" in touched) == ("loss_alpha" in metrics)
        turns.append("loss_actor" in metrics)
    assert turns == [False, False, True] * 2


def test_no_graph_of_the_actor_before_its_turn(batches, monkeypatch):
    learner = make_learner(actor_period=3)
    actor, critic = learner.loss.actor_network, learner.loss.qvalue_network
    asked = {"actor": 0, "actor with graph": 0, "critics for the actor": 0}

    def spied(owner, name, entries):
        method = getattr(owner, name)

        def spy(*args, **kwargs):
            for entry in entries():
                asked[entry] += 1
            return method(*args, **kwargs)

        monkeypatch.setattr(owner, name, spy)

    spied(
        actor,
        "parameters_of",
        lambda: ("actor", "actor with graph") if torch.is_grad_enabled() else ("actor",),
    )
    spied(critic, "frozen_values", lambda: ("critics for the actor",))
    step, with_gradient = learner.optimizer.step, []

    def watched():
        with_gradient.append(any(p.grad is not None for p in actor.parameters()))
        step()

    monkeypatch.setattr(learner.optimizer, "step", watched)
    counts = []
    for batch in batches[:3]:
        learner.update(batch.clone())
        counts.append(tuple(asked.values()))
    # Each target asks the actor once, without a graph; only the third update asks for more.
    assert counts == [(1, 0, 0), (2, 0, 0), (4, 1, 1)]
    assert with_gradient == [False, False, True]


def test_the_period_outlives_the_process(batches):
    learner, other = make_learner(actor_period=3), make_learner(actor_period=3)
    for batch in batches[:2]:
        learner.update(batch.clone())
    other.load_state_dict(deepcopy(learner.state_dict()))
    assert "loss_actor" in other.update(batches[2].clone())


@pytest.mark.parametrize(
    ("key", "term"), [(("next", "reward"), "loss_qvalue"), ("observation", "loss_qvalue")]
)
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_divergence_names_the_term(key, term, bad, batches):
    learner, batch = make_learner(), batches[0].clone()
    learner.update(batch.clone())
    before = snapshot(learner)
    batch.get(key)[3] = bad
    with pytest.raises(DivergedError, match=f"`{term}` is (nan|inf) at update 1; lower"):
        learner.update(batch)
    assert not changed(learner, before)


def test_divergence_of_the_actor_alone(batches):
    learner = make_learner()
    with torch.no_grad():
        learner.loss.log_alpha.fill_(float("inf"))
    batch = batches[0].clone()
    batch["next", "terminated"].fill_(True)
    with pytest.raises(DivergedError, match="`loss_actor` is"):
        learner.update(batch)


@CONFIGS
def test_continues_bit_for_bit(config, batches):
    options = {"std_regularization": 0.1, "trust_window": 7} if config is ModSACConfig else {}
    learner = make_learner(config, **options)
    for batch in batches[:5]:
        learner.observe(batch)
        learner.update(batch.clone())
    state, noise = deepcopy(learner.state_dict()), torch.get_rng_state()
    other = make_learner(config, **options)
    other.load_state_dict(state)
    assert other.updates == 5
    found = []
    for each in (learner, other):
        torch.set_rng_state(noise)
        found.append([each.update(batch.clone()) for batch in batches[5:10]])
    assert [m.keys() for m in found[0]] == [m.keys() for m in found[1]]
    torch.testing.assert_close(found[0], found[1], atol=0.0, rtol=0.0)
    assert not changed(other, snapshot(learner))


def test_gradient_norm_of_each_group_is_held(batches):
    norms = {None: [], 0.25: [], 1.0: [], 100.0: []}
    for limit, found in norms.items():
        learner = make_learner(max_grad_norm=limit)
        step, optimizer = learner.optimizer.step, learner.optimizer

        def watched(step=step, groups=optimizer.param_groups, found=found):
            before = [norm_of_gradients(group) for group in groups]
            # Some clip before they step and some while they do: afterwards it is done.
            step()
            found.append((before, [norm_of_gradients(group) for group in groups]))

        optimizer.step = watched
        for batch in batches[:3]:
            learner.update(batch.clone())
    assert min(max(after) for _, after in norms[None]) > 1.0
    # Actor, critics and temperature: each is held on its own.
    assert [after for _, after in norms[0.25]] == [pytest.approx([0.25] * 3, rel=1e-4)] * 3
    for before, after in norms[1.0]:
        assert before[0] < 1.0 < min(before[1:])
        assert after == pytest.approx([before[0], 1.0, 1.0], rel=1e-4)
    # What lies below the limit is left as it is.
    for (_, after), (_, free) in zip(norms[100.0], norms[None], strict=True):
        assert after == pytest.approx(free, rel=1e-6)


def norm_of_gradients(group):
    return torch.stack([param.grad.norm() for param in group["params"]]).norm().item()


@pytest.mark.parametrize("config", [DQNConfig, PPOConfig, A2CConfig, SACConfig])
def test_the_norm_is_the_configured_one(config):
    options = {} if config.max_grad_norm is not None else {"max_grad_norm": 0.25}
    made = make_env("CartPole-v1", 2) if config is DQNConfig else env()
    settings = config(num_cells=(8,), **options)
    learner = Learner(settings.assemble(made))
    used = (learner.max_grad_norm, getattr(learner.optimizer, "max_grad_norm", None))
    assert settings.max_grad_norm in used


def test_a_norm_that_the_optimiser_brings_is_left():
    parts = SACConfig(num_cells=(8,)).build(env())
    parts.optimizer.max_grad_norm = 0.5
    assert Learner(parts).optimizer.max_grad_norm == 0.5


def test_observe(batches):
    make_learner().observe(batches[0])
    learner = make_learner(ModSACConfig, std_regularization=0.1)
    learner.observe(batches[0])
    assert learner.loss.std_updates == 1
    learner.observe(batches[0][:0])
    assert learner.loss.std_updates == 1


@pytest.mark.parametrize("kind", [TorchRLSACLoss, SACLoss])
def test_any_torchrl_loss(kind):
    torch.manual_seed(0)
    actor = torchrl_actor()
    loss = kind(actor, torchrl_critic(), action_spec=Bounded(-1.0, 1.0, (2,)))
    parts = Parts(
        policy=actor,
        loss=loss,
        optimizer=torch.optim.Adam(loss.parameters(), lr=1e-3),
        target_updater=SoftUpdate(loss, tau=0.1),
        schedule=EveryUpdate(),
    )
    loss.make_value_estimator(gamma=0.9)
    learner = Learner(parts)
    before = snapshot(learner)
    metrics = [learner.update(make_batch()) for _ in range(3)][-1]
    assert by_part(changed(learner, before)) == {*PARTS, "log_alpha"}
    assert "loss_actor" in metrics
    other = Learner(parts)
    other.load_state_dict(deepcopy(learner.state_dict()))
    assert other.updates == 3


@CONFIGS
def test_learns_which_way_to_act(config):
    """The reward is the action times the sign of the first observation, or nothing."""
    found = []
    for scale in (1.0, 0.0):
        torch.manual_seed(0)
        parts = config(
            num_cells=(32,), actor_lr=3e-3, critic_lr=3e-3, temperature="fixed", alpha=0.05
        ).build(make_env("Pendulum-v1", 8))
        learner = Learner(parts)
        for _ in range(150):
            learner.update(one_step_episodes(scale))
        state = torch.randn(512, 3)
        loc, _ = parts.policy.parameters_of([state])
        found.append((loc.tanh() * state[:, :1].sign()).mean().item())
    assert found[0] > 0.6
    assert abs(found[1]) < 0.3


def one_step_episodes(scale):
    batch = make_batch(64)
    batch["action"] = torch.rand(64, 1) * 2 - 1
    batch["next", "reward"] = scale * batch["action"] * batch["observation"][:, :1].sign()
    for name in ("terminated", "done"):
        batch["next", name] = torch.ones(64, 1, dtype=torch.bool)
    return batch


def test_parameters_that_are_no_numbers_are_named():
    learner = make_learner()
    learner.raise_if_broken()
    learner.loss.log_alpha.data.fill_(torch.nan)
    with pytest.raises(DivergedError, match="`log_alpha` is nan after update 0"):
        learner.raise_if_broken()


def test_new_data_is_shown_on_the_device_of_the_policy(batches):
    learner = make_learner(ModSACConfig, std_regularization=0.1)
    seen = []
    learner.loss.observe = seen.append
    learner.policy = learner.policy.to("meta")
    learner.observe(batches[0])
    assert seen[0].device == torch.device("meta")


def test_ramps_follow_the_progress_that_the_learner_is_told():
    seen = []
    parts = SACConfig(num_cells=(8,)).build(make_env("Pendulum-v1"))
    parts.ramps = (Ramp(rate=(1.0, 0.0), apply=seen.append),)
    learner = Learner(parts)
    learner.at(0.5)
    assert seen == [1.0, 0.5]


@pytest.mark.parametrize("to_none", [True, False])
def test_the_h_term_joins_updates_of_the_actor_whatever_its_gradients_hold(to_none):
    config = SACConfig(
        num_cells=(8,), actor_period=2, hterm=HTermConfig(horizon=4, period=1, form="log")
    )
    learner = Learner(config.assemble(env()))
    steps = env().rollout(40)
    learner.observe(steps)
    batch, zero_grad = steps.reshape(-1), learner.optimizer.zero_grad
    learner.optimizer.zero_grad = lambda: zero_grad(set_to_none=to_none)
    seen = ["loss_hamiltonian" in learner.update(batch) for _ in range(4)]
    assert seen == [False, True, False, True]
