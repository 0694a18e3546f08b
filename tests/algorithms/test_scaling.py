"""Observations and rewards between collector and loss."""

from __future__ import annotations

import pickle
from copy import deepcopy

import pytest
import torch
from sac_cases import make_batch
from tensordict import TensorDict

from torchrl_elegant.algorithms import DDPGConfig, ModSACConfig, PPOConfig, SACConfig
from torchrl_elegant.algorithms.scaling import Scaling
from torchrl_elegant.data import ReturnScale
from torchrl_elegant.envs import make_env
from torchrl_elegant.modules import NormalizedActor, ObservationNorm, normalizable
from torchrl_elegant.trainers.learner import Learner


def preparation(**options) -> Scaling:
    norm = ObservationNorm({"observation": (3,)})
    return Scaling(norm=norm, returns=ReturnScale(gamma=0.9), **options)


def seen_data(prepare: Scaling) -> TensorDict:
    batch = make_batch(4, 50)
    for key in ("observation", ("next", "observation")):
        batch[key] = batch[key] * 5 + 100
    prepare.observe(batch)
    return batch


def test_a_loss_sees_unit_scales():
    prepare = preparation()
    batch = seen_data(prepare)
    prepared = prepare.show(batch)
    rows = batch["observation"].reshape(-1, 3).double()
    spread = rows.std(0, correction=0)
    for key in ("observation", ("next", "observation")):
        expected = ((batch[key].double() - rows.mean(0)) / spread).clamp(-10, 10).float()
        torch.testing.assert_close(prepared[key], expected, atol=1e-4, rtol=1e-4)
    expected = batch["next", "reward"] * prepare.returns.scale
    torch.testing.assert_close(prepared["next", "reward"], expected)
    assert torch.equal(prepared["action"], batch["action"])
    assert torch.equal(prepared["next", "terminated"], batch["next", "terminated"])


def test_what_was_given_is_left_as_it_was():
    prepare = preparation(reward_scale=3.0)
    batch = seen_data(prepare)
    batch["ahead"] = batch["next"].clone()
    kept = batch.clone()
    prepare.show(batch)
    assert (batch == kept).all()


def test_the_longer_span_is_prepared_like_the_shorter():
    prepare = preparation(reward_scale=3.0)
    batch = seen_data(prepare)
    batch["ahead"] = batch["next"].clone()
    prepared = prepare.show(batch)
    assert (prepared["ahead"] == prepared["next"]).all()
    assert not torch.equal(prepared["ahead", "reward"], batch["ahead", "reward"])


def test_only_given_entries_are_normalised_and_clipped():
    norm = ObservationNorm({("a", "b"): (2,)})
    norm.fit(("a", "b"), torch.tensor([1.0, 5.0]), torch.tensor([4.0, 0.0]))
    value = torch.tensor([[3.0, 7.0], [100.0, -100.0]])
    assert norm(("a", "b"), value).tolist() == [[1.0, 2.0], [10.0, -10.0]]
    assert norm("pixels", value) is value


def test_a_constant_far_from_zero_stays_quiet():
    norm = ObservationNorm({"x": (1,)})
    prepare = Scaling(norm=ObservationNorm({"observation": (3,)}))
    batch = make_batch(2, 20)
    batch["observation"] = torch.full((2, 20, 3), 12345.678)
    prepare.observe(batch)
    assert prepare.norm("observation", batch["observation"]).abs().max() < 1e-2
    assert norm("x", torch.ones(1)).item() == 1.0


def test_vectors_are_normalised_and_pictures_are_not():
    class Env:
        observation_spec_unbatched = None

    from torchrl.data import Composite, Unbounded

    Env.observation_spec_unbatched = Composite(
        vector=Unbounded((3,)), matrix=Unbounded((2, 4)), number=Unbounded(())
    )
    assert normalizable(Env()) == {"vector": (3,), "number": ()}
    Env.observation_spec_unbatched = Composite(choice=Unbounded((3,), dtype=torch.int64))
    with pytest.raises(ValueError, match="`normalize_observation` must be false without"):
        normalizable(Env())


@pytest.mark.parametrize("config", [SACConfig, ModSACConfig, PPOConfig])
def test_options_make_their_parts_and_defaults_make_none(config):
    env = make_env("Pendulum-v1")
    bare = config(num_cells=(8,)).assemble(env)
    assert bare.add_ons == []
    assert not isinstance(bare.policy, NormalizedActor)
    parts = config(num_cells=(8,), normalize_observation=True, gamma=0.5).assemble(env)
    (scaling,) = parts.add_ons
    assert isinstance(parts.policy, NormalizedActor)
    assert parts.policy.norm is scaling.norm
    assert parts.policy.actor is parts.loss.actor_network
    assert scaling.returns is None
    parts = config(num_cells=(8,), normalize_value=True, gamma=0.5, reward_scale=2.0).assemble(env)
    (scaling,) = parts.add_ons
    assert (scaling.returns.gamma, scaling.reward_scale) == (0.5, 2.0)
    assert scaling.norm is None


@pytest.mark.parametrize("scale", [0.0, -1.0, float("inf"), float("nan")])
def test_a_reward_scale_is_positive(scale):
    with pytest.raises(ValueError, match="`reward_scale` must be a finite number above 0"):
        SACConfig(reward_scale=scale)


