"""Actions on their way from a policy that knows no bounds to a simulator that has some."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torchrl.envs import GymWrapper
from torchrl.envs.utils import check_env_specs
from toys import Spaces, kept

from torchrl_elegant.envs import make_env

LOW, HIGH = np.float32([-2.0, 0.0]), np.float32([2.0, 10.0])
BOX = spaces.Box(-1.0, 1.0, (2,))
DRAWN = torch.tensor([[5.0, -5.0], [0.5, 0.5], [-1.0, 1.0]])
GIVEN = np.float32([[2.0, 0.0], [1.0, 7.5], [-2.0, 10.0]])


def step(env, action):
    data = env.reset()
    return env.step(data.set("action", action))


@pytest.mark.parametrize("source", ["gymnasium", "torchrl"])
def test_a_box_gets_the_nearest_action_and_the_data_keeps_the_drawn_one(source):
    space = spaces.Box(LOW, HIGH)
    made, factory = kept(lambda: Spaces(BOX, space))
    if source == "torchrl":
        env = make_env(lambda: GymWrapper(factory()), 3)
    else:
        env = make_env(factory, 3)
    assert (env.action_spec.space.low == -1).all()
    assert (env.action_spec.space.high == 1).all()
    data = step(env, DRAWN.clone())
    torch.testing.assert_close(data["action"], DRAWN)
    given = [simulator.actions[-1] for simulator in made if simulator.actions]
    np.testing.assert_allclose(np.sort(np.array(given), 0), np.sort(GIVEN, 0), rtol=1e-6)


@pytest.mark.parametrize("shape", [(), (2, 3)])
def test_boxes_of_other_shapes(shape):
    made, factory = kept(lambda: Spaces(BOX, spaces.Box(-4.0, 2.0, shape)))
    env = make_env(factory, 1)
    step(env, torch.full((1, *(shape or (1,))), 7.0))
    np.testing.assert_array_equal(made[0].actions[0], np.full(shape, 2.0, np.float32))


def test_a_box_without_bounds_gets_what_was_drawn():
    made, factory = kept(lambda: Spaces(BOX, spaces.Box(-np.inf, np.inf, (2,))))
    action = DRAWN[:1].clone()
    step(make_env(factory, 1), action)
    np.testing.assert_array_equal(made[0].actions[0], [5.0, -5.0])
    # A simulator may write into what it is given.
    made[0].actions[0][:] = 99.0
    assert action.tolist() == [[5.0, -5.0]]


@pytest.mark.parametrize("form", ["one_hot", "categorical"])
@pytest.mark.parametrize("start", [0, -1, 5])
def test_choices_count_from_the_start_of_their_space(form, start):
    made, factory = kept(lambda: Spaces(BOX, spaces.Discrete(3, start=start)))
    env = make_env(factory, 3, discrete_actions=form)
    index = torch.tensor([2, 0, 1])
    action = torch.nn.functional.one_hot(index, 3) if form == "one_hot" else index
    assert env.action_spec.is_in(action)
    step(env, action)
    assert [simulator.actions[-1] for simulator in made] == [start + 2, start, start + 1]
    assert env.simulators.codec.start == start


@pytest.mark.parametrize("space", [spaces.Discrete(3), spaces.MultiDiscrete([2, 3])])
@pytest.mark.parametrize("form", ["one_hot", "categorical"])
def test_choices_have_the_type_that_torchrls_policies_write(space, form):
    env = make_env(lambda: Spaces(BOX, space), 2, discrete_actions=form)
    assert env.action_spec.dtype == torch.int64
    check_env_specs(env, seed=0)
