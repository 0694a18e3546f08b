"""The deterministic actor, and what explores around it."""

from __future__ import annotations

import pickle
from copy import deepcopy

import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictSequential
from torchrl.data import Bounded
from torchrl.envs import GymEnv
from torchrl.envs.utils import ExplorationType, set_exploration_type
from torchrl.modules import AdditiveGaussianModule

from torchrl_elegant.modules import (
    DeterministicActor,
    GaussianNoise,
    MixedNoise,
    NoisyActor,
    OrnsteinUhlenbeckNoise,
    build_deterministic_actor,
    make_noise,
)

LOW, HIGH = [-2.0, -1.0], [1.0, 3.0]


def make_actor(observation=None, low=LOW, high=HIGH, **options):
    shapes = observation or {"observation": (3,)}
    return DeterministicActor(observation=shapes, low=low, high=high, num_cells=(8,), **options)


def state(*shape):
    return TensorDict({"observation": torch.randn(*shape, 3)}, shape)


@pytest.mark.parametrize("low_high", [(LOW, HIGH), ([-1.0, -1.0], [1.0, 1.0])])
def test_the_bounds_are_reached_and_not_left(low_high):
    actor = make_actor(low=low_high[0], high=low_high[1])
    for value, bound in ((-1e4, actor.low), (1e4, actor.high)):
        actor.net.layers[-1].bias.data.fill_(value)
        torch.testing.assert_close(actor.act(torch.zeros(3)), bound)
    actor.net.layers[-1].bias.data.fill_(0.0)
    middle = (actor.low + actor.high) / 2
    torch.testing.assert_close(
        actor.act(torch.randn(50, 3)), middle.expand(50, 2), atol=0.1, rtol=0
    )


@pytest.mark.parametrize("kind", [None, *ExplorationType])
def test_it_does_not_explore(kind):
    actor, data = make_actor(), state(5)
    with set_exploration_type(kind):
        assert torch.equal(actor(data.clone())["action"], actor(data.clone())["action"])


@pytest.mark.parametrize("shape", [(), (5,), (4, 5)])
def test_batch_dimensions(shape):
    assert make_actor()(state(*shape))["action"].shape == (*shape, 2)
    tall = make_actor(low=-torch.ones(2, 3), high=torch.full((2, 3), 2.0))
    assert tall.act(torch.randn(*shape, 3)).shape == (*shape, 2, 3)
    noisy = NoisyActor(tall, OrnsteinUhlenbeckNoise())
    assert noisy.act(torch.randn(*shape, 3)).shape == (*shape, 2, 3)


def test_several_observations():
    shapes = {("robot", "joints"): (2, 2), "goal": (3,)}
    actor = make_actor(shapes, action_key=("robot", "move"))
    data = TensorDict({"robot": {"joints": torch.randn(5, 2, 2)}, "goal": torch.randn(5, 3)}, [5])
    assert actor(data)["robot", "move"].shape == (5, 2)
    assert actor.in_keys == list(shapes)
    one = torch.cat([data["robot", "joints"].flatten(1), data["goal"]], -1)
    torch.testing.assert_close(
        actor.act(data["robot", "joints"], data["goal"]), actor._scale(torch.tanh(actor.net(one)))
    )


def test_built_again_from_its_spec():
    actor = make_actor({"observation": (3,)}, activation="tanh", action_key="move")
    noisy = NoisyActor(actor, OrnsteinUhlenbeckNoise(theta=0.25, sigma=0.5, dt=0.5))
    for each, build in ((actor, DeterministicActor), (noisy, NoisyActor.from_spec)):
        other = build(**each.spec_dict())
        other.load_state_dict(each.state_dict())
        assert other.spec_dict() == each.spec_dict()
        with set_exploration_type(ExplorationType.DETERMINISTIC):
            data = state(5)
            assert torch.equal(other(data.clone())["move"], each(data.clone())["move"])


def test_torchrls_exploration_module_follows_it():
    actor = make_actor()
    spec = Bounded(torch.tensor(LOW), torch.tensor(HIGH))
    policy = TensorDictSequential(actor, AdditiveGaussianModule(spec=spec, sigma_init=5.0))
    data = state(500)
    with set_exploration_type(ExplorationType.RANDOM):
        action = policy(data.clone())["action"]
    assert (action >= actor.low).all()
    assert (action <= actor.high).all()
    assert action.std() > 1.0
    with set_exploration_type(ExplorationType.DETERMINISTIC):
        assert torch.equal(policy(data.clone())["action"], actor(data.clone())["action"])


