"""Films of teams: pictures without a display, with steps and returns below them."""

from __future__ import annotations

import io
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from tensordict.nn import TensorDictModule

from torchrl_elegant import Policy, RecordVideo, train
from torchrl_elegant.algorithms.multiagent.qmix import VDNConfig
from torchrl_elegant.config.text import UsageError
from torchrl_elegant.envs import VmasTeams
from torchrl_elegant.runs.evaluate import film
from torchrl_elegant.runs.film import animation
from torchrl_elegant.trainers.run_config import RunConfig

RUN = RunConfig(env="vmas/balance", total_frames=100, env_kwargs={"max_steps": 4, "n_agents": 2})
SPREAD = RunConfig(
    env="pettingzoo/mpe2:simple_spread_v3", total_frames=100, env_kwargs={"max_cycles": 3}
)


def policy(group="agents", action=0.5, size=2) -> Policy:
    def act(seen):
        return torch.full((*seen.shape[:-1], size), action)

    return Policy(TensorDictModule(act, [(group, "observation")], [(group, "action")]), {})


@pytest.fixture
def captions(monkeypatch):
    """Texts below the pictures."""
    module = sys.modules[animation.__module__]
    told, write = [], module.with_caption

    def note(picture, text):
        told.append(text)
        return write(picture, text)

    monkeypatch.setattr(module, "with_caption", note)
    return told


def opened(film: bytes) -> Image.Image:
    return Image.open(io.BytesIO(film))


def test_a_film_of_vmas_needs_no_window_and_shows_each_step(captions):
    with opened(animation(RUN, policy(), seed=0)) as film:
        assert film.n_frames == 5
        assert film.size == (480, 510)
        assert film.info["duration"] == 100
        first = np.asarray(film.convert("RGB"))
        film.seek(4)
        assert (np.asarray(film.convert("RGB")) != first).any()
    assert "vmas.simulator.rendering" not in sys.modules
    assert "pyglet" not in sys.modules
    env = VmasTeams("balance", seed=0, max_steps=4, n_agents=2)
    env.set_seed(0)
    rows = env.rollout(9, policy().actor)
    returns = rows["next", "agents", "reward"].mean(2).cumsum(1).view(-1).tolist()
    assert captions[0] == "step 0    return 0.00"
    assert captions[1:] == [f"step {n}    return {x:.2f}" for n, x in enumerate(returns, 1)]


def test_groups_have_returns_of_their_own(captions):
    run = replace(RUN, env="vmas/simple_tag", env_kwargs={"max_steps": 1})

    def act(one, other):
        return torch.zeros(*one.shape[:-1], 2), torch.zeros(*other.shape[:-1], 2)

    groups = ("adversary", "agent")
    keys = ([(name, entry) for name in groups] for entry in ("observation", "action"))
    animation(run, Policy(TensorDictModule(act, *keys), {}), seed=0)
    assert captions[0] == "step 0    returns: adversary 0.00, agent 0.00"


def test_a_film_of_pettingzoo_is_what_it_renders(captions):
    acts = policy(size=5)
    run = replace(SPREAD, env_kwargs={**SPREAD.env_kwargs, "continuous_actions": True})
    with opened(animation(run, acts, seed=0)) as film:
        assert film.n_frames == 4
        assert film.size == (700, 730)


def test_a_film_that_is_bounded_ends_and_says_so(caplog):
    with opened(animation(replace(RUN, max_eval_steps=2), policy(), seed=0)) as film:
        assert film.n_frames == 3
    assert "ends after 2 steps, before its episode does: max_eval_steps is 2" in caplog.text


def test_an_action_that_is_not_finite_is_named():
    told = "must be finite, got `nan` from vmas/balance at step 0 of a film"
    with pytest.raises(FloatingPointError, match=told):
        animation(RUN, policy(action=float("nan")), seed=0)


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(UsageError, match="`video` must be false for `elegant/chasing`"):
        animation(replace(RUN, env="elegant/chasing", env_kwargs={}), policy(), seed=0)

    def plain(render_mode, **kwargs):
        return VmasTeams("balance", **kwargs)

    class Broken(VmasTeams):
        def scene(self, row=0):
            raise RuntimeError("no light")

    with opened(animation(replace(RUN, max_eval_steps=1), policy(), seed=0, env=plain)) as film:
        assert film.n_frames == 2
    with pytest.raises(UsageError, match=r"`video` must be .* here, whose scene\(\) failed: no l"):
        animation(RUN, policy(), seed=0, env=lambda **_: Broken("balance"))


def test_a_policy_with_a_memory_begins_anew_and_remembers_from_step_to_step():
    class Remembers(Policy):
        told = ()

        def reset(self):
            self.told = (*self.told, "reset")
            self.acting = self.remember

        def remember(self, data):
            self.told = (*self.told, "step")
            return self.actor(data)

    acts = Remembers(policy().actor, {})
    acts.told = ()
    animation(RUN, acts, seed=0)
    assert acts.told == ("reset", *["step"] * 4)


MEMORY = {"recurrent": True, "hidden_size": 4, "sequence_length": 2, "burn_in": 0}


@pytest.mark.parametrize(
    ("run", "words", "memory", "pictures"),
    [(RUN, {"actions": "discrete"}, MEMORY, 5), (SPREAD, {}, {}, 4)],
    ids=["vmas, recurrent", "pettingzoo"],
)
def test_runs_are_filmed_while_they_train_and_afterwards(run, words, memory, pictures, tmp_path):
    small = {"total_frames": 16, "eval_episodes": 1, "logger": "none", "progress": False}
    folder = train(
        VDNConfig(num_cells=(8,), batch_size=8, warmup=8, **memory),
        run.env,
        env_kwargs={**run.env_kwargs, **words},
        folder=str(tmp_path / "run"),
        callbacks=[RecordVideo()],
        **small,
    ).folder
    (during,) = folder.glob("video_*.gif")
    for path in (during, film(folder)):
        with Image.open(path) as film_of_run:
            assert film_of_run.n_frames == pictures
