"""Settings of known environments."""

from __future__ import annotations

import gymnasium
import pytest

from torchrl_elegant import tuned
from torchrl_elegant.algorithms import ALGORITHMS
from torchrl_elegant.algorithms.tuned import SIMULATOR, TUNED
from torchrl_elegant.cli.training import parse_training, train_command
from torchrl_elegant.trainers.family import family_of
from torchrl_elegant.trainers.ranks import Ranks
from torchrl_elegant.trainers.run_config import RunConfig

OURS = sorted(
    name for name, kind in ALGORITHMS.items() if kind.__module__.startswith("torchrl_elegant.")
)
KNOWN = {
    "continuous": {
        "Pendulum-v1",
        "LunarLanderContinuous-v3",
        "BipedalWalker-v3",
        "Hopper-v5",
        "HalfCheetah-v5",
        "Walker2d-v5",
        "Ant-v5",
        "Swimmer-v5",
        "Humanoid-v5",
    },
    "discrete": {"CartPole-v1", "Acrobot-v1", "LunarLander-v3"},
    "multi-discrete": set(),
}
# Environments with continuous actions that only some algorithms have settings for.
SOME = {"elegant/chasing", "elegant/stock"}
TEAMS = {"vmas/navigation", "vmas/balance"}


@pytest.mark.parametrize("algorithm", OURS)
def test_every_algorithm_has_settings_that_hold_together_for_all_it_can_play(algorithm):
    everywhere = _playable(ALGORITHMS[algorithm])
    assert everywhere <= {*gymnasium.registry, *TEAMS}
    for env in everywhere | (SOME & set(TUNED.get(algorithm, ()))):
        config, run = tuned(algorithm, env)
        assert type(config) is ALGORITHMS[algorithm]
        family_of(RunConfig(env=env, **run), config, Ranks())


@pytest.mark.parametrize("algorithm", SIMULATOR)
def test_settings_for_simulators_hold_together(algorithm):
    config, run = tuned(algorithm, "simulator")
    assert type(config) is ALGORITHMS[algorithm]
    family_of(RunConfig(env="any", **run), config, Ranks())
    words = ["tuned=simulator", "env=Pendulum-v1", "num_envs=2048"]
    options = parse_training(words, default=algorithm)
    assert (options.config, options.run.num_envs) == (config, 2048)


def test_an_algorithm_without_settings_for_simulators_says_so():
    with pytest.raises(ValueError, match="`tuned` must not be simulator with redq; there are such"):
        tuned("redq", "simulator")


def test_no_table_has_an_environment_that_its_algorithm_cannot_play():
    for algorithm, table in TUNED.items():
        config = ALGORITHMS[algorithm]
        some = SOME if "continuous" in config.actions and not config.teams else set()
        assert set(table) <= _playable(config) | some | {"vmas/*"}


def _playable(config):
    if config.teams:
        return TEAMS
    return set().union(*(KNOWN[kind] for kind in config.actions))


def test_changes_go_where_they_belong():
    config, run = tuned("sac", "Pendulum-v1", total_frames=500, tau=0.5, seed=3)
    assert (config.tau, run) == (0.5, {"total_frames": 500, "seed": 3})
    assert config.num_cells == (64, 64)


def test_an_environment_in_no_table_is_told_with_those_that_are():
    with pytest.raises(ValueError, match=r"`tuned` must be false for d3qn on `Taxi-v3`.*CartPole"):
        tuned("d3qn", "Taxi-v3")


@pytest.mark.parametrize("given", [[], ["total_frames=80", "epochs=2"]])
def test_words_stand_before_tuned_settings_and_those_before_defaults(tmp_path, given):
    small = ["frames_per_batch=64", "eval_episodes=1", "progress=false", "logger=none"]
    words = [*small, f"folder={tmp_path / 'run'}", "env=CartPole-v1", "tuned=true", *given]
    if not given:
        words.append("total_frames=64")
    assert train_command(words, program="x", default="ppo") == 0
    text = (tmp_path / "run" / "config.yaml").read_text()
    assert "num_envs: 8" in text
    assert ("epochs: 2" in text) == bool(given)
    assert f"total_frames: {80 if given else 64}" in text


def test_a_run_that_goes_on_keeps_its_settings(tmp_path, capsys):
    words = [f"resume={tmp_path}", "tuned=true"]
    assert train_command(words, program="x", default="ppo") == 2
    told = "`tuned` must be false with resume, got `True`; set the options by name"
    assert told in capsys.readouterr().err


def test_a_script_says_in_one_line_what_there_are_settings_for(capsys):
    assert train_command(["env=Taxi-v3", "tuned=true"], program="x", default="ppo") == 2
    error = capsys.readouterr().err
    assert error.startswith("error: `tuned` must be false for ppo on `Taxi-v3`")
    assert error.count("\n") == 1