def test_an_environment_gives_the_sizes():
    env = GymEnv("Pendulum-v1")
    actor = build_deterministic_actor(env, num_cells=(8,))
    assert (actor.low.tolist(), actor.high.tolist()) == ([-2.0], [2.0])
    assert env.rollout(3, actor)["action"].shape == (3, 1)
    with pytest.raises(ValueError, match="a deterministic actor needs a continuous action space"):
        build_deterministic_actor(GymEnv("CartPole-v1"))


@pytest.mark.parametrize(("low", "high"), [([-1.0], [float("inf")]), ([1.0], [1.0])])
def test_bounds_must_be_bounds(low, high):
    with pytest.raises(ValueError, match="bounded action space"):
        make_actor(low=low, high=high)


# ---- noise --------------------------------------------------------------------------------------


def noises():
    mixed = MixedNoise(std=0.3, least=0.3)
    return [GaussianNoise(std=0.3), OrnsteinUhlenbeckNoise(sigma=0.3), mixed]


NOISES = pytest.mark.parametrize("noise", noises(), ids=["gaussian", "ou", "mixed"])


@NOISES
@pytest.mark.parametrize("kind", [None, *ExplorationType])
def test_noise_is_there_where_it_should_be(noise, kind):
    actor, data = make_actor(), state(200)
    noisy = NoisyActor(actor, deepcopy(noise))
    expected = actor(data.clone())["action"]
    with set_exploration_type(kind):
        action = noisy(data.clone())["action"]
    if kind in (None, ExplorationType.RANDOM):
        assert (action != expected).all()
        # Independent in every row and dimension, and about as large as it was told.
        difference = (action - expected) / 0.3
        assert difference.std().item() == pytest.approx(1.0, rel=0.15)
        assert torch.corrcoef(difference.T)[0, 1].abs() < 0.3
    else:
        assert torch.equal(action, expected)


@NOISES
def test_noise_stays_within_the_bounds(noise):
    noise = deepcopy(noise)
    noise.set_scale(9.0)
    for low, high in ((LOW, HIGH), ([-1.0, -1.0], [1.0, 1.0])):
        actor = make_actor(low=low, high=high)
        action = NoisyActor(actor, noise).act(torch.randn(200, 3))
        assert (action >= actor.low).all()
        assert (action <= actor.high).all()
        assert (action == actor.low).any()
        assert (action == actor.high).any()


def test_gaussian_noise_has_no_memory():
    noise, still = GaussianNoise(std=0.5), torch.zeros(20_000)
    first, second = noise(still), noise(still)
    assert first.std().item() == pytest.approx(0.5, rel=0.03)
    assert abs(torch.corrcoef(torch.stack([first, second]))[0, 1].item()) < 0.04


def test_ornstein_uhlenbeck_noise_step_by_step():
    noise = OrnsteinUhlenbeckNoise(theta=0.5, sigma=0.4, dt=0.25)
    action, x = torch.full((6, 2), 0.25), torch.zeros(6, 2)
    torch.manual_seed(3)
    draws = [torch.randn(6, 2) for _ in range(4)]
    torch.manual_seed(3)
    for draw in draws:
        x = x - 0.5 * x * 0.25 + 0.4 * 0.25**0.5 * draw
        torch.testing.assert_close(noise(action), action + x)


def test_ornstein_uhlenbeck_noise_settles():
    noise, still = OrnsteinUhlenbeckNoise(theta=0.15, sigma=0.2), torch.zeros(4_000, 1)
    path = torch.stack([noise(still) for _ in range(60)])
    # sigma^2 dt / (1 - (1 - theta dt)^2), and neighbours in time share 1 - theta dt of it
    assert path[-1].std().item() == pytest.approx(0.2 / (1 - 0.85**2) ** 0.5, rel=0.05)
    correlation = torch.corrcoef(torch.stack([path[-2, :, 0], path[-1, :, 0]]))[0, 1].item()
    assert correlation == pytest.approx(0.85, abs=0.03)


def test_ornstein_uhlenbeck_noise_starts_anew_where_told_only():
    noise, still = OrnsteinUhlenbeckNoise(), torch.zeros(3, 2)
    noise(still)
    before = noise(still)
    noise.restart(torch.tensor([False, True, False]))
    noise.set_scale(0.0)
    after = noise(still)
    torch.testing.assert_close(after[[0, 2]], 0.85 * before[[0, 2]])
    assert not after[1].any()
    noise.restart(torch.ones(7, dtype=torch.bool))  # rows of something else
    assert noise(still)[0].any()
    noise.restart(torch.tensor(True))  # an environment without a batch says one word for all
    assert not noise(still).any()


