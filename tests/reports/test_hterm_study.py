"""The study of the H-term: its words, its stored seeds, and what it says of made-up runs."""

from __future__ import annotations

import csv
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
import _archive  # noqa: E402
import hterm_study  # noqa: E402
import learning  # noqa: E402
from _hterm_claim import judge  # noqa: E402

from torchrl_elegant.reports import Bootstrap  # noqa: E402

BOOTSTRAP = Bootstrap(resamples=2000)
PLAIN = ("task=ppo_pendulum", "seeds=8")


def normal(count, mean, std):
    """Runs with exactly this mean and std."""
    values = np.random.default_rng(0).permutation(np.linspace(-1, 1, count))
    return mean + std * values / values.std(ddof=1)


@pytest.mark.parametrize(
    ("runs", "answer", "steadier", "no_lower"),
    [
        (normal(40, 0.0, 0.1), "holds", "holds", "holds"),
        (normal(40, 3.0, 0.01), "holds", "holds", "holds"),
        # A fall by a half is one, but not the claimed one.
        (normal(40, 0.0, 0.5), "does not hold", "does not hold", "holds"),
        (normal(40, 0.0, 1.0), "does not hold", "does not hold", "holds"),
        (normal(40, 0.0, 0.35), "cannot be told", "cannot be told", "holds"),
        (normal(40, -2.0, 0.1), "does not hold", "holds", "does not hold"),
        (normal(40, -0.25, 0.1), "cannot be told", "holds", "cannot be told"),
        (normal(40, -2.0, 0.35), "does not hold", "cannot be told", "does not hold"),
        ([0.0], "cannot be told", "cannot be told", "cannot be told"),
    ],
)
def test_the_claim_is_judged_by_its_intervals(runs, answer, steadier, no_lower) -> None:
    found = judge(list(runs), list(normal(40, 0.0, 1.0)), BOOTSTRAP)
    assert (found.steadier, found.no_lower, found.answer) == (steadier, no_lower, answer)


def test_a_fall_is_judged_as_one_of_the_variance_too() -> None:
    # A std of a half is a variance of a quarter.
    found = judge(list(normal(200, 0.0, 0.5)), list(normal(200, 0.0, 1.0)), BOOTSTRAP)
    assert (found.steadier, found.steadier_by_variance) == ("does not hold", "holds")


def test_a_command_names_its_table() -> None:
    asked = hterm_study.parse(["task=ppo_pendulum", "name=trial", "lr=1e-4"])
    assert "name=trial lr=1e-4" in asked.command
    assert hterm_study.parse(shlex.split(asked.command)[2:]).title == "trial"


def test_of_a_base_without_spread_nothing_can_be_told() -> None:
    found = judge([500.0, 500.0, 490.0], [500.0] * 3, BOOTSTRAP)
    assert found.steadier == "cannot be told"


def study(tmp_path, *words):
    own = (f"runs={tmp_path / 'runs'}", f"results={tmp_path / 'results'}")
    return hterm_study.parse((*PLAIN, *own, *words))


def store(training, returns, *, setting=0.5):
    """What the seeds of an arm would have left."""
    for seed, value in enumerate(returns):
        _archive.add(training.archive, seed, ended(value, setting))


def ended(value, setting):
    curve = [[n * 1000, n * 10, n * 6.0, value * 4 / n] for n in range(1, 5)]
    return {
        "evaluation": {"return_mean": value, "return_std": 1.0},
        "curve": curve,
        "settings": {"run": {"env": "?"}, "config": {"hterm": {"weight": setting}}},
    }


def test_words_go_to_all_arms_and_arms_have_their_own(tmp_path) -> None:
    asked = study(tmp_path, "lr=1e-3", "arm.k4=hterm=true hterm.horizon=4", "arm.low=lr=1e-4")
    shared = "algorithm=ppo env=Pendulum-v1 tuned=true"
    assert {name: " ".join(words) for name, words in asked.compared.items()} == {
        "base": f"{shared} lr=1e-3",
        "k4": f"{shared} lr=1e-3 hterm=true hterm.horizon=4",
        "low": f"{shared} lr=1e-4",
    }
    assert "arm.k4='hterm=true hterm.horizon=4'" in asked.command


def test_a_task_brings_arms_and_seeds_of_its_own() -> None:
    asked = hterm_study.parse(["task=ppo_hopper"])
    assert list(asked.compared) == ["base", "h", "sb3"]
    assert [one.algorithm for one in asked.trainings] == ["ppo", "ppo", "_sb3:ppo"]
    assert asked.seed_range == range(10)
    later = hterm_study.parse(["task=ppo_hopper", "first_seed=100", "seeds=3"])
    assert later.seed_range == range(100, 103)


def test_an_arm_keeps_its_folder_under_another_name(tmp_path) -> None:
    _, one = study(tmp_path, "arm.a=lr=1e-4").trainings
    _, same, other = study(tmp_path, "arm.b=lr=1e-4", "arm.c=lr=1e-5").trainings
    assert one.folder == same.folder != other.folder
    assert one.archive == same.archive != other.archive


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("task=chess", "`task` must be one of"),
        ("arm.base=lr=1", "`arm.base` must be named by"),
        ("arm.a=", "`arm.a` must have words"),
        ("arm.a=lr", "`arm.a` must be made of key=value words, got 'lr'"),
        ("arm.a=total_frames=9", "`arm.a` must leave total_frames to all arms"),
        ("arm.a=seed=3", "`seed=3` must be left to the study"),
        ("algorithm=sac", "`algorithm=sac` must be left to the task"),
        ("hterm.horizon=4", "`hterm.horizon=4` must be given to arms"),
        ("train=maybe", "`train` must be true or false, got 'maybe'"),
        ("processes=0", "`processes` must be at least 1, got 0"),
    ],
)
def test_mistakes_are_refused(word, message) -> None:
    with pytest.raises(ValueError, match=message):
        hterm_study.parse([word])


