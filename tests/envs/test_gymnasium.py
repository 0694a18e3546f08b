from __future__ import annotations

from functools import partial

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torchrl.data import Bounded, MultiOneHot, OneHot, Unbounded
from torchrl.envs import Compose, GymEnv, RewardSum, SerialEnv, StepCounter, TransformedEnv
from torchrl.envs.utils import check_env_specs
from toys import Counter, Spaces, kept

from torchrl_elegant.envs import GymnasiumEnv, UnsupportedSpaceError, make_env, sub_seeds

IDS = [
    "CartPole-v1",
    "Pendulum-v1",
    "HalfCheetah-v5",
    "LunarLander-v3",
    "LunarLanderContinuous-v3",
    "FrozenLake-v1",
]


@pytest.mark.parametrize("num_envs", [None, 1, 3])
@pytest.mark.parametrize("env_id", IDS)
def test_specs(env_id, num_envs):
    env = make_env(env_id, num_envs, seed=0)
    check_env_specs(env)
    assert env.batch_size == (torch.Size([]) if num_envs is None else torch.Size([num_envs]))
    env.close()


@pytest.mark.parametrize("env_id", ["CartPole-v1", "LunarLander-v3", "FrozenLake-v1"])
def test_specs_categorical(env_id):
    env = make_env(env_id, 2, discrete_actions="categorical")
    check_env_specs(env)
    assert env.rollout(3, break_when_any_done=False)["action"].shape == (2, 3)


def numbers(rollout, name):
    return rollout.get(name).squeeze(-1).tolist()


@pytest.mark.parametrize("ends", ["terminated", "truncated"])
def test_no_junk_row_and_true_final_observation(ends):
    factories = [partial(Counter, 2, ends), partial(Counter, 3, ends)]
    env = GymnasiumEnv(factories=factories)
    rows = env.rollout(6, break_when_any_done=False)
    assert rows["observation"][..., :2].tolist() == [
        [[1, 0], [1, 1], [2, 0], [2, 1], [3, 0], [3, 1]],
        [[1, 0], [1, 1], [1, 2], [2, 0], [2, 1], [2, 2]],
    ]
    assert rows["next", "observation"][..., :2].tolist() == [
        [[1, 1], [1, 2], [2, 1], [2, 2], [3, 1], [3, 2]],
        [[1, 1], [1, 2], [1, 3], [2, 1], [2, 2], [2, 3]],
    ]
    over = [[False, True] * 3, [False, False, True] * 2]
    never = [[False] * 6] * 2
    other = {"terminated": "truncated", "truncated": "terminated"}[ends]
    assert numbers(rows, ("next", ends)) == numbers(rows, ("next", "done")) == over
    assert numbers(rows, ("next", other)) == numbers(rows, "done") == numbers(rows, ends) == never
    assert numbers(rows, "step_count") == [[0, 1] * 3, [0, 1, 2] * 2]
    assert numbers(rows, ("next", "step_count")) == [[1, 2] * 3, [1, 2, 3] * 2]
    assert numbers(rows, "episode_reward") == [[0, 1] * 3, [0, 1, 3] * 2]
    assert numbers(rows, ("next", "episode_reward")) == [[1, 3] * 3, [1, 3, 6] * 2]


def test_reset_mask_serves_each_alone():
    made, factory = kept(Counter)
    env = GymnasiumEnv(factories=[factory] * 3)
    td = env.step(env.rand_action(env.reset()))
    root = env.step_mdp(td)
    root["_reset"] = torch.tensor([[False], [True], [False]])
    root = env.reset(root)
    assert [len(e.reset_seeds) for e in made] == [1, 2, 1]
    assert root["observation"][:, :2].tolist() == [[1, 1], [2, 0], [1, 1]]
    assert root["step_count"].tolist() == [[1], [0], [1]]
    assert root["episode_reward"].tolist() == [[1], [0], [1]]