def test_mixed_noise_has_a_spread_of_each_row_until_its_episode_ends():
    torch.manual_seed(0)
    noise, still = MixedNoise(std=0.5, least=0.1), torch.zeros(64, 500)
    first, second = noise(still).std(-1), noise(still).std(-1)
    torch.testing.assert_close(first, second, rtol=0.25, atol=0.0)
    assert (first.min() > 0.09, first.max() < 0.55, first.std() > 0.05) == (True,) * 3
    ended = torch.arange(64) % 2 == 0
    noise.restart(ended)
    third = noise(still).std(-1)
    torch.testing.assert_close(third[~ended], first[~ended], rtol=0.3, atol=0.0)
    assert ((third - first)[ended].abs() > 0.1).sum() > 8
    noise.set_scale(0.1)  # no larger than the smallest
    torch.testing.assert_close(noise(still).std(-1), torch.full((64,), 0.1), rtol=0.2, atol=0.0)
    noise.restart(torch.ones(7, dtype=torch.bool))  # rows of something else
    assert make_noise(**noise.spec_dict()).least == 0.1
    assert set(noise.state_dict()) == {"scale"}
    assert pickle.loads(pickle.dumps(noise))._part is None
    with pytest.raises(ValueError, match=r"`least` must lie between 0 and std \(0.5\), got `1.0`"):
        MixedNoise(std=0.5, least=1.0)


@pytest.mark.parametrize("copy", [deepcopy, lambda noise: pickle.loads(pickle.dumps(noise))])
def test_a_copy_has_a_state_of_its_own(copy):
    noise, still = OrnsteinUhlenbeckNoise(), torch.zeros(3, 2)
    noise(still)
    other = copy(noise)
    other.set_scale(0.0)
    assert not other(still).any()
    noise.set_scale(0.0)
    assert noise(still).all()
    assert set(noise.state_dict()) == {"scale"}


def test_noise_made_in_inference_mode_goes_on_outside():
    noise, still = OrnsteinUhlenbeckNoise(), torch.zeros(3, 2)
    with torch.inference_mode():
        noise(still)
    noise.restart(torch.tensor([True, False, False]))
    action = noise(torch.zeros(3, 2, requires_grad=True) * 1.0)
    action.sum().backward()
    with torch.inference_mode():
        noise(still)


def test_evaluation_leaves_the_state_alone():
    noisy = NoisyActor(make_actor(), OrnsteinUhlenbeckNoise())
    data = state(3)
    noisy(data.clone())
    before = noisy.noise._state
    data["step_count"] = torch.zeros(3, 1, dtype=torch.int64)
    with set_exploration_type(ExplorationType.DETERMINISTIC):
        noisy(data.clone())
    assert torch.equal(noisy.noise._state, before)


@pytest.mark.parametrize(
    ("key", "value"),
    [("is_init", torch.tensor([[True], [False]])), ("step_count", torch.tensor([[0], [4]]))],
)
def test_a_tensordict_says_where_an_episode_begins(key, value):
    noisy = NoisyActor(make_actor(), OrnsteinUhlenbeckNoise(sigma=0.4))
    data = state(2)
    noisy(data.clone())
    noisy.noise.set_scale(0.0)
    noisy(data.clone().set(key, value))
    assert not noisy.noise._state[0].any()
    assert noisy.noise._state[1].all()


def test_the_actor_is_not_copied():
    actor = make_actor()
    noisy = NoisyActor(actor, GaussianNoise(std=0.0))
    actor.net.layers[-1].bias.data.fill_(9.0)
    torch.testing.assert_close(noisy.act(torch.zeros(3)), actor.high)
    assert {id(p) for p in noisy.parameters()} == {id(p) for p in actor.parameters()}


def test_refusals():
    for make, name, value in (
        (GaussianNoise, "std", -0.1),
        (GaussianNoise, "std", float("inf")),
        (OrnsteinUhlenbeckNoise, "sigma", -0.1),
        (OrnsteinUhlenbeckNoise, "theta", 0.0),
        (OrnsteinUhlenbeckNoise, "dt", -1.0),
    ):
        with pytest.raises(ValueError, match=f"`{name}` must be .*, got `{value}`"):
            make(**{name: value})
    with pytest.raises(ValueError, match=r"`dt` must lie below 2 / theta \(4\), got `5.0`"):
        OrnsteinUhlenbeckNoise(theta=0.5, dt=5.0)
    with pytest.raises(ValueError, match=r"`kind` must be one of .*, got `pink`"):
        make_noise(kind="pink")
