"""Evaluating and filming the policy that a run left."""

from __future__ import annotations

from pathlib import Path

import pytest
from faults.fault_envs import Drawn
from PIL import Image

from torchrl_elegant.algorithms import DQNConfig, SACConfig
from torchrl_elegant.config.text import UsageError
from torchrl_elegant.runs.evaluate import evaluate, film
from torchrl_elegant.runs.train import train


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "drawn"
    config = SACConfig(num_cells=(8,), batch_size=8, warmup=20)
    words = {"eval_episodes": 1, "logger": "none", "progress": False, "folder": str(folder)}
    return train(config, "faults.fault_envs:Drawn", total_frames=48, **words).folder


def test_the_seed_decides_the_episodes(trained):
    first = evaluate(trained, episodes=3, seed=5)
    again = evaluate(trained, episodes=3, seed=5)
    other = evaluate(trained, episodes=3, seed=6)
    assert first == again
    assert first.returns != other.returns
    assert len(set(first.returns)) == 3


def test_a_film_shows_every_step_of_an_episode(trained):
    with Image.open(film(trained)) as pictures:
        assert (pictures.n_frames, pictures.size) == (20, (8, 8))
        assert pictures.info["duration"] == 100  # ten pictures a second, as the metadata say


def test_a_policy_that_is_not_there_is_refused(trained, tmp_path):
    for name in ("config.yaml", "metrics.csv", "policy.pt"):
        (tmp_path / name).write_bytes((trained / name).read_bytes())
    with pytest.raises(UsageError, match=r"policy_best\.pt"):
        evaluate(tmp_path, policy="best")


def test_counts_are_refused_by_their_own_names(trained):
    for wrong in ({"episodes": 0}, {"episodes": 2.5}, {"max_eval_steps": 0}):
        (name,) = wrong
        with pytest.raises(UsageError, match=f"`{name}` must be an integer of 1 or more, got"):
            evaluate(trained, **wrong)
    with pytest.raises(UsageError, match="`max_eval_steps` must be an integer of 1 or more"):
        film(trained, max_eval_steps=0)


QUIET = {"eval_episodes": 1, "logger": "none", "progress": False, "total_frames": 48}


@pytest.mark.parametrize(
    ("config", "env", "told"),
    [
        (
            SACConfig(num_cells=(8,), batch_size=8, warmup=20),
            "Pendulum-v1",
            r"trained on 'Pendulum-v1', which does not fit 'faults\.fault_envs:Drawn' with "
            r"observation \(2,\) and actions \(1,\); put the run's own policy back",
        ),
        (
            SACConfig(num_cells=(8,), batch_size=8, warmup=20),
            "faults.fault_envs:two_actions",
            r"two_actions', which does not fit .* and actions \(1,\)",
        ),
        (DQNConfig(num_cells=(8,), batch_size=8, warmup=20), "CartPole-v1", "'CartPole-v1'"),
    ],
)
def test_a_policy_of_another_run_is_refused_in_one_line(trained, tmp_path, config, env, told):
    other = train(config, env, folder=str(tmp_path / "other"), **QUIET).folder
    mixed = tmp_path / "mixed"
    mixed.mkdir()
    for name in ("config.yaml", "metrics.csv"):
        (mixed / name).write_bytes((trained / name).read_bytes())
    (mixed / "policy.pt").write_bytes((other / "policy.pt").read_bytes())
    for use in (evaluate, film):
        with pytest.raises(UsageError, match=rf"`run` must hold a policy of its own .*{told}") as e:
            use(mixed)
        assert "\n" not in str(e.value)
    assert not (mixed / "video.gif").exists()


def test_a_policy_without_the_entries_of_the_run_is_refused(tmp_path, trained):
    keyed = train(
        SACConfig(num_cells=(8,), batch_size=8, warmup=20),
        "faults.fault_envs:keyed",
        folder=str(tmp_path / "keyed"),
        **QUIET,
    ).folder
    (keyed / "policy.pt").write_bytes((trained / "policy.pt").read_bytes())
    with pytest.raises(UsageError, match="`run` must hold a policy of its own environment"):
        evaluate(keyed)


def test_the_callable_stands_in_for_the_name_in_the_film_as_well(trained):
    made = []

    def drawn(**kwargs):
        made.append(kwargs)
        return Drawn(**kwargs)

    evaluate(trained, episodes=1, env_factory=drawn)
    film(trained, env_factory=drawn)
    assert made == [{}, {}, {"render_mode": "rgb_array"}]