def test_partial_step_waits():
    env = GymnasiumEnv(factories=[partial(Counter, 2), partial(Counter, 4)])
    rows = env.rollout(6, break_when_any_done=False, break_when_all_done=True)
    assert rows.shape == (2, 4)
    assert rows["next", "observation"][0, :, 1].tolist() == [1, 2, 2, 2]
    assert numbers(rows, ("next", "done")) == [[False, True, True, True], [False] * 3 + [True]]


def test_handed_out_rows_are_not_overwritten():
    env = GymnasiumEnv(factories=[Counter])
    first = env.reset()
    before = first.clone()
    stepped = env.step(env.rand_action(first.copy()))
    after = stepped["next"].clone()
    env.step(env.rand_action(env.step_mdp(stepped)))
    assert (first == before).all()
    assert (stepped["next"] == after).all()


def test_seeds_differ_and_serve_one_reset():
    made, factory = kept(Counter)
    env = GymnasiumEnv(factories=[factory] * 3)
    assert env.set_seed(7) != 7
    assert env.set_seed(7, static_seed=True) == 7
    env.rollout(5, break_when_any_done=False)
    assert [e.reset_seeds for e in made] == [[seed, None] for seed in sub_seeds(7, 3)]
    assert len({e.reset_seeds[0] for e in made}) == 3
    env.set_seed(8)
    env.reset()
    assert [e.reset_seeds[-1] for e in made] == sub_seeds(8, 3)


def test_same_seed_same_rows_other_seed_other_rows():
    def rows(seed):
        torch.manual_seed(0)
        return make_env("Pendulum-v1", 2, seed=seed).rollout(5)

    assert (rows(1) == rows(1)).all()
    assert not (rows(1)["observation"] == rows(2)["observation"]).all()


def policy(spec, discrete):
    torch.manual_seed(0)
    weight = torch.randn(spec["observation"].shape[-1], discrete or 1)

    def act(td):
        scores = td["observation"].float() @ weight
        if discrete:
            return td.set("action", torch.eye(discrete, dtype=torch.int64)[scores.argmax(-1)])
        return td.set("action", scores.tanh())

    return act


@pytest.mark.parametrize(
    ("env_id", "discrete", "steps"),
    [("CartPole-v1", 2, 60), ("Pendulum-v1", 0, 410), ("LunarLander-v3", 4, 200)],
)
def test_rows_equal_torchrl(env_id, discrete, steps):
    count, seed = 3, 5
    ours = make_env(env_id, count, seed=seed)
    theirs = TransformedEnv(
        SerialEnv(count, partial(GymEnv, env_id)), Compose(StepCounter(), RewardSum())
    )
    theirs.reset()
    for env, sub_seed in zip(theirs.base_env._envs, sub_seeds(seed, count), strict=True):
        env.set_seed(sub_seed)
    # TorchRL resets as it seeds, so its next episode is the second one.
    ours.reset()
    act = policy(ours.observation_spec, discrete)

    def act_in_env_units(td):
        td = act(td)
        return td if discrete else td.set("action", td["action"] * float(ours.action_high[0]))

    a = ours.rollout(steps, act, break_when_any_done=False)
    b = theirs.rollout(steps, act_in_env_units, break_when_any_done=False)
    assert a["next", "done"].sum() >= 2 * count
    assert set(a.keys(True, True)) == set(b.keys(True, True))
    for key in a.keys(True, True):
        if key == "action" and not discrete:
            torch.testing.assert_close(a[key] * float(ours.action_high[0]), b[key])
        else:
            assert a[key].dtype == b[key].dtype, key
            assert torch.equal(a[key], b[key]), key


def test_actions_scaled_to_the_bounds():
    made, factory = kept(Counter)
    env = GymnasiumEnv(factories=[factory] * 3)
    assert isinstance(env.action_spec, Bounded)
    assert env.action_spec.dtype == torch.float32
    assert env.action_spec.space.low.unique().tolist() == [-1]
    assert (env.action_low.tolist(), env.action_high.tolist()) == ([-2, 0], [2, 10])
    action = torch.tensor([[-1.0, -1.0], [0.0, 0.5], [1.0, 1.0]])
    env.step(env.reset().set("action", action))
    assert [e.actions[0].tolist() for e in made] == [[-2, 0], [0, 7.5], [2, 10]]


