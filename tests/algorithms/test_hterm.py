"""The Hamiltonian term's group of options: what they are, and what is made of them."""

from __future__ import annotations

import pytest
import torch

from torchrl_elegant.algorithms import ALGORITHMS, HTermConfig, PPOConfig, SACConfig, TD3Config
from torchrl_elegant.envs import make_env
from torchrl_elegant.objectives import DQNLoss
from torchrl_elegant.trainers.command import train_command
from torchrl_elegant.trainers.learner import Learner

WITH_ACTOR = sorted(name for name, kind in ALGORITHMS.items() if kind.has_actor)
WITHOUT = sorted(set(ALGORITHMS) - set(WITH_ACTOR))
NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("name", "values"),
    [
        *((name, (0, -1)) for name in ("horizon", "slices", "period", "capacity", "max_age")),
        ("weight", (-0.1, NAN, INF)),
        ("form", ("ratios", None, "")),
        ("clip_epsilon", (0.0, 1.0, -0.2, NAN)),
        ("gamma", (-0.1, 1.1, NAN)),
        ("baseline", ("median", None, 0.0)),
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
        {"weight": 0.0, "gamma": 0.0, "sigma": 1e-6, "clip_epsilon": 0.999},
        {"gamma": 1.0, "form": "prob", "baseline": "none"},
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
    with pytest.raises(ValueError, match=r"`hterm` must be an HTermConfig or none, got `"):
        SACConfig(hterm=value)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["algorithm=dqn", "hterm=true"], "`hterm` must be false where there is no actor, got `tr"),
        (["algorithm=d3qn", "hterm.horizon=4"], "`hterm` must be false where there is no actor"),
        (["hterm.horizn=4"], "unknown option `hterm.horizn`: did you mean `hterm.horizon`?"),
        (["hterm.qqq=4"], "unknown option `hterm.qqq`: choose from hterm."),
        (["hterm.horizon=0"], "`hterm.horizon` must be at least 1, got `0`"),
        (["hterm.horizon=2.5"], "`hterm.horizon` must be an integer, got '2.5'"),
        (["hterm.weight=-1"], "`hterm.weight` must be 0 or more and finite, got `-1.0`"),
        (
            ["hterm.form=rato"],
            "`hterm.form` must be one of ratio, log, prob (did you mean `ratio`?), got 'rato'",
        ),
        (
            ["hterm.baseline=medan"],
            "`hterm.baseline` must be one of mean, none (did you mean `mean`?)",
        ),
        (["hterm=false", "hterm.horizon=4"], "`hterm.horizon` must not be given with hterm=false"),
        (["hterm=maybe"], "`hterm` must be true or false or none, got 'maybe'"),
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
    "form": "log",
    "clip_epsilon": 0.3,
    "gamma": 0.5,
    "baseline": "none",
    "slices": 5,
    "period": 7,
    "capacity": 11,
    "max_age": 13,
    "sigma": 0.2,
}


def test_every_option_reaches_loss_store_or_term():
    assert set(OPTIONS) == set(HTermConfig.__dataclass_fields__)
    assert all(value != getattr(HTermConfig(), name) for name, value in OPTIONS.items())
    term = learner(TD3Config(num_cells=(8,), hterm=HTermConfig(**OPTIONS))).hterm
    found = {}
    for holder in (term, term.store, term.loss):
        found |= {name: getattr(holder, name) for name in OPTIONS if hasattr(holder, name)}
    assert found == OPTIONS
    assert term.store.gamma == term.loss.gamma == 0.5


def test_the_discount_is_the_algorithms_where_nothing_is_said():
    term = learner(PPOConfig(num_cells=(8,), gamma=0.9, hterm=HTermConfig())).hterm
    assert term.store.gamma == term.loss.gamma == 0.9


@pytest.mark.parametrize("name", WITH_ACTOR)
def test_the_term_moves_the_base_losss_own_actor_and_brings_no_parameters(name):
    env = "CartPole-v1" if name == "discrete_sac" else "Pendulum-v1"
    plain, own = (
        learner(ALGORITHMS[name](num_cells=(8,), hterm=h), env) for h in (None, HTermConfig())
    )
    assert plain.hterm is None
    assert len(own._params) == len(plain._params)
    actor = [id(param) for param in own.loss.actor_network_params.parameters()]
    assert [id(param) for param in own.hterm.loss.parameters()] == actor
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
        term = learner(SACConfig(num_cells=(8,), hterm=HTermConfig())).hterm
        found.append((torch.rand(1).item(), term.store._generator.initial_seed()))
    torch.manual_seed(1)
    learner(SACConfig(num_cells=(8,)))
    assert found[0] == found[1] != found[2]
    assert torch.rand(1).item() == found[0][0]


def test_ranks_share_slices_store_and_age():
    share = SACConfig(batch_size=256, hterm=HTermConfig()).share(3).hterm
    assert (share.slices, share.capacity, share.max_age) == (6, 86, 2731)
    assert (share.weight, share.period, share.horizon) == (0.125, 8, 16)
    assert PPOConfig(hterm=HTermConfig(slices=1)).share(2).hterm.slices == 1
    assert PPOConfig().share(2).hterm is None


def test_a_loss_without_an_actor_is_named():
    parts = ALGORITHMS["dqn"](num_cells=(8,)).build(make_env("CartPole-v1"))
    assert isinstance(parts.loss, DQNLoss)
    with pytest.raises(TypeError, match=r"must have an `actor_network`, got `DQNLoss`"):
        HTermConfig().build(parts.loss, gamma=0.9, prepare=None)
