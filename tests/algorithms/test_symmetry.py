"""Mirror symmetry in on-policy algorithms, by hand."""

from __future__ import annotations

import pytest
import torch
from masked_toys import Doors
from tensordict import TensorDict

from torchrl_elegant import PPOConfig, SymmetryConfig, Trial
from torchrl_elegant.algorithms.symmetry import Mirror
from torchrl_elegant.envs import make_env
from torchrl_elegant.trainers.rollout_learner import RolloutLearner

# A pendulum's (cos, sin, speed) and torque, seen in a mirror.
PENDULUM = {"observation": (1, -2, -3), "action": (-1,)}


def learner(**options) -> RolloutLearner:
    symmetry = SymmetryConfig(**{**PENDULUM, **options})
    config = PPOConfig(num_cells=(8,), symmetry=symmetry, normalize_advantage=False)
    return RolloutLearner(config.assemble(make_env("Pendulum-v1", 2, seed=0)))


def rollout(learner, steps=3):
    return make_env("Pendulum-v1", 2, seed=0).rollout(steps, learner.policy).detach()


def test_a_mirror_image_swaps_and_signs_across_entries():
    mirror = Mirror({"left": (2,), ("agent", "right"): (2,)}, (3, -4, 1, -2))
    rows = TensorDict({"left": torch.tensor([[1.0, 2.0]])}, [1])
    rows["agent", "right"] = torch.tensor([[3.0, 4.0]])
    mirror.write(rows)
    assert rows["left"].tolist() == [[3.0, -4.0]]
    assert rows["agent", "right"].tolist() == [[1.0, -2.0]]
    mirror.write(rows)
    assert rows["left"].tolist() == [[1.0, 2.0]]


def test_rows_are_followed_by_their_mirror_images():
    made = learner()
    collected = rollout(made)
    kept = collected.clone()
    rows = made.rows(collected)
    assert (collected == kept).all()
    first, second = rows[:6], rows[6:]
    sign = torch.tensor([1.0, -1.0, -1.0])
    torch.testing.assert_close(second["observation"], first["observation"] * sign)
    torch.testing.assert_close(second["action"], -first["action"])
    assert torch.equal(second["action_log_prob"], first["action_log_prob"])
    # The critic sees the image: value targets are those of images, with the same rewards.
    value = made.loss.critic_network.values
    last = kept["next", "observation"][:, -1] * sign
    target = kept["next", "reward"][:, -1] + 0.99 * value([last])
    torch.testing.assert_close(second["value_target"].view(2, 3, 1)[:, -1], target)


def test_reports_and_distances_are_of_what_was_collected():
    made = learner()
    rows = made.rows(rollout(made))
    assert made._collected(rows).shape == (6,)
    assert made._rollout_loss.divergence(made._collected(rows)).abs() < 1e-6
    assert made._rollout_loss.divergence(rows).abs() > 1e-6


def test_scales_of_observations_are_symmetric():
    config = PPOConfig(
        num_cells=(8,), normalize_observation=True, symmetry=SymmetryConfig(**PENDULUM)
    )
    made = RolloutLearner(config.assemble(make_env("Pendulum-v1", 2, seed=0)))
    made.rows(rollout(made, 8))
    mean, _ = made.add_ons["scaling"].norm.scales("observation")
    assert mean[0] != 0.0
    assert mean[1:].abs().max() < 1e-6


def test_the_mirror_loss_by_hand_and_whom_it_reaches():
    made = learner(augment=False, weight=0.5)
    rows = made.rows(rollout(made))
    assert rows.shape == (6,)
    actor = made.loss.actor_network
    seen = rows["observation"]
    image = seen * torch.tensor([1.0, -1.0, -1.0])
    params = list(actor.net.parameters())
    loss = 0.5 * (actor.output([image]) + actor.output([seen]).detach()).square().mean()
    wanted = torch.autograd.grad(loss, params)
    terms = made.add_ons["symmetry"].backward(rows, actor_updated=True)
    torch.testing.assert_close(terms["loss_symmetry"], loss.detach())
    for param, grad in zip(params, wanted, strict=True):
        torch.testing.assert_close(param.grad, grad)
    reached = {name for name, p in made.loss.named_parameters() if p.grad is not None}
    assert all(name.startswith("actor_network_params.net") for name in reached)


