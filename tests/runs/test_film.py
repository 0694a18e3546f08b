"""Films of episodes that never end, and of broken ones."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from faults.fault_envs import Drawn
from PIL import Image
from tensordict.nn import TensorDictModule
from torch import nn

from torchrl_elegant import Policy, RecordVideo, SACConfig, train
from torchrl_elegant.cli.commands import evaluate_command
from torchrl_elegant.runs.evaluate import film
from torchrl_elegant.runs.film import animation
from torchrl_elegant.trainers.run_config import RunConfig


class Endless(Drawn):
    """Never ends; `sick` says where the fourth step of all brings a NaN."""

    def __init__(self, render_mode: str | None = None, *, sick: str = "", fps: float = 10) -> None:
        super().__init__(render_mode)
        self.sick, self.metadata = sick, {"render_modes": ["rgb_array"], "render_fps": fps}

    def reset(self, **options):
        observation, info = super().reset(**options)
        return observation * (np.nan if self.sick == "reset" else 1), info

    def step(self, action: np.ndarray):
        assert np.isfinite(action).all(), "a NaN action reached the simulator"
        observation, reward, *_ = super().step(action)
        if self.total == 4 and self.sick == "reward":
            reward = np.nan
        if self.total == 4 and self.sick == "observation":
            observation[1] = np.inf
        return observation, reward, False, False, {}


class EndlessDict(Endless):
    def step(self, action):
        observation, *rest = super().step(action)
        return {"robot": {"place": observation}}, *rest

    def reset(self, **options):
        observation, info = super().reset(**options)
        return {"robot": {"place": observation}}, info


def policy(bias: float = 0.5, keys=("observation",)) -> Policy:
    net = nn.Linear(2, 1)
    nn.init.zeros_(net.weight)
    nn.init.constant_(net.bias, bias)
    return Policy(TensorDictModule(net, list(keys), ["action"]), {})


def filmed(path, env=Endless, acts=None, **options):
    steps = options.pop("max_eval_steps", 100_000)
    run = RunConfig(env="Endless", total_frames=100, max_eval_steps=steps)
    acts = acts or policy()
    path.write_bytes(animation(run, acts, seed=0, env=lambda **words: env(**words, **options)))
    return path


def test_a_film_of_an_episode_without_an_end_ends_and_says_so(tmp_path, caplog):
    with Image.open(filmed(tmp_path / "video.gif", max_eval_steps=7)) as pictures:
        assert pictures.n_frames == 7
    (record,) = caplog.records
    said = "the film of Endless ends after 7 steps, before its episode does: max_eval_steps is 7"
    assert record.getMessage() == said


@pytest.mark.parametrize("fps", [1e9, 0, None])
def test_a_rate_of_pictures_that_means_nothing_neither_hangs_nor_fails(tmp_path, fps):
    filmed(tmp_path / "video.gif", fps=fps, max_eval_steps=30)
    assert (tmp_path / "video.gif").stat().st_size > 0


def test_a_full_film_ends_and_says_so(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(sys.modules[animation.__module__], "_MAX_PICTURES", 3)
    with Image.open(filmed(tmp_path / "video.gif", fps=100)) as pictures:
        assert pictures.n_frames == 3
    (record,) = caplog.records
    assert "ends after 5 steps, before its episode does: it is full" in record.getMessage()


@pytest.mark.parametrize(
    ("sick", "named"),
    [
        ("reward", "`reward` must be finite, got `nan` from Endless at step 4 of a film; mend"),
        ("observation", "`observation` must be finite, got `inf` from Endless at step 4 of a film"),
        ("reset", "`observation` must be finite, got `nan` from Endless at step 0 of a film"),
    ],
)
def test_a_value_that_is_not_finite_is_named_and_no_film_is_left(tmp_path, sick, named):
    with pytest.raises(FloatingPointError, match=named):
        filmed(tmp_path / "video.gif", sick=sick, max_eval_steps=9)
    assert not (tmp_path / "video.gif").exists()


def test_the_entry_of_a_mapping_is_named(tmp_path):
    keyed = policy(keys=[("robot", "place")])
    with pytest.raises(FloatingPointError, match="`place` must be finite, got `inf`"):
        filmed(tmp_path / "video.gif", EndlessDict, keyed, sick="observation")


def test_an_action_that_is_not_finite_never_reaches_the_simulator(tmp_path):
    with pytest.raises(FloatingPointError, match="`action` must be finite, got `nan` from Endless"):
        filmed(tmp_path / "video.gif", acts=policy(bias=float("nan")))


SMALL = {"total_frames": 32, "eval_episodes": 1, "logger": "none", "progress": False}
TINY = SACConfig(num_cells=(8,), batch_size=8, warmup=20)


def test_films_of_a_run_end_where_its_evaluations_end(tmp_path):
    options = {**SMALL, "max_eval_steps": 6, "callbacks": [RecordVideo()]}
    folder = train(TINY, Endless, folder=str(tmp_path / "run"), **options).folder
    for path in folder.glob("video_*.gif"):
        with Image.open(path) as pictures:
            assert pictures.n_frames == 6
    assert list(folder.glob("video_*.gif"))
    for words, count in (({}, 6), ({"max_eval_steps": 4}, 4)):
        with Image.open(film(folder, env_factory=Endless, **words)) as pictures:
            assert pictures.n_frames == count


def test_the_command_bounds_its_film(tmp_path, capsys):
    folder = train(TINY, "faults.fault_envs:Drawn", folder=str(tmp_path / "run"), **SMALL).folder
    words = [str(folder), "episodes=1", "video=true", "max_eval_steps=5", "trust=true"]
    assert evaluate_command(words, program="evaluate") == 0
    with Image.open(folder / "video.gif") as pictures:
        assert pictures.n_frames == 5
