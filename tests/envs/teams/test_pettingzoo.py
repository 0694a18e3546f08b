"""Teams of PettingZoo: rows, ends, agents that end early, seeds and names."""

from __future__ import annotations

import pickle
import sys
import types
import warnings

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict
from mpe2 import simple_spread_v3
from pettingzoo import ParallelEnv
from torchrl.envs import check_env_specs
from torchrl.envs.libs.pettingzoo import PettingZooWrapper

from torchrl_elegant import make_env
from torchrl_elegant.collectors import SyncCollector
from torchrl_elegant.envs.make import find_factory
from torchrl_elegant.envs.teams import PettingZooTasks, PettingZooTeams, pettingzoo_tasks

SPREAD = "mpe2:simple_spread_v3"
NEVER = 99


class Toy(ParallelEnv):
    """Two agents see the time and their number, and earn their action; ends are told in advance."""

    def __init__(self, terminates=(NEVER, NEVER), cut=(4, 4), low=0.0):
        self.metadata = {"name": "toy"}
        self.possible_agents, self.agents = ["a_0", "a_1"], []
        self.terminates, self.cut, self.low = terminates, cut, low

    def observation_space(self, agent):
        return Box(-9, 9, (2,), np.float64)

    def action_space(self, agent):
        return Box(self.low, 4.0, (1,), np.float32)

    def seen(self):
        return {name: np.array([self.time, float(name[-1])]) for name in self.agents}

    def reset(self, seed=None, options=None):
        self.agents, self.time, self.seed = [*self.possible_agents], 0, seed
        return self.seen(), {name: {} for name in self.agents}

    def step(self, actions):
        assert actions.keys() == {*self.agents}
        self.time += 1
        place = {name: int(name[-1]) for name in self.agents}
        ended = {name: self.time == self.terminates[n] for name, n in place.items()}
        cut = {name: self.time == self.cut[n] for name, n in place.items()}
        seen, rewards = self.seen(), {name: float(action[0]) for name, action in actions.items()}
        self.agents = [name for name in self.agents if not ended[name] and not cut[name]]
        return seen, rewards, ended, cut, {name: {} for name in seen}


class Masked(Toy):
    def observation_space(self, agent):
        return Dict(observation=Box(0, 1, (2,)), action_mask=Box(0, 1, (3,), np.int8))


class MaskedByInfo(Toy):
    def reset(self, seed=None, options=None):
        seen, _ = super().reset(seed)
        return seen, {name: {"action_mask": np.ones(3)} for name in seen}


class Alone(Toy):
    def reset(self, seed=None, options=None):
        seen, infos = super().reset(seed)
        self.agents = ["a_1"]
        return {"a_1": seen["a_1"]}, infos


class Nobody(ParallelEnv):
    """Tells no agents in advance."""


def rolled(steps=6, action=0.0, **kwargs):
    options = {"num_envs": 2, "task": Toy, **kwargs}
    env = PettingZooTeams(**options)

    def act(tensordict):
        return tensordict.set(("a", "action"), torch.full((options["num_envs"], 2, 1), action))

    return env.rollout(steps, act, break_when_any_done=False)


def flags(rows):
    names = ("done", "terminated", "truncated")
    return {name: rows["next", name][0, :, 0].nonzero().view(-1).tolist() for name in names}


@pytest.mark.parametrize("written", ["one_hot", "categorical"])
@pytest.mark.parametrize(
    ("name", "kwargs"),
    [
        (SPREAD, {"continuous_actions": True}),
        ("mpe2:simple_tag_v3", {}),
        ("mpe2:simple_speaker_listener_v4", {"early_ends": "mask"}),
        ("classic/rps-v2", {"max_cycles": 2}),
    ],
)
def test_specs_hold(name, kwargs, written):
    env = make_env(f"pettingzoo/{name}", 2, seed=0, discrete_actions=written, env_kwargs=kwargs)
    check_env_specs(env)


@pytest.mark.parametrize("continuous", [True, False])
def test_observations_and_rewards_are_those_of_torchrl(continuous):
    words = {"continuous_actions": continuous, "max_cycles": 5}
    ours = PettingZooTeams(SPREAD, discrete_actions="categorical", seed=3, **words)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = PettingZooWrapper(simple_spread_v3.parallel_env(**words))
        first = theirs.reset(seed=ours._seeds[0])
    second = ours.reset()
    for _ in range(5):
        action = ours.full_action_spec.rand()["agents", "action"]
        first.set(("agent", "action"), (action[0] + 1) / 2 if continuous else action[0])
        first = theirs.step(first)["next"]
        second = ours.step(second.set(("agents", "action"), action))["next"]
        for key in ("observation", "reward"):
            torch.testing.assert_close(first["agent", key], second["agents", key][0])
        assert first["done"] == second["done"][0]
        assert first["truncated"] == second["truncated"][0]


def test_a_time_limit_is_a_truncation_and_an_end_is_not():
    assert flags(rolled()) == {"done": [3], "terminated": [], "truncated": [3]}
    ended = rolled(terminates=(2, 2))
    assert flags(ended) == {"done": [1, 3, 5], "terminated": [1, 3, 5], "truncated": []}


