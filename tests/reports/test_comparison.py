"""The page of a comparison: whole, safe, and never over somebody's files."""

from __future__ import annotations

import errno
import os
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from run_folders import run_folder, sweep_folder

import torchrl_elegant
from torchrl_elegant.cli.main import main
from torchrl_elegant.config.text import UsageError
from torchrl_elegant.reports import compare, pictures

HOSTILE = "<script>alert(1)</script>$\\frac{$_^&%#~|`[x](y)"


@pytest.fixture
def sweeps(tmp_path: Path) -> Path:
    """Two algorithms on two environments, three seeds each."""
    for env in ("Pendulum-v1", "MountainCarContinuous-v0"):
        for algorithm, first in (("sac", 1.0), ("td3", 4.0)):
            finals = [first, first + 1.0, first + 2.0]
            folder = tmp_path / "runs" / f"{env}-{algorithm}"
            sweep_folder(folder, finals, algorithm=algorithm, run={"env": env})
    return tmp_path / "runs"


class Elements(HTMLParser):
    """Counts elements, and keeps whatever would load something from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.count: dict[str, int] = {}
        self.loaded: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.count[tag] = self.count.get(tag, 0) + 1
        for name, value in attrs:
            here = (value or "").startswith("#") or name.startswith("xmlns")
            if name in ("src", "href", "xlink:href") and not here:
                self.loaded.append(value or "")


def elements(page: str) -> Elements:
    found = Elements()
    found.feed(page)
    return found


def test_a_comparison_writes_one_page_that_needs_nothing_else(sweeps, tmp_path):
    comparison = compare([sweeps], out=tmp_path / "out")
    page = (tmp_path / "out" / "comparison.html").read_text()
    found = elements(page)
    # Curves and scores of both environments, and the scores of both together.
    assert found.count["svg"] == 5
    assert found.loaded == []
    assert not re.search(r"url\((?!#)|@import", page)
    assert "script" not in found.count
    assert comparison.notes == ("4 groups have fewer than 5 seeds: their intervals are too narrow",)
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names[:3] == ["comparison.html", "comparison.md", "comparison.tex"]
    assert all((tmp_path / "out" / name).read_bytes()[1:4] == b"PNG" for name in names[3:])


def test_letters_and_lines_take_the_color_of_the_page(sweeps):
    page = compare([sweeps]).html()
    assert pictures._INK not in page
    assert "currentColor" in page
    assert "prefers-color-scheme: dark" in page


def test_the_tables_hold_what_a_hand_works_out(sweeps):
    text = compare([sweeps]).markdown()
    # Of three runs, the middle half is half of the outer two and the middle one.
    row = next(line for line in text.splitlines() if line.startswith("| td3 | 3 | 5 ("))
    cells = [cell.strip() for cell in row.split("|")[1:-1]]
    assert cells[3:] == ["5", "1", "4", "6", "0.5"]
    assert "| td3 | – | 1.00 (1.00 to 1.00) |" in text  # noqa: RUF001
    # Scaled by 1 and 6, in both environments alike: 3, 4, 5 fifths.
    assert "| td3 | 6 | 0.800 (" in text
    assert "| sac | 6 | 0.200 (" in text


def test_the_same_runs_give_the_same_page(sweeps):
    assert compare([sweeps]).html() == compare([sweeps]).html()


def test_what_a_configuration_holds_is_shown_as_text(tmp_path):
    folder = run_folder(tmp_path / "run")
    other = run_folder(tmp_path / "other")
    for path, name in ((folder, HOSTILE), (other, f"_{HOSTILE}")):
        text = (path / "config.yaml").read_text()
        text = text.replace("Pendulum-v1", f"'{HOSTILE}'").replace("m: sac", f"m: '{name}'", 1)
        (path / "config.yaml").write_text(text)
    comparison = compare([tmp_path])
    page = comparison.html()
    assert "script" not in elements(page).count
    assert "&lt;script&gt;" in page
    assert "\\<script\\>" in comparison.markdown()
    assert r"\textless{}script\textgreater{}alert(1)" in comparison.latex()
    assert len(comparison.sections[0].groups) == 2


def test_no_panel_holds_more_groups_than_can_be_told_apart(tmp_path):
    for number in range(11):
        sweep_folder(tmp_path / str(number), [1.0, 2.0], gamma=0.9 + number / 1_000)
    comparison = compare([tmp_path])
    (section,) = comparison.sections
    figure = pictures.curves(section, pictures.places(comparison.sections))
    lines = [len(axes.get_legend().get_lines()) for axes in figure.axes]
    assert lines == [8, 3]
    assert all(axes.get_xlabel() and axes.get_ylabel() for axes in figure.axes)
    assert len({axes.get_ylim() for axes in figure.axes}) == 1
    page = comparison.html()
    assert page.count("<svg") == 2
    assert page.count("the best 8 of 11 groups") == 2
    assert "<td>1: sac, gamma=" in page


def test_a_group_has_one_color_on_the_whole_page(tmp_path):
    sweep_folder(tmp_path / "a", [1.0], algorithm="td3")
    sweep_folder(tmp_path / "b", [0.0], algorithm="sac")
    cart = {"env": "MountainCarContinuous-v0"}
    sweep_folder(tmp_path / "c", [0.0], algorithm="td3", run=cart)
    sweep_folder(tmp_path / "d", [1.0], algorithm="sac", run=cart)
    comparison = compare([tmp_path])
    colors = pictures.places(comparison.sections)
    seen = [
        {line.get_label().partition(";")[0]: line.get_color() for line in axes.lines}
        for section in comparison.sections
        for axes in pictures.curves(section, colors).axes
    ]
    assert seen[0] == seen[1]


def test_a_run_far_below_all_others_does_not_press_the_curves_flat(tmp_path):
    sweep_folder(tmp_path, [1.0, 2.0, 3.0, 4.0, -1e9])
    (section,) = compare([tmp_path]).sections
    low, _ = pictures.curves(section, {}).axes[0].get_ylim()
    assert low > -1e3


def test_one_run_with_one_evaluation_is_a_page_as_well(tmp_path):
    run_folder(tmp_path / "run", points=((100, 3.0),))
    comparison = compare([tmp_path])
    assert "| sac | 1 | 3 | 3 | – | 3 | 3 |" in comparison.markdown()  # noqa: RUF001
    assert comparison.html().count("<svg") == 1


def test_a_run_that_does_not_tell_its_time_is_compared_as_well(tmp_path):
    folder = run_folder(tmp_path / "run")
    (folder / "metrics.csv").write_text("frames,return_mean\n100,3\n")
    comparison = compare([tmp_path])
    assert "nan" not in comparison.markdown()
    assert '<td class="number">nan' not in comparison.html()


def test_runs_that_cannot_be_read_are_named_and_the_others_compared(tmp_path):
    run_folder(tmp_path / "good")
    (run_folder(tmp_path / "bad") / "metrics.csv").write_text("garbage")
    notes = compare([tmp_path]).notes
    assert notes[0].startswith(f"{tmp_path / 'bad'} is left out: its metrics.csv is damaged")


def test_one_folder_needs_no_list(sweeps):
    page = compare([sweeps]).markdown()
    assert page == compare(str(sweeps)).markdown() == compare(sweeps).markdown()


def test_nothing_to_compare_is_refused(tmp_path):
    (run_folder(tmp_path / "bad") / "metrics.csv").write_text("garbage")
    with pytest.raises(UsageError, match=r"got none: .*bad is left out"):
        compare([tmp_path])
    with pytest.raises(UsageError, match="which does not exist"):
        compare([tmp_path / "nowhere"])
    with pytest.raises(UsageError, match=r"`runs` must be run folders, .*: File name too long"):
        compare(["x" * 300])
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="which holds no run"):
        compare([tmp_path / "empty"])


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
def test_a_place_that_takes_no_page_is_told_in_one_line(tmp_path, sweeps, monkeypatch, number):
    (tmp_path / "out").mkdir()

    def refuse(*args: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("torchrl_elegant.reports.comparison.write_file", refuse)
    told = f"`out` must be where files can be written, got .*{os.strerror(number)}; choose another"
    with pytest.raises(UsageError, match=told):
        compare([sweeps], out=tmp_path / "out")
    with pytest.raises(UsageError, match=r"`out` must be where .*: File name too long"):
        compare([sweeps], out=tmp_path / ("x" * 300))


def test_a_folder_that_holds_anything_is_never_written_into(tmp_path, sweeps):
    kept = tmp_path / "out"
    kept.mkdir()
    (kept / "comparison.html").write_text("mine")
    with pytest.raises(UsageError, match="`out` must be a new or empty folder"):
        compare([sweeps], out=kept)
    with pytest.raises(UsageError, match="`out` must be a new or empty folder"):
        compare([sweeps], out=kept / "comparison.html")
    assert [(path.name, path.read_text()) for path in kept.iterdir()] == [
        ("comparison.html", "mine")
    ]


def test_without_a_name_each_page_gets_a_folder_of_its_own(tmp_path, sweeps, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("comparison", "comparison-2"):
        assert main(["compare", str(sweeps / "Pendulum-v1-sac")]) == 0
        out = capsys.readouterr().out
        assert out.splitlines()[-1] == f"page: {name}/comparison.html"
        assert "Pendulum-v1  sac  2 (1 to 3)" in out
        assert "note: 1 group has fewer than 5 seeds" in out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "write torchrl-elegant compare <folder> ..."),
        (["nowhere"], "got 'nowhere', which does not exist"),
        ([".", "at=0"], "`at` must be an integer of 1 or more"),
        ([".", "uot=x"], "did you mean `out`"),
    ],
)
def test_a_mistake_is_one_line(capsys, words, told):
    assert main(["compare", *words]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert told in err


def test_the_package_offers_it():
    assert torchrl_elegant.compare is compare
