"""Policies whose log-probability is kept beside the action, and the value beside them."""

from __future__ import annotations

import pickle

import pytest
import torch
from ppo_cases import ACT, ACTORS, OBS, make_actor, make_rows, make_value
from tensordict import TensorDict
from torchrl.envs.utils import ExplorationType, set_exploration_type
from torchrl.objectives import ClipPPOLoss

from torchrl_elegant.envs import make_env
from torchrl_elegant.modules import (
    CategoricalActor,
    GaussianActor,
    StateValue,
    build_stochastic_actor,
    build_value,
)
from torchrl_elegant.runs.policy import load_policy, save_policy

KINDS = pytest.mark.parametrize("kind", ACTORS)
MANY = {"speed": (), "arm": (2, 2), ("room", "place"): (3,)}


def states(*batch: int) -> TensorDict:
    return TensorDict({"observation": torch.randn(*batch, OBS)}, batch)


def many(*batch: int) -> TensorDict:
    return TensorDict(
        {
            "speed": torch.randn(batch),
            "arm": torch.randn(*batch, 2, 2),
            "room": {"place": torch.randint(5, (*batch, 3))},
        },
        batch,
    )


@KINDS
@pytest.mark.parametrize("batch", [(), (6,), (2, 3)])
def test_log_prob_is_that_of_the_sample(kind, batch):
    actor = make_actor(kind)
    data = actor(states(*batch))
    assert data["action_log_prob"].shape == batch
    torch.testing.assert_close(
        data["action_log_prob"], actor.get_dist(data).log_prob(data["action"])
    )
    assert not data["action"].requires_grad
    assert data["action_log_prob"].requires_grad


@KINDS
def test_entropy_is_that_of_the_distribution(kind):
    actor, data = make_actor(kind, **({"log_std": -0.5} if kind == "gaussian" else {})), states(6)
    found = actor.head([data["observation"]]).entropy()
    torch.testing.assert_close(found.expand(6), actor.get_dist(data).entropy())


def test_gaussian_samples_have_the_distributions_moments():
    actor = make_actor("gaussian", log_std=-1.0)
    with torch.no_grad():
        actor.log_std += torch.tensor([0.0, 1.0, 1.5])
        data = actor(states(1).expand(40_000).clone())
        mean = actor.net(data["observation"][0])
    error = data["action"].mean(0) - mean
    spread = actor.log_std.exp()
    assert (error.abs() < 5 * spread / 200).all()
    torch.testing.assert_close(data["action"].std(0), spread.detach(), rtol=0.02, atol=0.0)


@KINDS
def test_the_mode_is_written_unless_asked_to_explore(kind):
    actor, data = make_actor(kind), states(30)
    dist = actor.get_dist(data)
    wanted = {"gaussian": lambda: dist.mean, "multi": lambda: dist.mode}
    wanted = wanted.get(kind, lambda: dist.probs.argmax(-1))()
    for mode in (ExplorationType.DETERMINISTIC, ExplorationType.MODE, ExplorationType.MEAN):
        with set_exploration_type(mode):
            action = actor(data.clone())["action"]
        found = action.argmax(-1) if kind == "one_hot" else action
        torch.testing.assert_close(found, wanted)
    for context in (set_exploration_type(ExplorationType.RANDOM), torch.no_grad()):
        with context:
            action = actor(data.clone())["action"]
        assert not torch.equal(action.argmax(-1) if kind == "one_hot" else action, wanted)


@pytest.mark.parametrize("form", ["one_hot", "categorical"])
def test_choices_have_the_form_that_environments_take(form):
    env = make_env("CartPole-v1", 5, discrete_actions=form)
    actor = build_stochastic_actor(env, num_cells=(8,))
    data = env.rollout(4, actor, break_when_any_done=False)
    assert env.action_spec.is_in(data["action"][:, 0])
    assert data["action"].dtype == env.action_spec.dtype
    assert (actor.choices, actor.form) == (2, form)


@KINDS
def test_several_entries_nested_and_of_whole_numbers(kind):
    actor, critic, data = make_actor(kind, MANY), make_value(MANY), many(7)
    assert actor.in_keys == critic.in_keys == list(MANY)
    assert actor(data)["action_log_prob"].shape == (7,)
    value = critic(data)["state_value"]
    assert value.shape == (7, 1)
    place, arm = data["room", "place"].float(), data["arm"].flatten(1)
    joined = torch.cat([data["speed"].unsqueeze(-1), arm, place], -1)
    torch.testing.assert_close(value, critic.net(joined))
    if kind == "gaussian":
        torch.testing.assert_close(actor.get_dist(data).mean, actor.net(joined))