def test_of_agents_that_end_at_once_one_cut_off_is_enough():
    rows = rolled(terminates=(3, NEVER), cut=(NEVER, 3), steps=3)
    assert flags(rows) == {"done": [2], "terminated": [], "truncated": [2]}


def test_the_last_observation_is_the_true_one_and_counts_begin_anew():
    rows = rolled(steps=5, action=1.0)
    assert rows["next", "a", "observation"][0, :, 1].tolist() == [
        [1, 1], [2, 1], [3, 1], [4, 1], [1, 1]
    ]  # fmt: skip
    assert rows["a", "observation"][0, 4].tolist() == [[0, 0], [0, 1]]
    assert rows["next", "step_count"][0, :, 0].tolist() == [1, 2, 3, 4, 1]
    assert rows["next", "a", "episode_reward"][0, :, 1, 0].tolist() == [4, 8, 12, 16, 4]


def test_rows_begin_anew_alone():
    env = PettingZooTeams(Toy, num_envs=3)
    data = env.rollout(2)[:, -1]["next"]
    begun = env.reset(data.set("_reset", torch.tensor([[False], [True], [False]])))
    assert begun["step_count"].view(-1).tolist() == [2, 0, 2]
    assert begun["a", "observation"][:, 0, 0].tolist() == [2, 0, 2]
    assert begun["a", "episode_reward"][1].eq(0).all()


def test_actions_are_stretched_to_their_bounds_and_the_nearest_within():
    for action, earned in ((-1.0, 1.0), (0.0, 2.5), (1.0, 4.0), (7.0, 4.0)):
        rows = rolled(steps=1, action=action, low=1.0)
        assert rows["next", "a", "reward"].eq(earned).all()
    env = PettingZooTeams(Toy, low=1.0)
    assert env.action_low.tolist() == [[1.0], [1.0]]
    assert env.action_high.tolist() == [[4.0], [4.0]]


def test_an_agent_that_ends_early_is_refused_by_name():
    with pytest.raises(ValueError, match=r"`early_ends` must be 'mask' for toy, got `refuse`: its"):
        rolled(terminates=(2, NEVER))
    with pytest.raises(ValueError, match=r"agent a_0 ends while others go on, at step 2; set "):
        rolled(terminates=(2, NEVER))
    with pytest.raises(ValueError, match=r"agent a_0 is absent at the start while others go on"):
        rolled(task=Alone)


def test_an_agent_that_ends_early_may_be_masked():
    rows = rolled(terminates=(2, NEVER), early_ends="mask", action=1.0, steps=5)
    assert flags(rows) == {"done": [3], "terminated": [], "truncated": [3]}
    assert rows["a", "mask"][0, :, 0].tolist() == [True, True, False, False, True]
    assert rows["a", "mask"][0, :, 1].all()
    seen = rows["next", "a", "observation"][0, :, 0, 0]
    assert seen.tolist() == [1, 2, 0, 0, 1], "its own last observation, and zeros from then on"
    assert rows["next", "a", "reward"][0, :, 0, 0].tolist() == [4, 4, 0, 0, 4]
    assert rows["next", "a", "episode_reward"][0, :, 0, 0].tolist() == [4, 8, 8, 8, 4]


@pytest.mark.parametrize("lasts", ["terminated", "truncated"])
def test_masked_agents_leave_the_kind_of_end_to_the_last(lasts):
    ends = {"terminates": (2, 3), "cut": (NEVER, NEVER)}
    cut = {"terminates": (2, NEVER), "cut": (NEVER, 3)}
    rows = rolled(early_ends="mask", steps=3, **(ends if lasts == "terminated" else cut))
    assert flags(rows) == {"terminated": [], "truncated": [], "done": [2], lasts: [2]}


def test_seeds_give_the_same_episodes_and_copies_their_own():
    def first(seed):
        env = make_env(f"pettingzoo/{SPREAD}", 2, seed=seed, env_kwargs={"max_cycles": 2})
        torch.manual_seed(0)
        return env.rollout(5, break_when_any_done=False)["agents", "observation"]

    one, same, other = first(1), first(1), first(2)
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert not torch.equal(one[0], one[1])
    assert not torch.equal(one[:, 0], one[:, 2]), "the seed is that of the first episode alone"


def test_what_was_handed_out_stays_as_it_was():
    env = PettingZooTeams(Toy)
    data = env.reset()
    copied = data.clone()
    env.step(data.clone().update(env.full_action_spec.rand()))
    assert (data == copied).all()


def test_discrete_choices_are_the_same_however_written():
    found = []
    for written in ("one_hot", "categorical"):
        env = PettingZooTeams(SPREAD, seed=0, discrete_actions=written)
        choice = torch.tensor([[0, 1, 4]])
        if written == "one_hot":
            choice = torch.nn.functional.one_hot(choice, 5)
        data = env.reset().set(("agents", "action"), choice)
        found.append(env.step(data)["next", "agents", "observation"])
    assert torch.equal(*found)


