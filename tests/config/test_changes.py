"""Groups of options in configurations: words, files, presets and Hydra."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import pytest
import yaml
from faults.runs import SMALL
from hydra import compose, initialize
from hydra.utils import instantiate

from torchrl_elegant import tuned
from torchrl_elegant.algorithms import ALGORITHMS, SACConfig, register
from torchrl_elegant.algorithms.base import check, option
from torchrl_elegant.algorithms.tuned import TUNED
from torchrl_elegant.cli.command_line import HelpRequest, UsageError, parse, run_main
from torchrl_elegant.cli.hydra import register_groups
from torchrl_elegant.cli.training import train_command
from torchrl_elegant.config.changes import build, read_page
from torchrl_elegant.config.options import Option
from torchrl_elegant.runs.config_file import from_yaml, to_yaml
from torchrl_elegant.runs.train import stored_run, train
from torchrl_elegant.trainers.run_config import RunConfig


@dataclass(frozen=True, kw_only=True)
class Look:
    horizon: int = option(16, "steps looked ahead")
    weight: float = option(0.5, "factor of the term")
    powers: tuple[int, ...] = option((1, 2), "powers that are summed")

    def __post_init__(self):
        check(self.horizon >= 1, "horizon", "be at least 1", self.horizon)
        check(self.weight < 9, "term", "stay below 9", self.weight)


@dataclass(frozen=True, kw_only=True)
class Toy:
    name: ClassVar[str] = "toy"
    lr: float = option(1e-3, "step size")
    look: Look | None = option(None, "a term that looks ahead")

    def __post_init__(self):
        check(self.look is None or self.lr < 1, "lr", "be below 1 with look", self.lr)


@dataclass(frozen=True, kw_only=True)
class On:
    """Its group is on unless it is switched off."""

    look: Look | None = option(Look(horizon=3), "a term that looks ahead")


TOYS = {"toy": Toy, "on": On}


def read(*words, **kwargs):
    return parse(words, algorithms=TOYS, default="toy", **kwargs).config


def test_a_group_is_a_dataclass_or_none():
    def group_of(annotation):
        return Option(name="look", annotation=annotation, default=None).group

    assert group_of(Look | None) is Look
    for other in (Look, int | None, Look | int | None, Look | Toy, None, list[Look] | None):
        assert group_of(other) is None


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], None),
        (["look=true"], Look()),
        (["look=false"], None),
        (["look=none"], None),
        (["look.horizon=8"], Look(horizon=8)),
        (["look=true", "look.horizon=8"], Look(horizon=8)),
        (["look.horizon=8", "look=true"], Look(horizon=8)),
        (["look.powers=3,4", "look.weight=1"], Look(powers=(3, 4), weight=1.0)),
    ],
)
def test_words_switch_a_group_and_set_its_members(words, expected):
    assert read(*words) == Toy(look=expected)


def test_a_group_may_be_on_by_default():
    assert read("algorithm=on").look == read("algorithm=on", "look=true").look == Look(horizon=3)
    assert read("algorithm=on", "look=false").look is None
    assert read("algorithm=on", "look.weight=1").look == Look(horizon=3, weight=1)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["look=5"], "`look` must be true or false, or none, got '5'; set its options by name"),
        (["look=5"], "set its options by name, as look.horizon=16"),
        (["look="], "`look` must be true or false, or none, got ''"),
        (["look=false", "look.horizon=8"], "`look.horizon` must not be given with look=false"),
        (["look.horizon=8", "look=none"], "`look.horizon` must not be given with look=none"),
        (["look.horizn=3"], "unknown option `look.horizn`: did you mean `look.horizon`?"),
        (["look.qqq=3"], "choose from look.horizon, look.powers, look.weight"),
        (["lok.horizon=3"], "unknown option `lok.horizon`: did you mean `look.horizon`?"),
        (["horizon=3"], "unknown option `horizon`: did you mean `look.horizon`?"),
        (["look.a.b=1"], "`look.a.b` must be given by name: look.<name>=1"),
        (["look.horizon.x=1"], "`look.horizon.x` must be given by name: look.<name>=1"),
        (["look.=1"], "`look.` must be given by name: look.<name>=1"),
        (["look.horizon=x"], "`look.horizon` must be an integer, got 'x'"),
        (["look.horizon=0"], "`look.horizon` must be at least 1, got `0`"),
        (["look.weight=9"], "error: `term` must stay below 9"),
        (["look=true", "lr=2"], "error: `lr` must be below 1 with look"),
        (["look.horizon=1", "look.horizon=2"], "`look.horizon` is given twice"),
    ],
)
def test_mistakes_are_one_line(words, expected, capsys):
    assert run_main(lambda argv: read(*argv) and 0, words) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert expected in error


def rows_of(*words):
    with pytest.raises(HelpRequest) as page:
        read(*words, "--help")
    # A row goes on below its text.
    whole = re.sub(r"\n {20,}", " ", str(page.value))
    return [" ".join(line.split()) for line in whole.splitlines()]


def test_help_shows_the_members_below_their_group():
    rows = rows_of()
    start = rows.index(
        "look=false a term that looks ahead (true or false; true with any word below)"
    )
    assert rows[start + 1 : start + 4] == [
        "look.horizon=16 steps looked ahead (an integer)",
        "look.weight=0.5 factor of the term (a finite number)",
        "look.powers=1,2 powers that are summed (a list of at least one value, each an integer)",
    ]


def test_help_shows_a_group_that_is_on_with_what_it_has():
    rows = rows_of("algorithm=on")
    assert any(row.startswith("look=true ") for row in rows)
    assert any(row.startswith("look.horizon=3 ") for row in rows)


@pytest.mark.parametrize("look", [None, Look(), Look(horizon=8, powers=(5,))])
def test_config_yaml_there_and_back(look):
    config = Toy(look=look)
    text = to_yaml("toy", RunConfig(), config)
    assert from_yaml(text, algorithms=TOYS)[2] == config
    stored = yaml.safe_load(text)["config"]["look"]
    assert stored is None if look is None else stored["powers"] == list(look.powers)


def test_a_file_from_before_there_was_the_group_still_loads():
    text = to_yaml("toy", RunConfig(), Toy(lr=0.1)).replace("  look: null\n", "")
    assert "look" not in text
    assert from_yaml(text, algorithms=TOYS)[2] == Toy(lr=0.1)


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("look:", None),
        ("look: false", None),
        ("look: none", None),
        ("look: true", Look()),
        ("look: 'true'", Look()),
        ("look: {}", Look()),
        ("look: {horizon: 8, powers: [3]}", Look(horizon=8, powers=(3,))),
        # YAML 1.1 holds it for a text.
        ("look: {weight: 3e-1}", Look(weight=0.3)),
    ],
)
def test_hand_written_groups(page, expected):
    assert build(Toy, read_page(Toy, yaml.safe_load(page))) == Toy(look=expected)


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        (
            "look: {horizn: 3}",
            "unknown option `look.horizn` in the run's config: did you mean `look",
        ),
        ("look: {5: 3}", "unknown option `look.5` in the run's config: choose from look.horizon"),
        ("look: {weight: x}", "`look.weight` must be a finite number, got 'x'"),
        ("look: {horizon: 0}", "`look.horizon` must be at least 1, got `0`"),
        ("look: 5", "`look` must be true, false or its options by name, got `5`"),
        ("look: [1]", "`look` must be true, false or its options by name"),
        ("look: maybe", "`look` must be true or false, or none, got 'maybe'"),
    ],
)
def test_mistakes_in_a_file(page, expected):
    with pytest.raises(UsageError, match=re.escape(expected)):
        build(Toy, read_page(Toy, yaml.safe_load(page)))


@pytest.mark.parametrize(
    ("before", "words", "after"),
    [
        (Look(horizon=8), [], Look(horizon=8)),
        (Look(horizon=8), ["look.weight=0.1"], Look(horizon=8, weight=0.1)),
        (Look(horizon=8), ["look=true"], Look(horizon=8)),
        (Look(horizon=8), ["look=false"], None),
        (None, ["look.weight=0.1"], Look(weight=0.1)),
        (None, ["look=true"], Look()),
    ],
)
def test_words_change_a_stored_group(before, words, after):
    stored = ("toy", RunConfig(), Toy(lr=0.2, look=before))
    found = read("seed=1", *words, stored=lambda extra: stored)
    assert found == Toy(lr=0.2, look=after)


def test_what_is_off_in_a_stored_run_does_not_come_back_with_the_default():
    assert build(On, {"look": {"weight": 1}}, On(look=None)).look == Look(weight=1)
    assert build(On, {}, On(look=None)).look is None


@pytest.mark.parametrize(
    ("preset", "words", "after"),
    [
        ({"horizon": 8}, [], Look(horizon=8)),
        ({"horizon": 8}, ["look=true"], Look(horizon=8)),
        ({"horizon": 8}, ["look.weight=0.1"], Look(horizon=8, weight=0.1)),
        ({"horizon": 8}, ["look.horizon=2"], Look(horizon=2)),
        ({"horizon": 8}, ["look=false"], None),
        (True, [], Look()),
        (True, ["look.weight=0.1"], Look(weight=0.1)),
        (Look(horizon=8), [], Look(horizon=8)),
        (Look(horizon=8), ["look.weight=0.1"], Look(horizon=8, weight=0.1)),
        (False, [], None),
        (None, ["look.weight=0.1"], Look(weight=0.1)),
    ],
)
def test_words_stand_before_presets_member_by_member(preset, words, after):
    found = read(*words, preset=lambda *asked: {"look": preset, "lr": 0.2})
    assert found == Toy(lr=0.2, look=after)


@pytest.mark.parametrize("word", [[], ["look.weight=1"]])
def test_a_preset_is_checked_too(word):
    with pytest.raises(UsageError, match=r"unknown option `look\.horizn`: did you mean"):
        read(*word, preset=lambda *asked: {"look": {"horizn": 8}})


@dataclass(frozen=True, kw_only=True)
class Mine(SACConfig):
    look: Look | None = option(None, "a term that looks ahead")


@pytest.fixture
def mine(monkeypatch):
    """An algorithm with a group of options that its settings for one environment turn on."""
    monkeypatch.setitem(ALGORITHMS, "mine", Mine)
    register("mine")(Mine)
    settings: dict[str, Any] = {**TUNED["sac"]["Pendulum-v1"], "look": {"horizon": 8}}
    monkeypatch.setitem(TUNED, "mine", {"Pendulum-v1": settings})
    return settings


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, Look(horizon=8)),
        ({"look": {"weight": 0.1}}, Look(horizon=8, weight=0.1)),
        ({"look": {"horizon": 4}}, Look(horizon=4)),
        ({"look": Look(weight=0.1)}, Look(weight=0.1)),
        ({"look": True}, Look(horizon=8)),
        ({"look": False}, None),
        ({"look": None}, None),
    ],
)
@pytest.mark.usefixtures("mine")
def test_tuned_settings_may_hold_groups(change, expected):
    config, _ = tuned("mine", "Pendulum-v1", **change)
    assert config.look == expected
    assert config.num_cells == (64, 64)


def test_tuned_changes_turn_a_group_on(mine):
    del mine["look"]
    assert tuned("mine", "Pendulum-v1", look={"horizon": 4})[0].look == Look(horizon=4)
    with pytest.raises(ValueError, match=r"did you mean `look\.horizon`"):
        tuned("mine", "Pendulum-v1", look={"horizn": 4})


@pytest.mark.usefixtures("mine")
def test_a_run_stores_its_group_and_goes_on_with_a_changed_one(tmp_path):
    folder = tmp_path / "run"
    words = [*SMALL, "algorithm=mine", "total_frames=24", f"folder={folder}", "look.horizon=8"]
    assert train_command(words, program="x", default="sac") == 0
    assert stored_run(folder)[2].look == Look(horizon=8)
    words = [f"resume={folder}", "total_frames=28", "look.weight=0.1"]
    assert train_command(words, program="x", default="sac") == 0
    assert stored_run(folder)[2].look == Look(horizon=8, weight=0.1)


@pytest.mark.usefixtures("mine")
def test_a_configuration_in_python_holds_a_ready_group(tmp_path):
    config = Mine(look=Look(horizon=8), num_cells=(8,), batch_size=4, warmup=8)
    run = {"total_frames": 16, "eval_episodes": 1, "progress": False, "logger": "none"}
    folder = train(config, folder=str(tmp_path / "run"), **run).folder
    assert stored_run(folder)[2] == replace(config, compile=False)  # auto, decided
    assert replace(config, look=None).look is None


def composed(*overrides):
    register_groups()
    with initialize(version_base=None, config_path=None):
        return compose(overrides=["+trainer=elegant_mine", *overrides]).trainer


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ([], None),
        (["trainer.look=true"], Look()),
        (["trainer.look=false"], None),
        (["trainer.look={horizon: 8, powers: [3]}"], Look(horizon=8, powers=(3,))),
        (["+trainer.look.horizon=8"], Look(horizon=8)),
    ],
)
@pytest.mark.usefixtures("mine")
def test_hydra_shows_and_builds_groups(overrides, expected):
    cfg = composed(*overrides)
    assert "look" in cfg
    assert instantiate(cfg).config == Mine(look=expected)


@pytest.mark.usefixtures("mine")
def test_hydra_refuses_unknown_members():
    with pytest.raises(Exception, match=r"did you mean `look\.horizon`"):
        instantiate(composed("trainer.look={horizn: 8}"))


def test_hydra_shows_the_members_of_a_group_that_is_on(monkeypatch):
    @dataclass(frozen=True, kw_only=True)
    class Mine(SACConfig):
        look: Look | None = field(default=Look(horizon=3))

    monkeypatch.setitem(ALGORITHMS, "mine", Mine)
    register("mine")(Mine)
    cfg = composed("trainer.look.weight=0.1")
    assert cfg.look.horizon == 3
    assert instantiate(cfg).config == Mine(look=Look(horizon=3, weight=0.1))