def test_action_ends_stay_inside_whatever_the_rounding():
    rng = np.random.default_rng(0)
    low = rng.normal(size=5000).astype(np.float32)
    space = spaces.Box(low, low + rng.exponential(size=5000).astype(np.float32))
    made, factory = kept(lambda: Spaces(spaces.Discrete(2), space))
    env = GymnasiumEnv(factories=[factory])
    for end in (-1.0, 1.0):
        env.step(env.reset().set("action", torch.full((1, 5000), end)))
        np.testing.assert_allclose(made[0].actions[-1], [space.low, space.high][end > 0], atol=1e-6)


def test_simulator_may_change_its_action():
    class Rude(Counter):
        action_space = spaces.Box(-1.0, 1.0, (2,))

        def step(self, action):
            action *= 0
            return super().step(action)

    env = GymnasiumEnv(factories=[Rude])
    td = env.reset().set("action", torch.ones(1, 2))
    env.step(td)
    assert td["action"].tolist() == [[1, 1]]


def test_unbounded_action_passes_unchanged():
    space = spaces.Box(np.float32([-1, -np.inf]), np.float32([1, np.inf]))
    made, factory = kept(lambda: Spaces(spaces.Discrete(2), space))
    env = GymnasiumEnv(factories=[factory])
    assert isinstance(env.action_spec, Unbounded)
    env.step(env.reset().set("action", torch.tensor([[0.5, 300.0]])))
    assert made[0].actions[0].tolist() == [0.5, 300.0]
    # Nothing is scaled, so there are no bounds to scale by.
    assert (env.action_low, env.action_high) == (None, None)


@pytest.mark.parametrize("discrete_actions", ["one_hot", "categorical"])
@pytest.mark.parametrize(
    "space",
    [
        spaces.Discrete(4, start=3),
        spaces.MultiDiscrete([3, 3]),
        spaces.MultiDiscrete([2, 5], start=[1, -4]),
        spaces.MultiDiscrete([[2, 3], [4, 5]]),
        spaces.MultiBinary(3),
        spaces.Box(-2.0, 3.0, ()),
        spaces.Box(-2.0, 3.0, (2, 3), np.float64),
    ],
    ids=str,
)
def test_action_spaces(space, discrete_actions):
    # `Spaces` asserts that each native action lies in its space.
    made, factory = kept(lambda: Spaces(spaces.Box(-1, 1, (2,)), space))
    env = GymnasiumEnv(factories=[factory] * 2, discrete_actions=discrete_actions)
    check_env_specs(env)
    torch.manual_seed(0)
    env.rollout(800)
    distinct = {np.asarray(a).tobytes() for e in made for a in e.actions}
    if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)):
        size = space.n if isinstance(space, spaces.Discrete) else int(space.nvec.prod())
        assert len(distinct) == size


def test_one_hot_and_categorical_name_the_same_action():
    space = spaces.MultiDiscrete([2, 3], start=[5, 7])
    made, factory = kept(lambda: Spaces(spaces.Discrete(2), space))
    one_hot = GymnasiumEnv(factories=[factory])
    categorical = GymnasiumEnv(factories=[factory], discrete_actions="categorical")
    one_hot.step(one_hot.reset().set("action", torch.tensor([[0, 1, 0, 0, 1]])))
    categorical.step(categorical.reset().set("action", torch.tensor([[1, 2]])))
    assert [e.actions[0].tolist() for e in made] == [[6, 9], [6, 9]]


