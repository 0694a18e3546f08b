"""Teams of VMAS: rows, ends, seeds, groups and arguments."""

from __future__ import annotations

import copy

import pytest
import torch
from torchrl.envs import check_env_specs
from torchrl.envs.libs.vmas import VmasEnv
from vmas.scenarios.balance import Scenario as Balance
from vmas.simulator.environment import Environment

from torchrl_elegant import make_env
from torchrl_elegant.collectors import SyncCollector
from torchrl_elegant.envs.teams import VmasScenarios, VmasTeams, vmas
from torchrl_elegant.envs.teams.merged_reset import ROW_BY_ROW, MergedReset
from torchrl_elegant.envs.teams.vmas import scenario_names

ROWS = torch.tensor([True, False, False, True, False, True, False])


def rolled(env, steps, seed=0):
    """Steps with the same random actions, whatever was drawn before."""
    draws = torch.Generator().manual_seed(seed)

    def act(tensordict):
        for group in env.groups:
            shape = env.full_action_spec[group, "action"].shape
            tensordict.set((group, "action"), torch.rand(shape, generator=draws) * 4 - 2)
        return tensordict

    return env.rollout(steps, act, break_when_any_done=False)


def outcomes(env, actions, state):
    """Outcomes of a simulator of VMAS, which begins each action in one random state."""
    found = []
    for action in actions:
        Environment.vmas_random_state[:] = state
        seen, rewards, ended, _, _ = env.step([each.clone() for each in action])
        found += [*seen, *rewards, ended]
    return found


def partly_reset(name, seed):
    """Outcomes after a merged reset, after one of all rows, and without one."""
    env = VmasTeams(name, num_envs=len(ROWS), seed=seed)._vmas
    state = list(Environment.vmas_random_state)
    actions = [env.get_random_actions() for _ in range(4)]
    outcomes(env, actions[:2], state)
    merged, whole = copy.deepcopy(env), copy.deepcopy(env)
    for reset in (whole.reset, lambda: MergedReset(merged)(ROWS)):
        Environment.vmas_random_state[:] = state
        reset()
    return [outcomes(each, actions[2:], state) for each in (merged, whole, env)]


def is_exact(name, seed):
    """True if rows that are reset are as after a reset of all, and others as without one."""
    return all(
        torch.equal(merged[ROWS], whole[ROWS]) and torch.equal(merged[~ROWS], before[~ROWS])
        for merged, whole, before in zip(*partly_reset(name, seed), strict=True)
    )


@pytest.mark.parametrize("name", sorted(set(scenario_names()) - ROW_BY_ROW))
def test_a_merged_reset_is_one_of_all_rows_for_some_and_none_for_others(name):
    # Goals that all rows share are chosen among two or three, and may stay by chance.
    assert all(is_exact(name, seed) for seed in range(4 if name.startswith("simple") else 1))


@pytest.mark.parametrize("name", sorted(set(scenario_names()) - ROW_BY_ROW))
def test_a_second_merged_reset_is_as_exact_as_the_first(name):
    """The first comes before any step: what a scenario holds from then on is found as well."""
    env = VmasTeams(name, num_envs=len(ROWS), seed=0)._vmas
    state = list(Environment.vmas_random_state)
    actions = [env.get_random_actions() for _ in range(4)]
    reset = MergedReset(env)
    reset(~ROWS)
    outcomes(env, actions[:2], state)
    (merged, reset), before = copy.deepcopy((env, reset)), copy.deepcopy(env)
    reset(ROWS)
    found, others = (outcomes(each, actions[2:], state) for each in (merged, before))
    assert all(
        torch.equal(one[~ROWS], other[~ROWS]) for one, other in zip(found, others, strict=True)
    )


class Renaming:
    """Simulator, and its own scenario, which after its first reset keeps its state elsewhere."""

    num_envs = len(ROWS)

    def __init__(self):
        self.scenario, self.steps = self, torch.ones(len(ROWS))
        self.state = {"first": torch.ones(len(ROWS))}

    def reset(self, return_observations):
        for name in self.state:
            self.state[name] = torch.zeros(len(ROWS))


