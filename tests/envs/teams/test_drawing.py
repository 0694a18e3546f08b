"""Scenes of VMAS and their pictures: places, colors, cameras."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest
import torch

from torchrl_elegant.envs.teams import VmasTeams, vmas_shapes
from torchrl_elegant.envs.teams.drawing import draw_scenes
from torchrl_elegant.envs.teams.vmas_shapes import (
    Geom,
    Line,
    Mark,
    Scene,
    TextLine,
    Transform,
    make_circle,
    make_polygon,
    render_function_util,
)

VIEW = {"origin": (0.0, 0.0), "half": (1.0, 1.0), "size": (700.0, 700.0)}
RED, BLUE, WHITE = [255, 0, 0], [0, 0, 255], [255, 255, 255]


def drawn(*shapes: Geom, view=None) -> np.ndarray:
    scene = Scene(marks=[], **{**VIEW, **(view or {})})
    marks = [mark for shape in shapes for mark in shape.marks(scene)]
    (picture,) = draw_scenes([Scene(marks=marks, **{**VIEW, **(view or {})})])
    return picture


def colored(shape: Geom, color=(1, 0, 0)) -> Geom:
    shape.set_color(*color)
    return shape


@pytest.mark.parametrize(
    "name",
    ["discovery", "flocking", "football", "joint_passage", "multi_give_way", "sampling", "goal"],
)
def test_scenarios_are_drawn_without_a_window(name):
    env = VmasTeams(name, num_envs=2, seed=0)
    env.reset()
    scene = env.scene(1)
    assert len(scene.marks) >= len(env.scenario.world.agents)
    (picture,) = env.pictures([scene])
    assert max(picture.shape) == 480
    assert picture.std() > 0
    assert "pyglet" not in sys.modules
    assert vmas_shapes._NAME not in sys.modules


def test_agents_are_where_the_world_has_them():
    env = VmasTeams("navigation", num_envs=3, seed=0, n_agents=1, lidar_range=0.1)
    env.reset()
    (picture,) = env.pictures([scene := env.scene(2)])
    (agent,) = env.scenario.world.agents
    x, y = agent.state.pos[2].tolist()
    column = round((x / scene.half[0] + 1) / 2 * 480)
    line = round((1 - y / scene.half[1]) / 2 * 480)
    seen = picture[line + 2, column + 8] / 255
    # Half transparent, on white, and between two rays of the lidar.
    np.testing.assert_allclose(seen, 0.5 + 0.5 * np.array(agent.color), atol=0.04)


def test_up_is_up_and_left_is_left():
    picture = drawn(colored(make_polygon([(-1, 0), (0, 0), (0, 1), (-1, 1)])))
    assert picture[60, 60].tolist() == RED
    for line, column in ((60, 420), (420, 60), (420, 420)):
        assert picture[line, column].tolist() == WHITE


def test_transforms_scale_then_turn_then_move():
    moved = Transform(translation=(1.0, 2.0), rotation=math.pi / 2, scale=(3.0, 1.0))
    np.testing.assert_allclose(moved(np.array([[1.0, 0.0]])), [[1.0, 5.0]], atol=1e-9)
    shape = Line((0.0, 0.0), (torch.tensor(1.0), 0.0))
    shape.add_attr(Transform(rotation=math.pi / 2))
    shape.add_attr(Transform(translation=(1.0, 0.0)))
    np.testing.assert_allclose(shape.placed(shape.v), [[1.0, 0.0], [1.0, 1.0]], atol=1e-9)


def test_a_color_may_be_seen_through():
    shape = make_circle(0.5)
    shape.set_color(0, 0, 1, alpha=0.5)
    assert drawn(shape)[240, 250].tolist() == pytest.approx([127, 127, 255], abs=1)
    assert drawn(colored(make_circle(0.5, filled=False)))[240, 240].tolist() == WHITE


def test_a_sector_has_its_tip_in_the_middle():
    picture = drawn(colored(make_circle(0.8, angle=math.pi / 2)))
    assert picture[240, 380].tolist() == RED
    assert picture[100, 240].tolist() == WHITE


def test_texts_are_placed_in_the_window_that_vmas_would_open():
    (mark,) = TextLine("7", x=350.0, y=700.0).marks(Scene(marks=[], **VIEW))
    assert mark.points.tolist() == [[0.0, 1.0]]
    assert drawn(TextLine("7", x=350.0, y=350.0))[225:255, 230:250].min() < 100


def test_a_function_of_the_place_is_a_picture_below_the_shapes():
    def rightmost(places):
        return torch.from_numpy((places[:, :1] > 0).astype(float))

    shape = render_function_util(rightmost, (1.0, (-0.5, 0.5)), precision=0.1)
    picture = drawn(shape)
    dark, bright = picture[240, 120].astype(int), picture[240, 360].astype(int)
    assert bright.sum() > dark.sum() + 100
    assert picture[60, 240].tolist() == WHITE, "the function is plotted over its range alone"


def test_the_camera_shows_the_widest_scene_throughout():
    corners = np.array([[-0.1, -0.1], [0.1, -0.1], [0.1, 0.1], [-0.1, 0.1]])
    box = Mark(kind="area", points=corners, color=(1.0, 0.0, 0.0, 1.0))
    near, far = (Scene(marks=[box], **{**VIEW, "half": (x, x)}) for x in (1.0, 2.0))
    alone, first, second = (
        picture for scenes in ([near], [near, far]) for picture in draw_scenes(scenes)
    )
    assert (first == second).all()
    assert (alone != first).any()


def test_an_agent_that_wanders_off_stays_in_the_picture():
    env = VmasTeams("navigation", num_envs=1, seed=0, n_agents=1)
    env.reset()
    narrow = env.scene().half
    env.scenario.world.agents[0].state.pos = torch.tensor([[5.0, 0.0]])
    wide = env.scene().half
    assert narrow[0] < 5.0 < wide[0]
    assert wide[0] == wide[1]