def test_dict_observation():
    space = spaces.Dict(
        arm=spaces.Dict(
            angle=spaces.Box(-1, 1, (2,), np.float64), room=spaces.Discrete(3, start=1)
        ),
        image=spaces.Box(0, 255, (4, 4, 3), np.uint8),
        pair=spaces.MultiDiscrete([2, 3]),
        bits=spaces.MultiBinary(4),
    )
    made, factory = kept(lambda: Spaces(space, spaces.Discrete(2)))
    env = GymnasiumEnv(factories=[factory] * 2)
    check_env_specs(env)
    td = env.reset()
    seen = made[0].observations[-1]
    assert isinstance(env.observation_spec["arm", "room"], OneHot)
    assert isinstance(env.observation_spec["pair"], MultiOneHot)
    assert td["image"].dtype == torch.uint8
    assert td["image"][0].tolist() == seen["image"].tolist()
    assert td["arm", "angle"].dtype == torch.float32
    np.testing.assert_array_equal(td["arm", "angle"][0], seen["arm"]["angle"].astype(np.float32))
    assert td["arm", "room"][0].argmax().item() == seen["arm"]["room"] - 1
    assert td["arm", "room"].sum(-1).tolist() == [1, 1]
    first, second = seen["pair"]
    assert td["pair"][0].nonzero().flatten().tolist() == [first, 2 + second]
    assert td["bits"][0].tolist() == seen["bits"].tolist()


@pytest.mark.parametrize(
    ("observation", "action", "role"),
    [
        (spaces.Text(4), spaces.Discrete(2), "observation"),
        (spaces.Dict(a=spaces.Tuple([spaces.Discrete(2)])), spaces.Discrete(2), "observation"),
        (spaces.Discrete(2), spaces.Dict(a=spaces.Discrete(2)), "action"),
        (spaces.Discrete(2), spaces.Box(0, 9, (2,), np.int64), "action"),
    ],
    ids=str,
)
def test_unsupported_space(observation, action, role):
    _, factory = kept(lambda: Spaces(observation, action))
    with pytest.raises(UnsupportedSpaceError, match=f"{role} space of Spaces must .* wrapper"):
        GymnasiumEnv(factories=[factory])


def test_reserved_observation_key():
    space = spaces.Dict(reward=spaces.Discrete(2))
    with pytest.raises(ValueError, match="reward"):
        GymnasiumEnv(factories=[lambda: Spaces(space, spaces.Discrete(2))])


def test_close_closes_all_and_twice():
    made, factory = kept(Counter)
    env = GymnasiumEnv(factories=[factory] * 3)
    env.close()
    env.close()
    assert env.is_closed
    assert [e.closed for e in made] == [1, 1, 1]


def test_failing_factory_closes_the_earlier_ones():
    made, factory = kept(Counter)

    def failing():
        raise RuntimeError("no display")

    with pytest.raises(RuntimeError, match="no display"):
        GymnasiumEnv(factories=[factory, failing])
    assert [e.closed for e in made] == [1]


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"factories": []}, "`factories` must hold at least one"),
        ({"factories": [Counter, Counter], "batched": "single"}, "one callable"),
        ({"factories": [Counter], "batched": "yes"}, "`batched` must be"),
        ({"factories": [Counter], "seeds": [1, 2]}, "`seeds` must be one per factory"),
        ({"factories": [Counter], "discrete_actions": "two_hot"}, "`discrete_actions` must be"),
        (
            {"factories": [Counter, lambda: gymnasium.make("CartPole-v1")]},
            "must agree on `observation_space`",
        ),
    ],
)
def test_bad_arguments(arguments, match):
    with pytest.raises(ValueError, match=match):
        GymnasiumEnv(**arguments)


def test_factory_of_something_else():
    with pytest.raises(TypeError, match=r"must return gymnasium\.Env, got `GymEnv`"):
        GymnasiumEnv(factories=[lambda: GymEnv("CartPole-v1")])


def test_device_is_delivered():
    env = GymnasiumEnv(factories=[Counter], device="cpu")
    assert env.reset().device == torch.device("cpu")
    assert GymnasiumEnv(factories=[Counter]).reset().device is None
    # The meta device stands in for an accelerator; TorchRL's own specs cannot live there.
    moved = GymnasiumEnv(factories=[Counter])
    moved.__dict__["_device"] = torch.device("meta")
    assert moved._reset()["observation"].device.type == "meta"