def test_a_policy_becomes_symmetric():
    config = PPOConfig(
        num_cells=(16,), batch_size=64, symmetry=SymmetryConfig(**PENDULUM, weight=10.0), lr=1e-2
    )
    with Trial(config, "Pendulum-v1", num_envs=4, total_frames=768, frames_per_batch=256) as trial:
        actor, seen = trial.learner.loss.actor_network, torch.randn(64, 3)
        image = seen * torch.tensor([1.0, -1.0, -1.0])

        def apart():
            with torch.no_grad():
                return (actor.output([seen]) + actor.output([image])).square().mean().item()

        with torch.no_grad():
            actor.net.layers[-1].bias.fill_(0.5)
        before = apart()
        trial.train(frames=768)
        assert apart() < 0.2 * before


def test_asymmetric_observations_have_two_mirrors():
    config = PPOConfig(
        num_cells=(8,),
        actor_keys=("observation",),
        critic_keys=("observation", "step_count"),
        symmetry=SymmetryConfig(observation=(2, 1, 4, 3, 6, 5), action=(2, 1), state=(-1,)),
    )
    env = make_env("elegant/chasing", 2, seed=0)
    symmetry = config.assemble(env).add_ons[0]
    assert [mirror.keys for mirror in symmetry._mirrors] == [
        ["action"],
        ["observation"],
        ["step_count"],
    ]
    rows, images = symmetry.show_rollout(env.rollout(3)).unbind(0)
    for row, image in ((rows, images), (rows["next"], images["next"])):
        # An entry that both read is mirrored once.
        assert torch.equal(image["observation"], row["observation"][..., [1, 0, 3, 2, 5, 4]])
        assert torch.equal(image["step_count"], -row["step_count"])
    assert torch.equal(images["action"], rows["action"].flip(-1))


def test_what_the_critic_alone_reads_needs_a_mirror():
    places = {"observation": (2, 1, 4, 3, 6, 5), "action": (2, 1)}
    config = PPOConfig(
        actor_keys=("observation",),
        critic_keys=("observation", "step_count"),
        symmetry=SymmetryConfig(**places),
    )
    told = r"`symmetry.state` must be given, as the critic alone reads \['step_count'\], got `None`"
    with pytest.raises(ValueError, match=told):
        config.assemble(make_env("elegant/chasing", 2, seed=0))


def test_masked_actions_have_no_symmetry():
    config = PPOConfig(symmetry=SymmetryConfig(observation=(1,), action=(2, 1)))
    with pytest.raises(ValueError, match="`symmetry` must be none where actions are masked"):
        config.assemble(make_env(Doors))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"observation": (1, -2)}, "`symmetry.observation` must have 3 places, for .*, got"),
        ({"action": (1, 2)}, "`symmetry.action` must have 1 places, for .*, got"),
        ({"state": (1, 2, 3)}, "`symmetry.state` must be none, as the critic reads no more than"),
    ],
)
def test_places_that_do_not_suit_the_environment(options, message):
    with pytest.raises(ValueError, match=message):
        learner(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"observation": (1, 1, 3)}, "`observation` must hold each of the places 1, 2, ... once"),
        ({"action": ()}, "`action` must be a list of at least one value"),
        ({"action": (0,)}, "`action` must hold each of the places"),
        ({"augment": False}, "`augment` must be true with weight=0, got `False`; set weight=0.1"),
        ({"weight": -1.0}, "`weight` must be"),
    ],
)
def test_impossible_symmetries(options, message):
    with pytest.raises(ValueError, match=message):
        SymmetryConfig(**{**PENDULUM, **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"recurrent": True}, "`recurrent` must be false with symmetry"),
        ({"normalize_observation": True}, "`normalize_observation` must be false with symmetry.au"),
    ],
)
def test_options_that_exclude_it(options, message):
    with pytest.raises(ValueError, match=message):
        PPOConfig(symmetry=SymmetryConfig(**PENDULUM, augment=False, weight=0.1), **options)