def test_state_that_is_kept_elsewhere_is_found_though_there_is_as_much_of_it():
    env = Renaming()
    reset = MergedReset(env)
    reset(ROWS)
    assert torch.equal(env.state["first"], (~ROWS).float())
    env.state = {"second": torch.ones(len(ROWS))}
    reset(ROWS)
    assert torch.equal(env.state["second"], (~ROWS).float())


@pytest.mark.parametrize("name", sorted(ROW_BY_ROW))
def test_the_others_cannot_be_merged(name):
    assert not all(is_exact(name, seed) for seed in range(4))


@pytest.mark.parametrize("actions", ["continuous", "discrete"])
@pytest.mark.parametrize("name", ["balance", "simple_tag", "simple_world_comm", "football"])
def test_specs_hold(name, actions):
    check_env_specs(VmasTeams(name, num_envs=3, seed=0, actions=actions))


@pytest.mark.parametrize("name", ["navigation", "balance", "simple_tag"])
def test_observations_and_rewards_are_those_of_torchrl(name):
    ours = VmasTeams(name, num_envs=4, seed=3)
    theirs = VmasEnv(name, num_envs=4, seed=3)
    state = list(Environment.vmas_random_state)
    with torch.random.fork_rng():
        Environment.vmas_random_state[:] = state
        first = theirs.reset()
        ours._stream._state = state
        second = ours.reset()
        for _ in range(5):
            for group in ours.groups:
                action = torch.rand(ours.full_action_spec[group, "action"].shape) * 2 - 1
                low, high = ours._ranges[group]
                first.set((group, "action"), low + (action + 1) / 2 * (high - low))
                second.set((group, "action"), action)
            Environment.vmas_random_state[:] = state
            first = theirs.step(first)["next"]
            ours._stream._state = state
            second = ours.step(second)["next"]
            for group in ours.groups:
                for key in ("observation", "reward"):
                    torch.testing.assert_close(first[group, key], second[group, key])


def test_a_time_limit_is_a_truncation_and_an_end_is_not():
    env = VmasTeams("balance", num_envs=40, seed=0, max_steps=30, n_agents=3)
    rows = rolled(env, 30)["next"]
    ended = rows["terminated"].any(1).squeeze(-1)
    assert 0 < ended.sum() < 40, "some packages fall, and some do not"
    assert rows["truncated"][~ended, -1].all()
    assert torch.equal(rows["truncated"], rows["step_count"] >= 30)
    assert torch.equal(rows["done"], rows["terminated"] | rows["truncated"])


def test_a_time_limit_can_be_an_end():
    env = VmasTeams("navigation", num_envs=4, seed=0, max_steps=5, time_limit="terminated")
    rows = rolled(env, 5)["next"]
    assert rows["terminated"][:, -1].all()
    assert not rows["terminated"][:, :-1].any()
    assert not rows["truncated"].any()


@pytest.mark.parametrize("name", ["navigation", "sampling"])
def test_rows_begin_anew_alone_and_count_for_themselves(name):
    env = VmasTeams(name, num_envs=5, seed=0, max_steps=50)
    data = rolled(env, 4)[:, -1]["next"]
    mask = torch.tensor([0, 1, 0, 0, 1]).bool().unsqueeze(-1)
    begun = env.reset(data.clone().set("_reset", mask))
    assert begun["step_count"].view(-1).tolist() == [4, 0, 4, 4, 0]
    total = begun["agents", "episode_reward"]
    assert not total[mask.view(-1)].any()
    assert torch.equal(total[~mask.view(-1)], data["agents", "episode_reward"][~mask.view(-1)])
    seen = begun["agents", "observation"] == data["agents", "observation"]
    assert seen[~mask.view(-1)].all() or name == "sampling"
    assert not seen[mask.view(-1)].flatten(1).all(1).any()


def test_episode_rewards_add_up_for_each_agent():
    rows = rolled(VmasTeams("navigation", num_envs=3, seed=0), 6)["next", "agents"]
    torch.testing.assert_close(rows["reward"].cumsum(1), rows["episode_reward"])


