"""The Hamiltonian term's group of options: what they are, and what is made of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tensordict import TensorDict

from torchrl_elegant.algorithms import (
    ALGORITHMS,
    HTermConfig,
    OnPolicyConfig,
    PPOConfig,
    SACConfig,
    TD3Config,
)
from torchrl_elegant.cli.training import parse_training, train_command
from torchrl_elegant.envs import make_env
from torchrl_elegant.objectives import DQNLoss
from torchrl_elegant.trainers.learner import Learner

SINGLE = {name: kind for name, kind in ALGORITHMS.items() if not kind.teams}
WITH_ACTOR = sorted(name for name, kind in SINGLE.items() if kind.has_actor)
WITHOUT = sorted(set(SINGLE) - set(WITH_ACTOR))
NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("name", "values"),
    [
        *((name, (0, -1)) for name in ("horizon", "slices", "period", "capacity", "max_age")),
        ("weight", (-0.1, NAN, INF)),
        ("form", ("ratios", "", 0, None)),
        ("clip_epsilon", (0.0, 1.0, -0.2, NAN)),
        ("gamma", (-0.1, 1.1, NAN)),
        ("baseline", ("median", "none", 0.0)),
        ("bound", (0.0, -1.0, NAN, INF)),
        ("best", (0.0, -0.5, 1.01, NAN)),
        ("sigma", (0.0, -1.0, NAN, INF)),
    ],
)
def test_what_no_option_can_be_is_refused_by_its_name(name, values):
    for value in values:
        with pytest.raises(ValueError, match=rf"^`{name}` must .*, got `{value}`"):
            HTermConfig(**{name: value})


@pytest.mark.parametrize(
    "edge",
    [
        {"horizon": 1, "slices": 1, "period": 1, "capacity": 1, "max_age": 1},
        {"weight": 0.0, "gamma": 0.0, "sigma": 1e-6},
        {"form": "ratio", "clip_epsilon": 0.999},
        {"gamma": 1.0, "form": "log", "baseline": "zero"},
        {"form": "imitate", "baseline": "value", "bound": 1e-9, "best": 1e-9},
        {"form": "ratio", "baseline": None, "bound": None, "capacity": None, "best": 1.0},
    ],
)
def test_the_edges_of_what_they_can_be(edge):
    config = HTermConfig(**edge)
    assert {name: getattr(config, name) for name in edge} == edge


def test_the_two_sides_that_have_an_actor_and_have_none():
    assert {"a2c", "ppo", "ddpg", "td3", "sac", "modsac", "redq", "discrete_sac"} == {*WITH_ACTOR}
    assert {"dqn", "double_dqn", "dueling_dqn", "d3qn"} == {*WITHOUT}


@pytest.mark.parametrize("name", WITHOUT)
def test_it_is_refused_where_there_is_no_actor(name):
    with pytest.raises(ValueError, match="`hterm` must be false where there is no actor, got `tru"):
        ALGORITHMS[name](hterm=HTermConfig())
    assert ALGORITHMS[name]().hterm is None


@pytest.mark.parametrize("value", [True, False, {"horizon": 4}])
def test_in_python_it_is_a_configuration_or_none(value):
    with pytest.raises(ValueError, match=r"`hterm` must be HTermConfig\(...\), or none, got `"):
        SACConfig(hterm=value)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["algorithm=dqn", "hterm=true"], "`hterm` must be false where there is no actor, got `tr"),
        (["algorithm=d3qn", "hterm.horizon=4"], "`hterm` must be false where there is no actor"),
        (["hterm.horizn=4"], "unknown option `hterm.horizn`: did you mean `hterm.horizon`?"),
        (["hterm.qqq=4"], "unknown option `hterm.qqq`: see --help"),
        (["hterm.horizon=0"], "`hterm.horizon` must be an integer in [1, 2147483648), got `0`"),
        (["hterm.horizon=2.5"], "`hterm.horizon` must be an integer in [1, 2147483648), got '2.5'"),
        (["hterm.weight=-1"], "`hterm.weight` must be a finite number of 0 or more, got `-1.0`"),
        (
            ["hterm.form=rato"],
            "`hterm.form` must be one of ratio, log, imitate (did you mean `ratio`?), got 'rato'",
        ),
        (
            ["hterm.baseline=medan"],
            "`hterm.baseline` must be one of mean, value, zero, or none (did you mean `mean`?), "
            "got 'medan'",
        ),
        (
            ["hterm.baseline=value"],
            "`hterm.baseline` must be mean, zero or none off-policy, got `value`; off-policy "
            "critics take an action, too",
        ),
        (
            ["hterm.clip_epsilon=0.3"],
            "`hterm.clip_epsilon` must stay 0.2 with hterm.form=imitate, got `0.3`; set "
            "hterm.form=ratio to use it, or hterm.clip_epsilon=0.2",
        ),
        (
            ["hterm.sigma=0.3"],
            "`hterm.sigma` must stay 0.1 with a stochastic actor, got `0.3`; set algorithm=td3 to "
            "use it, or hterm.sigma=0.1",
        ),
        (["hterm.bound=0"], "`hterm.bound` must be a finite number above 0, or none, got `0.0`"),
        (["hterm.best=2"], "`hterm.best` must be a number in (0, 1], got `2.0`"),
        (
            ["hterm.capacity=0"],
            "`hterm.capacity` must be an integer of 1 or more, or none, got `0`",
        ),
        (["hterm=false", "hterm.horizon=4"], "`hterm.horizon` must not be given with hterm=false"),
        (["hterm=maybe"], "`hterm` must be true or false, or none, got 'maybe'"),
    ],
)
def test_mistakes_are_told_in_one_line(words, expected, capsys, tmp_path):
    folder = tmp_path / "run"
    assert train_command([*words, f"folder={folder}"], program="train", default="sac") == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert expected in error
    assert not folder.exists()


def learner(config, env: str = "Pendulum-v1") -> Learner:
    return Learner(config.assemble(make_env(env, 2, seed=0)))


OPTIONS = {
    "horizon": 3,
    "weight": 0.5,
    "form": "ratio",
    "clip_epsilon": 0.3,
    "gamma": 0.5,
    "baseline": "zero",
    "slices": 5,
    "period": 7,
    "bound": 0.7,
    "max_age": 13,
    "best": 0.6,
    "capacity": 11,
    "sigma": 0.2,
}


def test_every_option_reaches_loss_store_or_term():
    assert set(OPTIONS) == set(HTermConfig.__dataclass_fields__)
    assert all(value != getattr(HTermConfig(), name) for name, value in OPTIONS.items())
    term = learner(TD3Config(num_cells=(8,), hterm=HTermConfig(**OPTIONS))).add_ons["hterm"].term
    found = {}
    for holder in (term, term.store, term.loss):
        found |= {name: getattr(holder, name) for name in OPTIONS if hasattr(holder, name)}
    assert found == OPTIONS
    assert term.store.gamma == term.loss.gamma == 0.5


@pytest.mark.parametrize("name", WITH_ACTOR)
def test_what_rewards_are_compared_with_is_for_the_algorithm_to_say(name):
    kind = ALGORITHMS[name]
    on_policy = issubclass(kind, OnPolicyConfig)
    env = "CartPole-v1" if name == "discrete_sac" else "Pendulum-v1"
    loss = learner(kind(num_cells=(8,), hterm=HTermConfig()), env).add_ons["hterm"].term.loss
    values = {"state_value", ("next", "state_value")}
    assert (loss.form, loss.baseline) == ("imitate", "value" if on_policy else "mean")
    assert set(loss.store_keys) == {"observation", "action", *(values if on_policy else ())}
    # What is said is done.
    term = HTermConfig(form="log", baseline="zero")
    loss = learner(kind(num_cells=(8,), hterm=term), env).add_ons["hterm"].term.loss
    assert (loss.form, loss.baseline) == ("log", "zero")
    term = HTermConfig(form="ratio", baseline="mean")
    loss = learner(kind(num_cells=(8,), hterm=term), env).add_ons["hterm"].term.loss
    assert (loss.form, loss.baseline) == ("ratio", "mean")


@pytest.mark.parametrize("name", WITH_ACTOR)
def test_values_of_states_are_refused_where_nobody_learns_them(name):
    kind, term = ALGORITHMS[name], HTermConfig(baseline="value")
    if issubclass(kind, OnPolicyConfig):
        assert kind(hterm=term).hterm is term
        return
    told = "`hterm.baseline` must be mean, zero or none off-policy, got `value`; off-policy critics"
    with pytest.raises(ValueError, match=f"^{told}"):
        kind(hterm=term)
    for baseline in ("mean", "zero", None):
        assert kind(hterm=HTermConfig(baseline=baseline)).hterm.baseline == baseline


def test_what_they_are_where_nothing_is_said():
    config = HTermConfig()
    assert (config.form, config.baseline) == ("imitate", None)
    assert (config.bound, config.best, config.capacity, config.max_age) == (1.0, 0.25, None, 2_048)
    term = learner(SACConfig(num_cells=(8,), hterm=config)).add_ons["hterm"].term
    assert (term.bound, term.period, term.slices) == (1.0, 8, 16)
    assert (term.store.best, term.store.capacity, term.store.max_age) == (0.25, None, 2_048)


@pytest.mark.parametrize("form", ["imitate", "log"])
def test_a_clip_is_refused_where_no_ratio_is_clipped(form):
    told = f"^`clip_epsilon` must stay 0.2 with form={form}, got `0.3`; set form=ratio to use it"
    with pytest.raises(ValueError, match=told):
        HTermConfig(form=form, clip_epsilon=0.3)


def test_a_critics_values_keep_the_discount_that_they_were_learnt_with():
    """Rewards of 1 and of 1/2 for ever, and a critic that knows it: nothing is beyond its
    expectation, by whatever discount slices are added up."""
    conf = PPOConfig(num_cells=(8,), gamma=0.99, hterm=HTermConfig(gamma=0.5, form="log"))
    term = learner(conf).add_ons["hterm"].term
    assert (term.loss.gamma, term.loss.value_gamma, term.store.gamma) == (0.5, 0.99, 0.5)
    reward = torch.tensor([1.0, 0.5]).reshape(2, 1, 1).expand(2, 4, 1)
    flag, value = torch.zeros(2, 4, 1, dtype=torch.bool), reward * 100
    after = {"reward": reward, "done": flag, "terminated": flag, "state_value": value}
    seen = {"observation": torch.randn(2, 4, 3), "action": torch.zeros(2, 4, 1)}
    slices = TensorDict({**seen, "state_value": value, "next": after}, [2, 4])
    gain = term.loss.constants(slices)[1]["gain"]
    torch.testing.assert_close(gain, torch.zeros(2, 4), atol=1e-4, rtol=0.0)


def test_words_for_none():
    names = ("baseline", "bound", "capacity", "gamma")
    words = [f"hterm.{name}=none" for name in names]
    for default in ("sac", "ppo"):
        term = parse_training(words, default=default).config.hterm
        assert term == HTermConfig(bound=None)
    words = ["hterm.form=ratio", "hterm.baseline=value", "hterm.bound=0.5", "hterm.capacity=9"]
    term = parse_training(words, default="ppo").config.hterm
    assert term == HTermConfig(form="ratio", baseline="value", bound=0.5, capacity=9)


def test_the_discount_is_the_algorithms_where_nothing_is_said():
    term = learner(PPOConfig(num_cells=(8,), gamma=0.9, hterm=HTermConfig())).add_ons["hterm"].term
    assert term.store.gamma == term.loss.gamma == 0.9


@pytest.mark.parametrize("name", WITH_ACTOR)
def test_the_term_moves_the_base_losss_own_actor_and_brings_no_parameters(name):
    env = "CartPole-v1" if name == "discrete_sac" else "Pendulum-v1"
    plain, own = (
        learner(ALGORITHMS[name](num_cells=(8,), hterm=h), env) for h in (None, HTermConfig())
    )
    assert "hterm" not in plain.add_ons
    assert len(own._params) == len(plain._params)
    actor = [id(param) for param in own.loss.actor_network_params.parameters()]
    assert [id(param) for param in own.add_ons["hterm"].term.loss.parameters()] == actor
    assert {*actor} <= {id(param) for param in own._params}
    assert own.loss.state_dict().keys() == plain.loss.state_dict().keys()
    assert own.metric_names == [
        *plain.metric_names[: len(own.metric_names) - 1],
        "loss_hamiltonian",
    ]


def test_networks_start_as_they_would_without_it_and_draws_differ_from_run_to_run():
    found = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        term = learner(SACConfig(num_cells=(8,), hterm=HTermConfig())).add_ons["hterm"].term
        found.append((torch.rand(1).item(), term.store._generator.initial_seed()))
    torch.manual_seed(1)
    learner(SACConfig(num_cells=(8,)))
    assert found[0] == found[1] != found[2]
    assert torch.rand(1).item() == found[0][0]


def test_ranks_share_slices_store_and_age():
    share = SACConfig(batch_size=256, hterm=HTermConfig()).share(3).hterm
    assert share == HTermConfig(slices=6, capacity=None, max_age=683)
    given = HTermConfig(capacity=256, best=0.5, bound=0.3, form="log", baseline="zero")
    share = SACConfig(batch_size=256, hterm=given).share(3).hterm
    assert share == replace(given, slices=6, capacity=86, max_age=683)
    share = PPOConfig(hterm=HTermConfig(capacity=1, baseline="value")).share(2).hterm
    assert share == HTermConfig(slices=8, capacity=1, max_age=1024, baseline="value")
    assert PPOConfig(hterm=HTermConfig(slices=1)).share(2).hterm.slices == 1
    assert PPOConfig().share(2).hterm is None


def test_a_loss_without_an_actor_is_named():
    parts = ALGORITHMS["dqn"](num_cells=(8,)).build(make_env("CartPole-v1"))
    assert isinstance(parts.loss, DQNLoss)
    with pytest.raises(TypeError, match=r"must have an `actor_network`, got `DQNLoss`"):
        HTermConfig().build(parts.loss, gamma=0.9, baseline="mean", prepare=None)
