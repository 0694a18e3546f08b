"""Stored actors: best and drawn actions are those of the distribution."""

from __future__ import annotations

import foreign_cases as cases
import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torch import nn
from torch.distributions import Categorical, Laplace
from torchrl.envs.utils import ExplorationType, set_exploration_type
from torchrl.modules import (
    IndependentNormal,
    OneHotCategorical,
    ProbabilisticActor,
    TanhDelta,
    TanhNormal,
)

from torchrl_elegant.config.text import UsageError
from torchrl_elegant.modules import GaussianNoise, NoisyActor, NormalizedActor, ObservationNorm
from torchrl_elegant.modules.foreign import ForeignActor
from torchrl_elegant.runs.exported.program_actor import program_actor
from torchrl_elegant.runs.policy import Policy

SEEN = {"observation": torch.zeros(2, 3)}
BOUNDS = {"low": torch.tensor([-2.0]), "high": torch.tensor([3.0])}


class Pair(nn.Linear):
    def forward(self, x):
        loc, scale = super().forward(x).chunk(2, -1)
        return loc, scale.exp()


def with_law(law, names, **kwargs):
    net = Pair(3, 2) if len(names) == 2 else nn.Linear(3, 1 if names == ["param"] else 4)
    return ProbabilisticActor(
        TensorDictModule(net, ["observation"], names),
        in_keys=names,
        distribution_class=law,
        distribution_kwargs=kwargs,
    )


LAWS = {
    "tanh normal": with_law(TanhNormal, ["loc", "scale"], **BOUNDS),
    "normal": with_law(IndependentNormal, ["loc", "scale"]),
    "tanh delta": with_law(TanhDelta, ["param"], **BOUNDS),
    "one hot": with_law(OneHotCategorical, ["logits"]),
    "categorical": with_law(Categorical, ["logits"]),
}


@pytest.mark.parametrize("name", LAWS)
def test_best_and_drawn_actions_are_those_of_torchrl(name):
    actor, stored = LAWS[name], program_actor(LAWS[name], SEEN)
    x = torch.randn(1, 3).expand(20_000, 3)
    found = []
    for each in (actor, stored):
        with torch.no_grad(), set_exploration_type(ExplorationType.DETERMINISTIC):
            best = each(TensorDict({"observation": x[:5]}, [5]))["action"]
        with torch.no_grad(), set_exploration_type(ExplorationType.RANDOM):
            drawn = each(TensorDict({"observation": x}, [len(x)]))["action"].double()
        found.append((best, drawn.mean(0), drawn.std(0)))
    torch.testing.assert_close(found[1][0], found[0][0], rtol=1e-5, atol=1e-5)
    for one, two in zip(found[0][1:], found[1][1:], strict=True):
        torch.testing.assert_close(one, two, rtol=0.1, atol=0.05)


def test_wrappers_are_seen_through():
    shapes = {"observation": (3,)}
    bounds = tuple(BOUNDS.values())
    inner = ForeignActor(LAWS["tanh delta"], shapes, writes=["action"], bounds=bounds)
    norm = ObservationNorm(shapes)
    norm.fit("observation", torch.full((3,), 5.0), torch.full((3,), 4.0))
    policy = NormalizedActor(NoisyActor(inner, GaussianNoise()), norm)
    x = torch.randn(4, 3) * 4
    with torch.no_grad(), set_exploration_type(ExplorationType.DETERMINISTIC):
        expected = inner.act((x - 5.0) / 2.0)
    torch.testing.assert_close(program_actor(policy, SEEN).act(x), expected, rtol=1e-4, atol=1e-4)


def test_an_unknown_distribution_gives_its_best_action_alone():
    class Sharp(Laplace):
        deterministic_sample = Laplace.mode

    stored = program_actor(with_law(Sharp, ["loc", "scale"]), SEEN)
    policy = Policy(stored, {})
    assert policy([0.0, 0.0, 0.0]).shape == (1,)
    with pytest.raises(UsageError, match=r"by its best action alone.*TanhNormal"):
        policy.sample([0.0, 0.0, 0.0])


def test_a_program_that_acts_otherwise_is_refused(monkeypatch):
    from torchrl_elegant.runs.exported import program_actor as module

    monkeypatch.setattr(module.Law, "_squashed", lambda self, value: value + 0.01)
    with pytest.raises(UsageError, match="its program acts differently on 1 rows"):
        program_actor(cases.stochastic(), SEEN)


def test_networks_stay_in_their_mode():
    actor = cases.stochastic()
    actor.train()
    program_actor(actor, SEEN)
    assert all(part.training for part in actor.modules())
