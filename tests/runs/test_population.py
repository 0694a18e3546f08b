"""A vectorized population: equal to its members alone, copied, stored, evaluated, refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from population_cases import differences

from torchrl_elegant.algorithms import ModSACConfig, PPOConfig, SACConfig
from torchrl_elegant.config.text import UsageError
from torchrl_elegant.runs.population import VectorizedPopulation
from torchrl_elegant.runs.trial import Trial

RUN = {"num_envs": 4, "frames_per_batch": 64, "total_frames": 6400}
PPO = PPOConfig(num_cells=(8,), batch_size=16, epochs=2, compile=False)


def population_of(*configs, env="elegant/chasing", **options):
    return VectorizedPopulation(list(configs), env, **{**RUN, **options})


def test_members_train_and_are_evaluated():
    short = {"env_kwargs": {"max_episode_steps": 16}}
    with population_of(PPO, replace(PPO, lr=1e-2), env="Pendulum-v1", **short) as made:
        made.train(frames=64)
        assert [trial.ledger.frames for trial in made.trials] == [64, 64]
        first, second = made.returns
        assert first != second
        found = made.evaluate(episodes=3)
        assert [len(each.returns) for each in found] == [3, 3]
        assert found[0].return_mean < 0


def test_a_member_goes_on_as_a_trial():
    with population_of(PPO, PPO) as made, Trial(PPO, "elegant/chasing", seed=1, **RUN) as alone:
        made.train(frames=64)
        alone.load_state_dict(made.state(1))
        assert alone.ledger.frames == 64
        assert max(differences(alone.learner, made.trials[1].learner).values()) == 0
        alone.train(frames=64)


def test_a_stored_population_goes_on_as_it_would_have():
    configs = [PPO, replace(PPO, lr=1e-2, normalize_observation=False)]
    with population_of(*configs) as first:
        first.train(frames=128)
        stored = first.state_dict()
    ends = []
    for _ in range(2):
        with population_of(*configs) as other:
            other.load_state_dict(stored)
            other.train(frames=64)
            assert other.trials[1].ledger.frames == 192
            ends.append(other.state_dict())
    one, two = (end["members"][1]["learner"]["loss"] for end in ends)
    assert all(torch.equal(one[name], two[name]) for name in one)
    before = stored["members"][1]["learner"]["loss"]
    assert not torch.equal(
        one["actor_network_params.log_std"], before["actor_network_params.log_std"]
    )


@pytest.mark.parametrize("entropy_coeff", [0.0, 0.01])
def test_a_renewed_population_is_a_new_one(entropy_coeff):
    """Also where its loss has another term than the one that was recorded."""
    configs = [replace(PPO, lr=1e-2, entropy_coeff=entropy_coeff), replace(PPO, gamma=0.9)]
    ends = []
    with population_of(PPO, PPO) as used, population_of(*configs, seeds=[7, 8]) as new:
        used.train(frames=64)
        stored = used.state(1)
        used.train(frames=64)
        used.renew(configs, seeds=[7, 8])
        for one in (used, new):
            one.load(0, stored)
            one.trials[0].reseed()
            one.train(frames=64)
            ends.append(([one.state(member) for member in (0, 1)], one.evaluate(2), one.returns))
    assert ends[0][1:] == ends[1][1:]
    for left, right in zip(*(states for states, _, _ in ends), strict=True):
        pairs = left["learner"]["loss"], right["learner"]["loss"]
        assert all(torch.equal(pairs[0][name], pairs[1][name]) for name in pairs[0])
        assert torch.equal(left["random"]["torch_cpu"], right["random"]["torch_cpu"])


def test_a_renewed_population_keeps_what_its_members_share():
    with population_of(PPO, PPO) as made:
        with pytest.raises(UsageError, match="`loss_function` must be the same"):
            made.renew([replace(PPO, loss_function="l1")] * 2)
        with pytest.raises(ValueError, match="`configs` must be 2"):
            made.renew([PPO])


def test_sac_members_have_buffers_of_their_own():
    config = SACConfig(num_cells=(8,), batch_size=16, warmup=32, compile=False)
    configs = [config, replace(config, alpha=0.1, actor_lr=1e-2)]
    with population_of(*configs, frames_per_batch=16) as made:
        made.train(frames=64)
        made.copy_rows(0, 1)
        one, two = (trial.learner for trial in made.trials)
        different = {name for name, value in differences(one, two).items() if value}
        assert different == {"loss.alpha_init"}  # what alpha is now, was learned
        made.train(frames=16)
        assert differences(one, two)["loss.log_alpha"] > 0
        assert [trial.ledger.updates for trial in made.trials] == [48, 48]
        assert len(made.evaluate(episodes=1)) == 2


def test_a_copied_row_keeps_its_own_options():
    with population_of(PPO, replace(PPO, lr=1e-2, gamma=0.9, clip_epsilon=0.1)) as made:
        made.train(frames=64)
        made.copy_rows(0, 1)
        one, two = (trial.learner for trial in made.trials)
        different = {name for name, value in differences(one, two).items() if value}
        assert different == {"loss.clip_epsilon", "loss._value_estimator.gamma"}
        moments = [learner.optimizer.state_dict()["state"][3]["exp_avg"] for learner in (one, two)]
        assert torch.equal(*moments)
        made.train(frames=64)
        assert differences(one, two)["policy.log_std"] > 0


def test_a_copied_row_can_have_new_options():
    configs = [replace(PPO, normalize_observation=True, lr=lr) for lr in (1e-3, 1e-2)]
    with population_of(*configs) as made:
        made.train(frames=64)
        explored = replace(configs[1], lr=5e-2, entropy_coeff=0.1)
        made.copy_rows(0, 1, config=explored)
        one, two = (trial.learner for trial in made.trials)
        assert two.optimizer.param_groups[0]["lr"] == 5e-2
        different = {name for name, value in differences(one, two).items() if value}
        assert different == {"loss.entropy_coeff"}
        assert two.ledger.frames == 64
        before = two.policy.actor.log_std.clone()
        made.train(frames=64)
        # Eight steps of Adam, each as long as the new rate at most.
        assert 0.1 < (two.policy.actor.log_std - before).abs().max() <= 8 * 5e-2 + 1e-4


def test_a_member_that_diverges_harms_no_other():
    with population_of(PPO, PPO) as made, population_of(PPO, PPO) as healthy:
        for one in (made, healthy):
            one.train(frames=64)
        with torch.no_grad():
            next(made.trials[0].learner.loss.parameters()).fill_(float("nan"))
        made.members.look_after()
        for one in (made, healthy):
            one.train(frames=64)
        with pytest.raises(FloatingPointError, match="member 0 is not finite"):
            made.require_finite(0)
        made.require_finite(1)
        found = differences(made.trials[1].learner, healthy.trials[1].learner)
        assert all(value < 1e-6 for value in found.values())


@pytest.mark.parametrize(
    ("configs", "options", "said"),
    [
        ([PPO, replace(PPO, num_cells=(16,))], {}, "`num_cells` must be the same for all members"),
        ([PPO, replace(PPO, epochs=3)], {}, "`epochs` must be the same for all members"),
        ([PPO, ModSACConfig()], {}, "`configs` must be of one algorithm"),
        ([replace(PPO, target_kl=0.1)], {}, "`target_kl` must be none"),
        ([replace(PPO, networks={"critic": torch.nn.Linear(6, 1)})], {}, "`networks` must be None"),
        ([PPO], {"collector": "parallel"}, "`collector` must be sync"),
        ([PPO], {"seeds": [1, 2]}, "`seeds` must be as many as configs"),
        ([], {}, "`configs` must hold one configuration"),
    ],
)
def test_what_members_cannot_share_is_refused(configs, options, said):
    with pytest.raises(ValueError, match=said), population_of(*configs, **options) as made:
        made.train(frames=64)