def test_what_was_handed_out_stays_as_it_was():
    env = VmasTeams("navigation", num_envs=3, seed=0)
    data = env.reset()
    kept, copied = data, data.clone()
    for _ in range(3):
        data = env.step(data.update(env.full_action_spec.rand()))["next"].exclude("reward")
    env.reset()
    for key in copied.keys(True, True):
        if "action" not in key:
            assert torch.equal(kept[key], copied[key])


def test_seeds_give_the_same_episodes_whoever_else_draws():
    alone = rolled(VmasTeams("navigation", num_envs=3, seed=5), 3)
    env = VmasTeams("navigation", num_envs=3, seed=5)
    VmasTeams("navigation", num_envs=3, seed=6).rollout(4)
    Environment.vmas_random_state[:] = list(Environment.vmas_random_state)
    torch.manual_seed(9)
    other = rolled(env, 3)
    assert torch.equal(alone["agents", "observation"], other["agents", "observation"])
    env.set_seed(5)
    env.reset()
    different = rolled(VmasTeams("navigation", num_envs=3, seed=6), 3)
    assert not torch.equal(alone["agents", "observation"], different["agents", "observation"])


def test_the_random_streams_of_the_process_are_left_alone():
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    shared = Environment.vmas_random_state[0].clone()
    env = VmasTeams("navigation", num_envs=3, seed=5)
    env.step(env.reset().set(("agents", "action"), torch.zeros(3, 4, 2)))
    assert torch.equal(torch.rand(3), expected)
    assert torch.equal(shared, Environment.vmas_random_state[0])


def test_actions_beyond_their_bounds_are_the_nearest_within():
    outcomes = []
    for size in (1.0, 7.0):
        env = VmasTeams("balance", num_envs=2, seed=0, n_agents=3)
        data = env.reset().set(("agents", "action"), torch.full((2, 3, 2), size))
        outcomes.append(env.step(data)["next", "agents", "observation"])
    assert torch.equal(*outcomes)
    assert env.action_low.shape == (3, 2)
    assert (env.action_high > 0).all()


def test_a_group_whose_agents_differ_is_split():
    everybody = ["lead_adversary_0", "adversary_1", "adversary_2", "adversary_3"]
    groups = {"hunters": everybody, "prey": ["agent_0", "agent_1"]}
    env = VmasTeams("simple_world_comm", num_envs=2, seed=0, groups=groups)
    assert list(env.groups) == ["hunters_0", "hunters_1", "prey"]
    check_env_specs(env)


def test_agents_in_another_order_do_what_they_are_told():
    plain = VmasTeams("balance", num_envs=2, seed=0, n_agents=3)
    turned = VmasTeams(
        "balance",
        num_envs=2,
        seed=0,
        n_agents=3,
        groups={"b": ["agent_2"], "a": ["agent_1", "agent_0"]},
    )
    action = torch.linspace(-1, 1, 12).view(2, 3, 2)
    one = plain.step(plain.reset().set(("agents", "action"), action))["next"]
    data = turned.reset().set(("b", "action"), action[:, 2:])
    two = turned.step(data.set(("a", "action"), action[:, :2].flip(1)))["next"]
    assert torch.equal(one["agents", "observation"][:, 2:], two["b", "observation"])
    assert torch.equal(one["agents", "observation"][:, :2].flip(1), two["a", "observation"])


def test_discrete_choices_are_the_same_however_written():
    found = []
    for written in ("one_hot", "categorical"):
        env = VmasTeams("balance", num_envs=2, seed=0, actions="discrete", discrete_actions=written)
        choice = torch.arange(6).view(2, 3) % 9
        if written == "one_hot":
            choice = torch.nn.functional.one_hot(choice, 9)
        data = env.reset().set(("agents", "action"), choice)
        found.append(env.step(data)["next", "agents", "observation"])
    assert torch.equal(*found)


