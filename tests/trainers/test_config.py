"""RunConfig: defaults, validation, and what is asked of the machine."""

from __future__ import annotations

import dataclasses
import importlib.util
import pickle

import pytest
import torch

from torchrl_elegant.trainers.run_config import RunConfig


def test_every_field_has_a_help_line():
    assert all(field.metadata.get("help") for field in dataclasses.fields(RunConfig))


def test_frozen_and_keyword_only():
    config = RunConfig()
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.seed = 1
    with pytest.raises(TypeError):
        RunConfig("Pendulum-v1")


def test_intervals_follow_the_budget():
    config = RunConfig(total_frames=1_000_000, num_envs=8)
    assert (config.eval_interval, config.checkpoint_interval) == (50_000, 100_000)
    # The algorithm's business, once it is known.
    assert config.frames_per_batch is None
    assert RunConfig(total_frames=5).eval_interval == 1
    assert RunConfig(eval_interval=7).eval_interval == 7


def test_env_kwargs_are_a_copy():
    mine = {"gravity": 9.8}
    config = RunConfig(env_kwargs=mine)
    mine["gravity"] = 0
    assert config.env_kwargs == {"gravity": 9.8}
    assert pickle.loads(pickle.dumps(config)) == config


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("env", " ", "Gymnasium id"),
        ("env", None, "Gymnasium id"),
        ("total_frames", 0, "1 or more"),
        ("total_frames", 1.0, "integer"),
        ("total_frames", True, "integer"),
        ("seed", -1, "0 or more"),
        ("device", "gpu", "cuda:<number>"),
        ("device", "cuda:", "cuda:<number>"),
        ("threads", -1, "0 or more"),
        ("num_envs", 0, "1 or more"),
        ("env_backend", "vectr", "one of vector, parallel, got `vectr`"),
        ("env_kwargs", {"f": print}, "factory"),
        ("env_kwargs", {1: 2}, "plain data"),
        ("env_kwargs", [1], "plain data"),
        ("collector", "asinc", "one of sync, parallel, async, got `asinc`"),
        ("num_workers", 0, "1 or more"),
        ("frames_per_batch", 0, "1 or more"),
        ("push_interval", 0, "1 or more"),
        ("eval_interval", 0, "1 or more"),
        ("eval_episodes", 0, "1 or more"),
        ("checkpoint_interval", 0, "1 or more"),
        ("keep_last", 0, "1 or more"),
        ("save_buffer", 1, "true or false"),
        ("target_return", float("nan"), "finite"),
        ("target_return", True, "finite"),
        ("folder", "", "path"),
        ("evaluation_env", "mine", "one of own, shared, got `mine`"),
        ("pixels", "render", r"Pixels\(\.\.\.\), or none"),
        ("logger", "tensorbord", "one of auto, none, tensorboard, wandb, mlflow"),
        ("progress", "yes", "true or false"),
    ],
)
def test_wrong_values_are_named(name, value, words):
    with pytest.raises(ValueError, match=words) as caught:
        RunConfig(**{name: value})
    assert f"`{name}` must" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_batch_error_gives_the_next_multiple():
    with pytest.raises(ValueError, match=r"multiple of num_envs \(4\), got `6`; set .*=8"):
        RunConfig(num_envs=4, frames_per_batch=6)
    assert RunConfig(num_envs=4, frames_per_batch=8).frames_per_batch == 8


def test_device_is_asked_of_the_machine(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert RunConfig().torch_device() == torch.device("cuda")
    assert RunConfig(device="cuda:0").torch_device() == torch.device("cuda:0")
    with pytest.raises(ValueError, match="1 CUDA devices"):
        RunConfig(device="cuda:1").torch_device()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert RunConfig().torch_device() == torch.device("cpu")
    with pytest.raises(ValueError, match="device=cpu"):
        RunConfig(device="cuda").torch_device()


def test_logger_is_asked_of_the_machine(monkeypatch):
    present = {"tensorboard"}
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name in present or None)
    assert RunConfig().logger_name() == "tensorboard"
    with pytest.raises(ValueError, match=r"pip install torchrl_elegant\[wandb\]"):
        RunConfig(logger="wandb").logger_name()
    present.clear()
    assert RunConfig().logger_name() == "none"
    assert RunConfig(logger="none").logger_name() == "none"


@pytest.mark.parametrize(("name", "value"), [("num_workers", 4), ("push_interval", 5)])
def test_what_the_chosen_collector_does_not_use_is_refused(name, value):
    default = RunConfig.__dataclass_fields__[name].default
    with pytest.raises(ValueError, match=f"`{name}` must stay {default} with collector=sync, got"):
        RunConfig(**{name: value})
    assert getattr(RunConfig(collector="async", **{name: value}), name) == value
    assert getattr(RunConfig(**{name: default}), name) == default