def test_arms_of_the_same_settings_are_refused() -> None:
    with pytest.raises(ValueError, match=r"`arm.b` must differ from a"):
        _ = hterm_study.parse(["arm.a=lr=1 gamma=0.9", "arm.b=gamma=0.9 lr=1"]).trainings


def test_the_table_of_stored_seeds(tmp_path, capsys) -> None:
    asked = study(tmp_path, "train=false", "arm.h=hterm=true", "arm.sb3=algorithm=_sb3:ppo")
    base, treated, peer = asked.trainings
    store(base, normal(8, -200.0, 20.0))
    store(treated, normal(6, -150.0, 1.0), setting=0.7)
    store(peer, normal(8, -190.0, 10.0))
    assert hterm_study.run(asked, asked.trainings) == 0
    text = (tmp_path / "results" / "hterm_ppo_pendulum.md").read_text()
    assert "**`h`: the claim holds.** The std over seeds falls: -95 % (" in text
    assert "`sb3`: the claim" not in text
    assert "| base | 8 | -200.0 (" in text
    assert "| h | 6 | -150.0 (" in text
    assert "differ from the base's in `hterm.weight`." in text
    assert "left out: `h` seeds 6, 7." in text
    assert str(tmp_path) not in text
    with (tmp_path / "results" / "hterm_ppo_pendulum.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["arm"] for row in rows] == ["base"] * 8 + ["h"] * 6 + ["sb3"] * 8
    assert float(rows[0]["return"]) == pytest.approx(normal(8, -200.0, 20.0)[0], abs=0.001)
    assert rows[0]["frames"] == "4000"
    assert (tmp_path / "results" / "hterm_ppo_pendulum.png").stat().st_size > 10_000


def test_no_effect_is_told_as_none(tmp_path) -> None:
    asked = study(tmp_path, "train=false", "arm.h=hterm=true")
    for training in asked.trainings:
        store(training, normal(8, -200.0, 20.0))
    assert hterm_study.run(asked, asked.trainings) == 0
    text = (tmp_path / "results" / "hterm_ppo_pendulum.md").read_text()
    assert "**`h`: the claim does not hold.** The std over seeds may fall or rise: +0 % (" in text


def test_seeds_of_several_settings_are_told(tmp_path) -> None:
    asked = study(tmp_path, "train=false", "arm.h=hterm=true")
    base, treated = asked.trainings
    store(base, [1.0, 2.0])
    store(treated, [1.0, 2.0])
    _archive.add(treated.archive, 1, ended(2.0, 0.6))
    hterm_study.run(asked, asked.trainings)
    text = (tmp_path / "results" / "hterm_ppo_pendulum.md").read_text()
    assert "Its seeds do not agree in `hterm.weight`" in text


def test_a_table_is_not_replaced_by_one_that_lacks_seeds_of_it(tmp_path, capsys) -> None:
    asked = study(tmp_path, "train=false", "arm.h=hterm=true")
    base, treated = asked.trainings
    store(base, [1.0, 2.0])
    store(treated, [1.0, 2.0])
    assert hterm_study.run(asked, asked.trainings) == 0
    table = tmp_path / "results" / "hterm_ppo_pendulum.md"
    before = table.read_text()
    treated.archive.unlink()
    assert hterm_study.run(asked, asked.trainings) == 1
    said = "that of hterm_ppo_pendulum has 2 seeds that were not found, such as h 0; give this"
    assert said in capsys.readouterr().err
    assert table.read_text() == before
    other = study(tmp_path, "train=false", "arm.h=hterm=true", "name=less")
    assert hterm_study.run(other, other.trainings) == 0


def test_without_a_base_there_is_no_table(tmp_path, capsys) -> None:
    asked = study(tmp_path, "train=false")
    assert hterm_study.run(asked, asked.trainings) == 1
    assert "no seed of the base is finished" in capsys.readouterr().err


def test_folders_of_learning_studies_stay_where_they_are() -> None:
    # Finished seeds are found by this name: a name that changes is hours of training lost.
    asked = learning.parse(["task=catch", "algorithm=ppo"])
    assert asked.trainings[0].folder.name == "ppo-4af36e30"


def test_a_study_of_learning_has_arms_too() -> None:
    words = ["task=pendulum", "arm.norm=layer_norm=critics", "arm.low=actor_lr=1e-4 alpha_lr=1e-4"]
    asked = learning.parse([*words, "total_frames=10000", "name=norm"])
    assert {one.name: one.words for one in asked.trainings} == {
        "sac": (shared := ("env=Pendulum-v1", "tuned=true", "total_frames=10000")),
        "sac, norm": (*shared, "layer_norm=critics"),
        "sac, low": (*shared, "actor_lr=1e-4", "alpha_lr=1e-4"),
    }
    assert {one.algorithm for one in asked.trainings} == {"sac"}
    assert len({one.archive for one in asked.trainings}) == 3
    again = learning.parse(shlex.split(asked.command)[2:])
    assert again == asked


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("algorithm=sac,td3", "arm.a=gamma=0.9"), "`algorithm` must be one beside arms"),
        (("arm.a=algorithm=td3",), "`arm.a` must leave algorithm to all arms"),
        (("arm.a=total_frames=9",), "`arm.a` must leave total_frames to all arms"),
        (("gamma=0.9", "arm.a=gamma=0.9"), "`arm.a` must differ from base"),
    ],
)
def test_arms_that_compare_nothing_are_refused(words, message) -> None:
    with pytest.raises(ValueError, match=message):
        _ = learning.parse(words).trainings