def test_a_scenario_of_ones_own_is_taken():
    class Own(Balance):
        def reward(self, agent):
            return super().reward(agent) * 0.0 + 4.0

    env = VmasTeams(Own(), num_envs=2, seed=0, max_steps=2)
    rows = env.rollout(6, break_when_any_done=False)
    assert rows["next", "agents", "reward"].eq(4.0).all()
    assert rows["next", "step_count"][0, :, 0].tolist() == [1, 2] * 3


def test_by_name():
    env = make_env("vmas/navigation", 3, seed=0, env_kwargs={"n_agents": 2, "max_steps": 7})
    assert env.batch_size == (3,)
    assert env.rollout(9)["next", "truncated"][:, -1].all()
    assert isinstance(env, VmasTeams)


class Wider(Balance):
    """Scenario that has an argument besides those of the one that it changes."""

    def make_world(self, batch_dim, device, **kwargs):
        self.wide = kwargs.pop("wide", 1.0)
        return super().make_world(batch_dim, device, **kwargs)


def test_a_scenario_of_ones_own_takes_arguments_of_the_one_that_it_changes():
    env = VmasTeams(Wider(), num_envs=2, seed=0, n_agents=2, wide=2.0)
    assert env.scenario.wide == 2.0
    assert len(env.groups["agents"]) == 2
    with pytest.raises(ValueError, match="`wdie` is no argument of the scenario; the nearest: "):
        VmasTeams(Wider(), num_envs=2, wdie=2.0)


def test_a_scenario_that_was_written_into_a_notebook_is_taken():
    space = {"__name__": "__main__", "Balance": Balance}
    exec("class Own(Balance): pass", space)
    assert VmasTeams(space["Own"](), num_envs=2, seed=0, n_agents=2).rollout(2).shape == (2, 2)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            {"scenario": "navigatoin"},
            "`scenario` must be one of VMAS, got `navigatoin`; .*navigation",
        ),
        ({"agents": 3}, "`agents` is no argument of the scenario; the nearest: .*n_agents"),
        ({"num_envs": 0}, "`num_envs` must be at least 1, got `0`"),
        ({"max_steps": 0}, "`max_steps` must be None or at least 1, got `0`"),
        ({"time_limit": "end"}, "`time_limit` must be 'truncated' or 'terminated', got `end`"),
        ({"actions": "both"}, "`actions` must be 'continuous' or 'discrete', got `both`"),
        (
            {"discrete_actions": "x"},
            "`discrete_actions` must be 'one_hot' or",
        ),
        ({"groups": {"a": ["agent_0"]}}, "`groups` must have each of the agents agent_0, agent_1"),
    ],
)
def test_mistakes_are_told(options, told):
    with pytest.raises(ValueError, match=told):
        VmasTeams(**{"scenario": "navigation", **options})


def test_an_unknown_name_tells_the_nearest():
    with pytest.raises(ValueError, match=r"`env` must be a known name .*vmas/navigation"):
        make_env("vmas/navigatoin", 2)


def test_another_device_is_refused():
    with pytest.raises(ValueError, match="`device` must be the cpu of this environment"):
        VmasTeams("navigation").to("cuda")


def test_without_vmas_its_names_are_refused_and_the_list_is_empty(monkeypatch):
    monkeypatch.setattr(vmas, "_is_installed", lambda: False)
    assert list(VmasScenarios()) == []
    with pytest.raises(ImportError, match=r"pip install torchrl_elegant\[vmas\]"):
        make_env("vmas/navigation")
    with pytest.raises(ImportError, match=r"pip install torchrl_elegant\[vmas\]"):
        VmasTeams("navigation")


def test_a_collector_fills_whole_batches_and_ends_episodes():
    env = VmasTeams("balance", num_envs=16, seed=0, max_steps=20, n_agents=3)
    batches = list(SyncCollector(env, None, frames_per_batch=16 * 30, total_frames=16 * 60))
    rows = torch.cat(batches, 1)
    assert rows.shape == (16, 60)
    begun = rows["step_count"].squeeze(-1) == 0
    assert torch.equal(begun[:, 1:], rows["next", "done"].squeeze(-1)[:, :-1])
    assert not rows["agents", "episode_reward"][begun].any()
