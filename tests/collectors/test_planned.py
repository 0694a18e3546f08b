"""A collector has the policy of a whole rollout where the policy offers one."""

from __future__ import annotations

import pytest
import torch
from torchrl.envs import ExplorationType

from torchrl_elegant.collectors import SyncCollector
from torchrl_elegant.envs import make_env
from torchrl_elegant.modules import CategoricalActor, GaussianActor, build_stochastic_actor


def collector_of(env_id, num_envs, policy=None, **options):
    env = make_env(env_id, num_envs, seed=0)
    policy = build_stochastic_actor(env, num_cells=(8,)) if policy is None else policy
    return SyncCollector(
        env, policy, frames_per_batch=24, total_frames=-1, track_traj_ids=False, **options
    )


def forbid(policy, *names):
    for name in names:
        setattr(policy, name, None)


@pytest.mark.parametrize("num_envs", [None, 1, 3])
@pytest.mark.parametrize("env_id", ["Pendulum-v1", "CartPole-v1"])
def test_rollouts_hold_the_policy_s_actions_at_what_it_saw(env_id, num_envs):
    torch.manual_seed(0)
    collector = collector_of(env_id, num_envs)
    policy = collector.policy
    act, policy.act = policy.act, None
    collector._fast._act = None
    batches = [next(iter(collector)) for _ in range(2)]
    policy.act = act
    for batch in batches:
        assert batch.shape == ((24,) if num_envs is None else (num_envs, 24 // num_envs))
        expected = policy.get_dist(batch).log_prob(batch["action"])
        torch.testing.assert_close(batch["action_log_prob"], expected)
    assert not torch.equal(batches[0]["action"], batches[1]["action"])
    collector.shutdown()


def test_new_weights_and_a_new_spread_count_from_the_next_rollout_on():
    collector = collector_of("Pendulum-v1", 2)
    batches, policy = iter(collector), collector.policy
    next(batches)
    with torch.no_grad():
        for layer in policy.net.linears():
            layer.weight.zero_()
            layer.bias.fill_(7.0)
        policy.log_std.fill_(-3.0)
    batch = next(batches)
    action = batch["action"]
    torch.testing.assert_close(action, torch.full_like(action, 7.0), atol=0.3, rtol=0)
    expected = policy.get_dist(batch).log_prob(action)
    torch.testing.assert_close(batch["action_log_prob"], expected, atol=1e-4, rtol=0)
    collector.shutdown()


class Louder(GaussianActor):
    def head(self, observation):
        return super().head(observation)._replace(loc=torch.full((2, 1), 5.0))


class Stubborn(CategoricalActor):
    def act(self, observation):
        choice = torch.tensor([[0, 1], [0, 1]])
        return choice, torch.zeros(2)


def test_a_subclass_that_acts_otherwise_is_asked_at_every_step():
    louder = Louder(observation={"observation": (3,)}, action_shape=(1,), log_std=-9.0)
    batch = next(iter(collector_of("Pendulum-v1", 2, louder)))
    torch.testing.assert_close(batch["action"], torch.full((2, 12, 1), 5.0), atol=0.01, rtol=0)
    stubborn = Stubborn(observation={"observation": (4,)}, choices=2)
    batch = next(iter(collector_of("CartPole-v1", 2, stubborn)))
    assert batch["action"][..., 1].all()
    assert (batch["action_log_prob"] == 0).all()


def test_the_mode_is_taken_where_it_is_asked_for():
    collector = collector_of("Pendulum-v1", 2, exploration_type=ExplorationType.DETERMINISTIC)
    batch = next(iter(collector))
    loc = collector.policy.head([batch["observation"]]).loc
    torch.testing.assert_close(batch["action"], loc)
    collector.shutdown()


def test_random_frames_come_first_and_then_the_policy_s():
    collector = collector_of("Pendulum-v1", 2, init_random_frames=24)
    with torch.no_grad():
        for layer in collector.policy.net.linears():
            layer.weight.zero_()
            layer.bias.fill_(0.5)
        collector.policy.log_std.fill_(-9.0)
    batches = iter(collector)
    assert next(batches)["action"].std() > 0.3
    assert next(batches)["action"].std() < 0.01
    collector.shutdown()