def test_groups_can_be_named_and_split():
    team = {"all": ["adversary_0", "agent_0", "adversary_1", "adversary_2"]}
    env = PettingZooTeams("mpe2:simple_tag_v3", groups=team)
    assert env.groups == {
        "all_0": ["adversary_0", "adversary_1", "adversary_2"],
        "all_1": ["agent_0"],
    }
    with pytest.raises(ValueError, match="`groups` must have each of the agents a_0, a_1 once"):
        PettingZooTeams(Toy, groups={"a": ["a_0"]})


def test_a_collector_fills_whole_batches_and_ends_episodes():
    env = PettingZooTeams(Toy, num_envs=3)
    (rows,) = SyncCollector(env, None, frames_per_batch=30, total_frames=30)
    assert rows["next", "done"].sum() == 6
    assert not rows["step_count"][:, [0, 4, 8]].any()


def test_pictures_are_those_of_the_simulator():
    env = PettingZooTeams(SPREAD, seed=0, render_mode="rgb_array")
    env.reset()
    (picture,) = env.pictures([env.scene()])
    assert picture.shape == (700, 700, 3)
    assert picture.std() > 0


def test_names_are_found_and_pickled():
    factory = pickle.loads(pickle.dumps(find_factory("pettingzoo/classic/rps-v2", {})))
    assert list(factory().groups) == ["player"]


def test_a_callable_in_a_module_of_ones_own_is_found(monkeypatch):
    monkeypatch.setitem(sys.modules, "arena", types.SimpleNamespace(Toy=Toy))
    env = make_env("pettingzoo/arena:Toy", 2, env_kwargs={"cut": (2, 2)})
    assert env.name == "toy"
    assert env.rollout(9).shape == (2, 2)
    with pytest.raises(ValueError, match="`ends` is no argument of `arena:Toy`; the nearest: "):
        make_env("pettingzoo/arena:Toy", env_kwargs={"ends": 2})


def test_copies_are_closed_once():
    env = PettingZooTeams(Toy)
    env.close()
    env.close()
    assert not env.simulators


@pytest.mark.parametrize(
    ("name", "kwargs", "error", "told"),
    [
        ("mpe2:simple_spred_v3", {}, ValueError, "an environment of `mpe2` .*: simple_spread_v3"),
        ("simple_spread_v3", {}, ValueError, "nearest: pettingzoo/mpe2:simple_spread_v3"),
        (SPREAD, {"max_cycle": 3}, ValueError, "`max_cycle` is no argument of .*: max_cycles"),
        ("classic/rps-v2", {"x": 3}, ValueError, "`x` is no argument of `classic/rps-v2`; .*max_c"),
        ("mpe2:", {}, ValueError, "`task` must be '<module>:<environment>' or an id"),
        ("nowhere:arena_v0", {}, ValueError, "an importable module before the colon, got `nowhere"),
        ("pettingzoo.classic:connect_four_v3", {}, ValueError, "whose agents act in turn; choose"),
        ("json:loads", {"s": "1"}, TypeError, "`task` must make a pettingzoo.ParallelEnv, got `in"),
        (SPREAD, {"early_ends": "x"}, ValueError, "`early_ends` must be 'refuse' or 'mask', got `"),
    ],
)
def test_mistakes_are_told(name, kwargs, error, told):
    with pytest.raises(error, match=told):
        make_env(f"pettingzoo/{name}", env_kwargs=kwargs)


@pytest.mark.parametrize(
    ("task", "options", "told"),
    [
        (Toy, {"num_envs": 0}, "`num_envs` must be at least 1, got `0`"),
        (Toy, {"discrete_actions": "x"}, "`discrete_actions` must be 'one_hot' or 'categorical'"),
        (Masked, {}, "`task` must let agents choose any action, got toy, which tells an `action_m"),
        (MaskedByInfo, {}, "`task` must let agents choose any action"),
        (Nobody, {}, "`task` must tell its `possible_agents`, got `Nobody`"),
    ],
)
def test_environments_that_cannot_be_are_told(task, options, told):
    with pytest.raises(ValueError, match=told):
        PettingZooTeams(task, **options).reset()


def test_another_device_is_refused():
    with pytest.raises(ValueError, match="`device` must be the cpu of this environment"):
        PettingZooTeams(Toy).to("cuda")


@pytest.mark.parametrize("missing", ["pettingzoo", "mpe2"])
def test_a_missing_package_is_named_with_its_extra(monkeypatch, missing):
    there = pettingzoo_tasks._is_installed
    monkeypatch.setattr(
        pettingzoo_tasks, "_is_installed", lambda name: name != missing and there(name)
    )
    with pytest.raises(ImportError, match=r"pip install torchrl_elegant\[pettingzoo\]"):
        make_env(f"pettingzoo/{SPREAD}")
    assert SPREAD not in list(PettingZooTasks())


def test_a_missing_package_of_a_family_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pymunk", None)
    with pytest.raises(ImportError, match=r"pip install 'pettingzoo\[butterfly\]'"):
        PettingZooTeams("butterfly/pistonball-v6")
