"""Rates: numbers, and their courses along a run, as values and as text."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import pytest
import yaml

from torchrl_elegant.algorithms import DQNConfig, PPOConfig, Ramp, SACConfig
from torchrl_elegant.cli.command_line import HelpRequest
from torchrl_elegant.cli.training import parse_training
from torchrl_elegant.config.changes import build, read_page
from torchrl_elegant.config.options import check_options, option, options_of
from torchrl_elegant.config.rates import Rate, ends_of, rate_text, shape_of
from torchrl_elegant.config.text import UsageError, as_text, parse_text
from torchrl_elegant.runs.config_file import from_yaml, to_yaml
from torchrl_elegant.trainers.run_config import RunConfig


@dataclass(frozen=True, kw_only=True)
class Free:
    name: ClassVar[str] = "free"
    rate: Rate = option(0.0, "a number without limits")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3e-4", 3e-4),
        ("3e-4..0", (3e-4, 0.0)),
        ("3e-4..0:cosine", (3e-4, 0.0, "cosine")),
        ("1e-3..1e-5:exponential", (1e-3, 1e-5, "exponential")),
        ("1e-3..1e-5", (1e-3, 1e-5)),
        ("-1..-.5", (-1.0, -0.5)),
        ("0.5..-0.25:linear", (0.5, -0.25, "linear")),
        ("1...5", (1.0, 0.5)),
        (" 1 .. 0 ", (1.0, 0.0)),
    ],
)
def test_texts_of_rates(text, value):
    found = parse_text(text, Rate)
    assert found == value
    assert parse_text(as_text(found, Rate), Rate) == found


@pytest.mark.parametrize(
    "text", ["", "..", "1..", "..0", "1..0..0", "1..0:", "1..0:cosin", "1:cosine", "1,0", "nan..0"]
)
def test_texts_that_are_no_rates(text):
    with pytest.raises(ValueError, match=r"a finite number, or first\.\.last\[:shape\]"):
        parse_text(text, Rate)


@pytest.mark.parametrize(
    ("rate", "ends", "shape"),
    [
        (0.5, (0.5, 0.5), "linear"),
        ((0.5, 0.1), (0.5, 0.1), "linear"),
        ([0.5, 0.1, "cosine"], (0.5, 0.1), "cosine"),
    ],
)
def test_parts_of_a_rate(rate, ends, shape):
    check_options(Free(rate=rate))
    assert (ends_of(rate), shape_of(rate)) == (ends, shape)


@pytest.mark.parametrize(
    "rate",
    [
        *(True, "1..0", None, (), (1.0,), (1.0, 0.0, "cosin"), (1.0, 0.0, "cosine", 1)),
        *((1.0, math.inf), (math.nan, 1.0), (1.0, "0"), (1.0, 0.0, "exponential")),
        (1.0, -1.0, "exponential"),
    ],
)
def test_values_that_are_no_rates(rate):
    with pytest.raises(ValueError, match=r"^`rate` must be a finite number, or first\.\.last"):
        check_options(Free(rate=rate))


@pytest.mark.parametrize(
    ("rate", "halfway"),
    [
        ((4.0, 1.0), 2.5),
        ((4.0, 1.0, "linear"), 2.5),
        ((4.0, 1.0, "cosine"), 2.5),
        ((4.0, 1.0, "exponential"), 2.0),
        (4.0, 4.0),
    ],
)
def test_courses_between_the_ends(rate, halfway):
    seen: list[float] = []
    ramp = Ramp(rate=rate, apply=seen.append)
    for progress in (0.0, 0.5, 1.0, 2.0):
        ramp.at(progress)
    first, last = ends_of(rate)
    assert seen == pytest.approx([first, halfway, last, last])


def test_a_cosine_begins_and_ends_flat():
    seen: list[float] = []
    ramp = Ramp(rate=(1.0, 0.0, "cosine"), apply=seen.append)
    for progress in (0.25, 0.75):
        ramp.at(progress)
    assert seen == pytest.approx([(1 + math.sqrt(0.5)) / 2, (1 - math.sqrt(0.5)) / 2])


@pytest.mark.parametrize(
    ("algorithm", "word", "told"),
    [
        ("ppo", "lr=-1..0", "`lr` must be a finite number above 0, or first..last[:shape], whe"),
        ("ppo", "lr=3e-4..-1", "exponential takes no 0 and no change of sign), got `0.0003..-1.0`"),
        ("ppo", "lr=0..3e-4", "got `0.0..0.0003`"),
        ("ppo", "lr=0", "`lr` must be a finite number above 0"),
        ("ppo", "lr=3e-4..0:cosin", "(shapes: linear, cosine, exponential; exponential takes no "),
        ("ppo", "lr=3e-4..0:exponential", "exponential takes no 0 and no change of sign), got `0"),
        ("ppo", "lr=3e-4..inf", "`lr` must be a finite number above 0"),
        ("ppo", "clip_epsilon=0.2..0", "`clip_epsilon` must be a number in (0, 1), or first..last"),
        ("ppo", "entropy_coeff=0.1..-0.1", "`entropy_coeff` must be a finite number of 0 or more"),
        ("sac", "alpha_lr=1..x", "`alpha_lr` must be a finite number above 0, or first..last"),
        ("dqn", "epsilon=1..1.5", "`epsilon` must be a number in [0, 1], or first..last[:shape]"),
        ("ddpg", "noise_std=1..-1", "`noise_std` must be a finite number of 0 or more, or first"),
        ("ppo", "lr_end=0", "unknown option `lr_end`: did you mean"),
        ("sac", "priority_beta=0.5", "`priority_beta` must stay 0.4..1.0 with priority_alpha=none"),
    ],
)
def test_mistakes_name_the_option(algorithm, word, told):
    with pytest.raises(UsageError) as error:
        parse_training([word], default=algorithm)
    assert told in str(error.value)


def test_words_and_python_say_the_same():
    words = ["lr=3e-4..0", "entropy_coeff=0.01..0.001:exponential", "clip_epsilon=0.2"]
    expected = PPOConfig(lr=(3e-4, 0.0), entropy_coeff=(0.01, 0.001, "exponential"))
    assert parse_training(words, default="ppo").config == expected
    words = ["actor_lr=3e-4..0", "critic_lr=1e-3", "alpha_lr=1e-4..1e-5"]
    expected = SACConfig(actor_lr=(3e-4, 0.0), critic_lr=1e-3, alpha_lr=(1e-4, 1e-5))
    assert parse_training(words, default="sac").config == expected


@pytest.mark.parametrize(
    "config",
    [PPOConfig(lr=(3e-4, 0.0, "cosine")), SACConfig(actor_lr=(3e-4, 0.0)), DQNConfig(epsilon=0.1)],
)
def test_config_yaml_there_and_back(config):
    algorithms = {config.name: type(config)}
    text = to_yaml(config.name, RunConfig(), config)
    assert from_yaml(text, algorithms=algorithms)[2] == config


@pytest.mark.parametrize("page", ["lr: 3e-4..0:cosine", "lr: [0.0003, 0, cosine]"])
def test_hand_written_yaml(page):
    config = build(PPOConfig, read_page(PPOConfig, yaml.safe_load(page)))
    assert config.lr == (3e-4, 0.0, "cosine")


def test_help_shows_rates_as_words():
    with pytest.raises(HelpRequest) as page:
        parse_training(["--help"], default="dqn")
    text = " ".join(str(page.value).split())
    assert "epsilon=1.0..0.05 fraction of random actions (a number in [0, 1], or first..la" in text
    assert "lr=0.001 learning rate (a finite number above 0, or first..last[:shape], whe" in text


def test_no_option_is_an_end_of_another():
    for config in (PPOConfig, SACConfig, DQNConfig):
        assert not [name for name in options_of(config) if name.endswith(("_end", "_start"))]


def test_text_of_a_list_is_that_of_a_tuple():
    assert rate_text([0.1, 0.0]) == rate_text((0.1, 0.0)) == "0.1..0.0"
