"""`config.yaml` there and back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pytest
import yaml

from torchrl_elegant.algorithms import ALGORITHMS as REGISTERED
from torchrl_elegant.algorithms import SACConfig, register
from torchrl_elegant.algorithms.base import option
from torchrl_elegant.config.text import UsageError
from torchrl_elegant.runs.config_file import from_yaml, to_yaml
from torchrl_elegant.trainers.run_config import RunConfig


@dataclass(frozen=True, kw_only=True)
class Toy:
    lr: float = option(1e-3, "step size")
    widths: tuple[int, ...] | None = option((64, 64), "hidden layers")
    mode: Literal["a", "b"] = option("a", "mode")


ALGORITHMS = {"toy": Toy}


def test_round_trip():
    run = RunConfig(
        env="ALE/Pong-v5", env_kwargs={"a": {"b": [1, 2]}, "c": None}, target_return=1e9
    )
    config = Toy(lr=1e-5, widths=(8,), mode="b")
    text = to_yaml("toy", run, config)
    assert from_yaml(text, algorithms=ALGORITHMS) == ("toy", run, config)
    assert yaml.safe_load(text)["version"] == 1


def test_hand_written_numbers():
    text = to_yaml("toy", RunConfig(), Toy()).replace("0.001", "3e-4")
    assert from_yaml(text, algorithms=ALGORITHMS)[2].lr == 3e-4


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("format: torchrl_elegant.run", "format: other", "format: torchrl_elegant.run"),
        ("version: 1", "version: 2", "version 1, got 2"),
        ("version: 1\n", "", "version 1, got None"),
        ("algorithm: toy", "algorithm: tou", "did you mean `toy`"),
        ("seed: 0", "sed: 0", "did you mean `seed`"),
        ("seed: 0", "seed: -1", "0 or more"),
        ("env_kwargs: {}", "env_kwargs: [1]", "plain data"),
        ("pixels: null", "pixels: {stack: 4}", "did you mean `pixels.frame_stack`"),
        ("seed: 0", "seed: !!python/object/apply:os.getcwd []", "not YAML"),
        ("format", "{", "not YAML"),
    ],
)
def test_wrong_files(old, new, expected):
    text = to_yaml("toy", RunConfig(), Toy())
    assert old in text
    with pytest.raises(UsageError, match=expected):
        from_yaml(text.replace(old, new, 1), algorithms=ALGORITHMS)


@pytest.mark.parametrize("text", ["", "3", "[]"])
def test_not_a_config(text):
    with pytest.raises(UsageError, match="mapping"):
        from_yaml(text, algorithms=ALGORITHMS)


def test_a_foreign_algorithm_is_stored_with_the_module_that_brings_it(monkeypatch):
    @dataclass(frozen=True, kw_only=True)
    class Mine(SACConfig):
        extra: float = option(1.0, "anything")

    monkeypatch.setitem(REGISTERED, "mine", Mine)
    register("mine")(Mine)
    text = to_yaml("mine", RunConfig(), Mine(extra=2.0))
    word = f"{__name__}:mine"
    assert f"algorithm: {word}\n" in text
    assert from_yaml(text, algorithms=REGISTERED) == (word, RunConfig(), Mine(extra=2.0))
    assert "algorithm: sac\n" in to_yaml("sac", RunConfig(), SACConfig())


def test_a_page_of_references_is_refused():
    with pytest.raises(UsageError, match="references, which no run writes"):
        from_yaml("a: &one [1]\nb: *one\n", algorithms={})