def test_a_single_entry_of_whole_numbers():
    critic = StateValue(observation={"observation": (4,)})
    found = critic.values([torch.ones(2, 4, dtype=torch.uint8)])
    torch.testing.assert_close(found, critic.values([torch.ones(2, 4)]))


@pytest.mark.parametrize(("shape", "written"), [((), (1,)), ((2,), (2,)), ((2, 3), (2, 3))])
@pytest.mark.parametrize("batch", [(), (5,)])
def test_actions_of_any_shape(shape, written, batch):
    actor = make_actor("gaussian", action_shape=shape)
    data = actor(states(*batch))
    assert data["action"].shape == (*batch, *written)
    assert data["action_log_prob"].shape == batch
    dist = actor.get_dist(data)
    assert dist.mean.shape == data["action"].shape
    torch.testing.assert_close(dist.log_prob(data["action"]), data["action_log_prob"])


@KINDS
def test_a_nested_action_has_its_log_prob_beside_it(kind):
    actor = make_actor(kind, action_key=("agent", "act"))
    data = actor(states(4))
    assert actor.out_keys == [("agent", "act"), ("agent", "act_log_prob")]
    assert data["agent", "act_log_prob"].shape == (4,)


@KINDS
def test_act_gives_what_forward_writes(kind):
    actor, data = make_actor(kind), states(4)
    with set_exploration_type(ExplorationType.DETERMINISTIC):
        action, log_prob = actor.act(data["observation"])
        written = actor(data)
    torch.testing.assert_close(written["action"], action)
    torch.testing.assert_close(written["action_log_prob"], log_prob)


@KINDS
def test_a_policy_file_keeps_it(kind, tmp_path):
    options = {"action_shape": (2, 3), "log_std": -1.5} if kind == "gaussian" else {}
    actor = make_actor(kind, MANY, activation="relu", action_key=("agent", "act"), **options)
    save_policy(tmp_path / "policy.pt", actor, {})
    loaded = load_policy(tmp_path / "policy.pt")
    assert type(loaded) is type(actor)
    assert loaded.spec_dict() == actor.spec_dict()
    with set_exploration_type(ExplorationType.DETERMINISTIC), torch.no_grad():
        data = many(3)
        torch.testing.assert_close(loaded(data.clone()).to_dict(), actor(data.clone()).to_dict())


@KINDS
def test_copies_by_pickle_act_alike(kind):
    actor, data = make_actor(kind), states(3)
    copy = pickle.loads(pickle.dumps(actor))
    with set_exploration_type(ExplorationType.DETERMINISTIC), torch.no_grad():
        torch.testing.assert_close(copy(data.clone()).to_dict(), actor(data.clone()).to_dict())


@KINDS
def test_torchrls_own_loss_takes_them(kind):
    loss = ClipPPOLoss(make_actor(kind), make_value())
    assert (loss.tensor_keys.action, loss.tensor_keys.sample_log_prob) == (
        "action",
        "action_log_prob",
    )
    out = loss(make_rows(make_actor(kind)))
    sum(value for name, value in out.items() if name.startswith("loss_")).backward()
    assert all(param.grad is not None for param in loss.parameters())


def test_wrong_arguments_are_named():
    shapes = {"observation": (3,)}
    with pytest.raises(ValueError, match="`log_std` must be finite, got `nan`"):
        GaussianActor(observation=shapes, action_shape=(1,), log_std=float("nan"))
    with pytest.raises(ValueError, match="`choices` must be at least 1, got `0`"):
        CategoricalActor(observation=shapes, choices=0)
    with pytest.raises(ValueError, match="`form` must be 'one_hot' or 'categorical', got `index`"):
        CategoricalActor(observation=shapes, choices=2, form="index")


def test_the_spread_starts_where_it_is_told_and_is_learnt():
    actor = build_stochastic_actor(make_env("Pendulum-v1"), num_cells=(8,), log_std=-0.7)
    assert isinstance(actor, GaussianActor)
    torch.testing.assert_close(actor.log_std.detach(), torch.tensor([-0.7]))
    assert actor.log_std.requires_grad
    assert any(param is actor.log_std for param in actor.parameters())


@pytest.mark.parametrize("kind", ["gaussian", "one_hot"])
def test_a_new_policy_hardly_prefers_anything(kind):
    torch.manual_seed(3)
    shapes = {"observation": (OBS,)}
    actor = (
        GaussianActor(observation=shapes, action_shape=(ACT,))
        if kind == "gaussian"
        else CategoricalActor(observation=shapes, choices=ACT)
    )
    assert actor.net(torch.randn(50, OBS)).abs().max() < 0.1


def test_the_value_goes_where_it_is_told():
    critic = make_value(value_key=("critic", "value"))
    assert critic(states(4))["critic", "value"].shape == (4, 1)
    assert build_value(make_env("Pendulum-v1"), num_cells=(8,)).in_keys == ["observation"]
