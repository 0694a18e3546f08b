"""Teams in the house: parts, runs, evaluation, files, and what is refused."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict

from torchrl_elegant import Policy, Trial, train
from torchrl_elegant.algorithms import (
    ALGORITHMS,
    MADDPGConfig,
    MAPPOConfig,
    MATD3Config,
    QMIXConfig,
    SACConfig,
    VDNConfig,
)
from torchrl_elegant.cli.training import train_command
from torchrl_elegant.collectors import SyncCollector
from torchrl_elegant.envs import EnvKeys, Outcome, make_env
from torchrl_elegant.runs.evaluate import evaluate
from torchrl_elegant.runs.exported.ensemble import EnsembleActor
from torchrl_elegant.trainers.evaluation import play_rows
from torchrl_elegant.trainers.learner import Learner
from torchrl_elegant.trainers.population.members import Members

SMALL = {"num_cells": (8,), "batch_size": 8, "warmup": 8}
RUN = {"total_frames": 64, "num_envs": 4, "threads": 1, "logger": "none", "progress": False}
SHORT = {"max_steps": 5}
TEAMS = sorted(name for name, config in ALGORITHMS.items() if config.teams)


def small(kind, **options):
    own = SMALL if kind.family == "off_policy" else {"num_cells": (8,), "batch_size": 8}
    return kind(**own, **options)


# How agents share parameters is the same code for all.
WAYS = [(name, {}) for name in TEAMS]
WAYS += [(name, {"agent_id": True}) for name in ("mappo", "qmix")]
WAYS += [(name, {"share_parameters": False}) for name in ("masac", "mappo", "qmix")]


@pytest.mark.parametrize(("name", "way"), WAYS)
def test_every_algorithm_trains_goes_on_and_is_evaluated(name, way):
    config = small(ALGORITHMS[name], **way)
    run = {"total_frames": 160, "num_envs": 4, "env_kwargs": SHORT, "frames_per_batch": 32}
    with Trial(config, "vmas/balance", **run) as trial:
        before = [param.clone() for param in trial.learner.loss.parameters()]
        trial.train(frames=64)
        moved = zip(before, trial.learner.loss.parameters(), strict=True)
        assert sum(not torch.equal(old, new) for old, new in moved) > len(before) / 2
        score, state = trial.evaluate(episodes=3), trial.state_dict()
        assert len(score.returns) == 3
    with Trial(config, "vmas/balance", **run) as again:
        again.load_state_dict(state)
        assert again.evaluate(episodes=1).returns
        again.train()
        assert again.ledger.frames == 160


def test_two_groups_learn_side_by_side_and_none_reaches_the_other():
    env = make_env("vmas/simple_tag", 4, seed=0, env_kwargs=SHORT)
    parts = small(MADDPGConfig, actor_lr=(0.5, 0.1)).assemble(env)
    rows = env.rollout(6, parts.policy, break_when_any_done=False).reshape(-1)
    reward = rows["next", "adversary", "reward"]
    terms = parts.loss(rows)
    (terms["loss_actor_adversary"] + terms["loss_value_adversary"]).backward()
    learned = {name for name, p in parts.loss.named_parameters() if p.grad is not None}
    assert learned
    assert all(".adversary." in name for name in learned)
    other = rows.clone().set(("next", "adversary", "reward"), reward + 1.0)
    changed = parts.loss(other)
    assert changed["loss_value_adversary"] != terms["loss_value_adversary"]
    torch.testing.assert_close(changed["loss_value_agent"], terms["loss_value_agent"])
    for ramp in parts.ramps:
        ramp.at(1.0)
    rates = [group["lr"] for group in parts.optimizer.param_groups]
    assert rates == [pytest.approx(0.1), 5e-4, pytest.approx(0.1), 5e-4]


def test_targets_of_all_groups_move():
    env = make_env("vmas/simple_tag", 4, seed=0, env_kwargs=SHORT)
    learner = Learner(small(MADDPGConfig).assemble(env))
    targets = [p.clone() for n, p in learner.loss.named_buffers() if "target_value" in n]
    assert targets
    for _ in range(2):
        learner.update(env.rollout(6, break_when_any_done=False).reshape(-1))
    now = [p for n, p in learner.loss.named_buffers() if "target_value" in n]
    assert all(not torch.equal(old, new) for old, new in zip(targets, now, strict=True))


def test_a_trial_keeps_its_own_discount_over_a_state_of_others():
    run = {"total_frames": 160, "num_envs": 4, "env_kwargs": SHORT}
    with Trial(small(MADDPGConfig, gamma=0.5), "vmas/simple_tag", **run) as other:
        state = other.state_dict()
    with Trial(small(MADDPGConfig, gamma=0.8), "vmas/simple_tag", **run) as trial:
        trial.adopt(state)
        gammas = [loss.value_estimator.gamma for loss in trial.learner.loss.losses.values()]
        assert [round(gamma.item(), 3) for gamma in gammas] == [0.8, 0.8]


def test_a_run_of_two_groups_is_stored_resumed_and_loaded(tmp_path):
    options = {**RUN, "env_kwargs": SHORT, "eval_episodes": 2}
    result = train(small(MATD3Config), "vmas/simple_tag", folder=str(tmp_path / "run"), **options)
    found = evaluate(result.folder, episodes=2)
    assert (found.lengths, set(found.groups)) == ((5, 5), {"adversary", "agent"})
    means = [sum(values) / 2 for values in found.groups.values()]
    assert found.return_mean == pytest.approx(sum(means) / 2)
    assert "return_adversary,return_agent" in (result.folder / "metrics.csv").read_text()
    words = [f"resume={result.folder}", "total_frames=160"]
    assert train_command(words, program="x", default="maddpg") == 0
    policy = Policy.load(result.folder / "policy.pt")
    seen = {"adversary": torch.zeros(3, 16), "agent": torch.zeros(1, 14)}
    acted = policy({name: {"observation": value} for name, value in seen.items()})
    assert acted["adversary", "action"].shape == (3, 2)
    assert acted["agent", "action"].shape == (1, 2)


def test_two_groups_learn_from_rollouts_and_share_what_ranks_gather():
    run = {**RUN, "env_kwargs": SHORT, "frames_per_batch": 40}
    with Trial(small(MAPPOConfig), "vmas/simple_tag", **run) as trial:
        loss, policy = trial.learner.loss, trial.learner.policy
        before = [param.clone() for param in policy.parameters()]
        trial.train()
        assert not any(map(torch.equal, before, policy.parameters()))
        gathered = []
        loss.connect(lambda values: gathered.append(values.shape) or [values])
        env = make_env("vmas/simple_tag", 4, seed=0, env_kwargs=SHORT)
        with torch.no_grad():
            loss.estimate(env.rollout(5, policy))
    assert gathered == [(4, 5, 3, 1), (4, 5, 1, 1)], "value targets of each group"


def test_actors_of_groups_are_called_without_a_tensordict():
    env = make_env("vmas/simple_tag", 4, seed=0, env_kwargs=SHORT)
    policy = small(MADDPGConfig).assemble(env).policy
    seen = env.reset()
    with torch.no_grad():
        policy.actors.adversary.noise.set_scale(0.0)
        policy.actors.agent.noise.set_scale(0.0)
        direct = policy.act(*(seen[key] for key in policy.in_keys))
        whole = policy(seen.clone())
    for key, value in zip(policy.out_keys, direct, strict=True):
        torch.testing.assert_close(value, whole[key])


def test_returns_are_means_over_agents_then_groups():
    env = make_env("vmas/simple_tag", 2, seed=0, env_kwargs=SHORT)
    outcome = Outcome.of(env)
    assert (set(outcome.rewards), outcome.done) == (
        {("adversary", "reward"), ("agent", "reward")},
        "done",
    )
    adversary, agent = torch.tensor([[[1.0], [2.0], [6.0]]]), torch.tensor([[[5.0]]])
    rewards = {"adversary": {"reward": adversary}, "agent": {"reward": agent}}
    assert outcome.reward(TensorDict(rewards, [1])).tolist() == [4.0]


def test_training_and_evaluation_agree_on_returns():
    env = make_env("vmas/balance", 3, seed=0, env_kwargs=SHORT)
    policy = small(MADDPGConfig).assemble(env).policy
    assert [each.length for each in play_rows(env, policy, [1, 1, 1])] == [5, 5, 5]
    with Trial(small(MADDPGConfig), "vmas/balance", env_kwargs=SHORT, **_plain(RUN)) as trial:
        trial.train()
        rewards = trial.store[:]["next", "agents", "reward"].mean((-2, -1))
        rewards = rewards.view(-1, 4, 4).transpose(1, 2).flatten(0, 1)  # of batch, env, step
        whole = rewards[: len(rewards) // 5 * 5].unflatten(0, (-1, 5)).sum(1)
        assert trial.source.train_return() == pytest.approx(whole.mean().item(), abs=1e-4)


def _plain(run):
    return {name: run[name] for name in ("total_frames", "num_envs")}


def test_keys_of_a_group_take_the_team_s_reward_where_it_has_none():
    env = make_env("vmas/balance", 2)
    keys = EnvKeys.of_group(env, ("agents", "action"))
    assert (keys.reward, keys.done) == (("agents", "reward"), "done")
    for key in env.reward_keys:
        env.reward_spec.rename_key_(key, "reward") if isinstance(key, str) else None
    with pytest.raises(ValueError, match="`env` must have a reward beside the action"):
        EnvKeys.of_group(make_env("vmas/simple_tag", 2), ("red", "action"))


def test_discrete_algorithms_have_the_scenarios_choices_by_themselves():
    run = {"env_kwargs": SHORT, **_plain(RUN)}
    with Trial(small(VDNConfig), "vmas/balance", **run) as trial:
        assert trial.run.env_kwargs == {"actions": "discrete", **SHORT}


def test_collectors_of_torchrl_take_the_parts():
    env = make_env("vmas/balance", 4, seed=0, env_kwargs={**SHORT, "actions": "discrete"})
    learner = Learner(small(QMIXConfig).assemble(env))
    for batch in SyncCollector(env, learner.policy, frames_per_batch=32, total_frames=64):
        assert "loss" in learner.update(batch.reshape(-1))


WRONG = [
    (MADDPGConfig(), "Pendulum-v1", {}, "`env` must have groups of agents"),
    (SACConfig(), "vmas/balance", {}, "`env` must have one agent"),
    (QMIXConfig(), "vmas/balance", {"actions": "continuous"}, "algorithms for continuous actions"),
    (
        MADDPGConfig(),
        "vmas/balance",
        {"actions": "discrete"},
        "for discrete actions: ippo, mappo, qmix",
    ),
    (MADDPGConfig(), "vmas/balanse", {}, "the nearest: vmas/balance"),
    (MADDPGConfig(), "vmas/balance", {"n_agent": 2}, "`n_agent` is no argument of the scenario"),
]


@pytest.mark.parametrize(("config", "env", "kwargs", "told"), WRONG)
def test_what_does_not_fit_is_told_in_one_line(config, env, kwargs, told):
    with pytest.raises(ValueError, match=told) as caught:
        Trial(config, env, env_kwargs=kwargs, total_frames=10_000)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"agent_id": True, "share_parameters": False}, "`agent_id` must be false"),
        ({"n_steps": 3}, "`n_steps` must stay 1 with maddpg"),
        ({"reward_scale": 2.0}, "`reward_scale` must stay 1.0 with maddpg"),
        ({"normalize_observation": True}, "`normalize_observation` must stay False with maddpg"),
        ({"critic_sees": "own", "others": "policy"}, "`others` must stay stored with critic_sees"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options, told):
    with pytest.raises(ValueError, match=told):
        MADDPGConfig(**options)


def test_one_rate_follows_the_divergence_of_all_groups():
    env = make_env("vmas/simple_tag", 4, seed=0, env_kwargs=SHORT)
    parts = small(ALGORITHMS["mappo"], lr_kl=0.01).assemble(env)
    parts.kl_rate.follow(torch.tensor(1.0))
    rates = [float(group["lr"]) for group in parts.optimizer.param_groups]
    assert rates == [pytest.approx(5e-4 / 1.5)] * 2


def test_rows_of_several_steps_are_discounted_by_their_length():
    env = make_env("vmas/balance", 4, seed=0, env_kwargs=SHORT)
    loss = small(MADDPGConfig).assemble(env).loss
    rows = env.rollout(2).reshape(-1)
    one = loss._target_value(rows, torch.ones(len(rows), 3))
    rows["steps_to_next_obs"] = torch.full((len(rows), 1), 2)
    two = loss._target_value(rows, torch.ones(len(rows), 3))
    alive = ~rows["next", "terminated"].squeeze(-1)
    torch.testing.assert_close((one - two)[alive], torch.full((len(rows), 3), 0.09)[alive])


def test_policies_of_teams_make_no_ensemble_and_no_vectorized_population():
    env = make_env("vmas/balance", 2, seed=0, env_kwargs=SHORT)
    config = small(MADDPGConfig)
    assert not EnsembleActor.takes(config.assemble(env).policy)
    with pytest.raises(ValueError, match="`algorithm` must be one for a single agent"):
        Members.require_alike([config, config])