def test_a_policy_is_shown_normalised_observations_on_both_paths():
    parts = SACConfig(num_cells=(8,), normalize_observation=True).assemble(make_env("Pendulum-v1"))
    (scaling,) = parts.add_ons
    norm, actor = scaling.norm, parts.policy.actor
    norm.fit("observation", torch.tensor([1.0, 2.0, 3.0]), torch.tensor([4.0, 9.0, 1.0]))
    seen = torch.randn(5, 3)
    with torch.no_grad():
        torch.manual_seed(1)
        expected = actor.act((seen - torch.tensor([1.0, 2.0, 3.0])) / torch.tensor([2.0, 3.0, 1.0]))
        torch.manual_seed(1)
        torch.testing.assert_close(parts.policy.act(seen), expected)
        torch.manual_seed(1)
        data = parts.policy(TensorDict({"observation": seen}, [5]))
    torch.testing.assert_close(data["action"], expected)
    assert torch.equal(data["observation"], seen)


def test_noise_begins_anew_where_collectors_say_so_and_in_copies_too():
    env = make_env("Pendulum-v1")
    config = DDPGConfig(num_cells=(8,), noise="ou", normalize_observation=True)
    policy = config.assemble(env).policy
    copy = pickle.loads(pickle.dumps(deepcopy(policy)))
    with torch.no_grad():
        for each in (policy, copy):
            each.act(torch.zeros(2, 3))
    copy.restart(torch.tensor([True, False]))
    ours, theirs = policy.actor.noise._state, copy.actor.noise._state
    assert ours.all()
    assert theirs[1].all()
    assert not theirs[0].any()


def learner(**options) -> Learner:
    parts = SACConfig(num_cells=(8,), **options).assemble(make_env("Pendulum-v1"))
    return Learner(parts)


NORMALISED = {"normalize_observation": True, "normalize_value": True}


def test_statistics_are_stored_with_the_learner():
    one, other = learner(**NORMALISED), learner(**NORMALISED)
    env = make_env("Pendulum-v1", 2)
    one.observe(env.rollout(20))
    other.load_state_dict(one.state_dict())
    seen = torch.randn(4, 3)
    assert torch.equal(other.policy.norm("observation", seen), one.policy.norm("observation", seen))
    ours, theirs = (each.add_ons["scaling"].returns.scale for each in (other, one))
    assert ours == theirs != 1.0
    more = env.rollout(5)
    for each in (one, other):
        each.observe(more)
    assert torch.equal(one.policy.norm.mean_0, other.policy.norm.mean_0)


@pytest.mark.parametrize("name", NORMALISED)
def test_another_normalisation_cannot_take_over(name):
    normalised, plain = learner(**{name: True}), learner()
    with pytest.raises(
        ValueError, match=f"`{name}` must stay True when a run goes on, got `False`"
    ):
        plain.load_state_dict(normalised.state_dict())
    with pytest.raises(
        ValueError, match=f"`{name}` must stay False when a run goes on, got `True`"
    ):
        normalised.load_state_dict(plain.state_dict())


def test_a_constant_scale_needs_nothing_stored():
    plain, scaled = learner(), learner(reward_scale=2.0)
    assert "scaling" not in plain.state_dict()["add_ons"]
    scaled.load_state_dict(plain.state_dict())
    plain.load_state_dict(scaled.state_dict())
    plain.load_state_dict(learner().state_dict())


def test_an_update_leaves_its_batch_but_for_the_priority():
    made = learner(**NORMALISED)
    env = make_env("Pendulum-v1", 8)
    made.observe(env.rollout(4))
    batch = env.rollout(2).reshape(-1)
    kept = batch.clone()
    made.update(batch)
    assert set(batch.keys(True, True)) - set(kept.keys(True, True)) == {"td_error"}
    assert (batch.exclude("td_error") == kept).all()


def test_a_given_scale_counts_beside_the_running_one():
    rollout = make_env("Pendulum-v1", 8).rollout(20)
    batch = rollout[:, :2].reshape(-1)
    halved = batch.clone()
    halved["next", "reward"] = halved["next", "reward"] * 0.5

    def critic_loss(scale: float, rows: TensorDict) -> torch.Tensor:
        torch.manual_seed(3)
        made = learner(normalize_value=True, reward_scale=scale)
        made.observe(rollout)
        torch.manual_seed(4)
        return made.update(rows.clone())["loss_qvalue"]

    torch.testing.assert_close(critic_loss(0.5, batch), critic_loss(1.0, halved))
    assert not torch.isclose(critic_loss(1.0, batch), critic_loss(1.0, halved))


def test_scaled_rewards_are_what_the_critics_learn():
    torch.manual_seed(3)
    scaled = learner(reward_scale=0.5)
    torch.manual_seed(3)
    plain = learner()
    batch = make_env("Pendulum-v1", 8).rollout(2).reshape(-1)
    halved = batch.clone()
    halved["next", "reward"] = halved["next", "reward"] * 0.5
    torch.manual_seed(4)
    terms = scaled.update(batch)
    torch.manual_seed(4)
    assert torch.equal(terms["loss_qvalue"], plain.update(halved)["loss_qvalue"])
