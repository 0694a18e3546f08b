"""The package as it is installed: its version, its extras, its commands, its pins."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import runpy
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
NAME = "torchrl_elegant"
SCRIPTS = sorted((ROOT / "scripts").glob("*.py"))
NAMED_EXTRAS = re.compile(rf"{NAME}\[([\w, -]+)\]")


def configuration() -> ConfigParser:
    # Coverage and pytest use %-signs and braces of their own.
    parser = ConfigParser(interpolation=None)
    parser.read(ROOT / "setup.cfg")
    return parser


def extras() -> dict[str, list[Requirement]]:
    section = configuration()["options.extras_require"]
    return {
        name: [Requirement(line) for line in text.split("\n") if line]
        for name, text in section.items()
    }


def pins() -> dict[str, Requirement]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    found = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(requirement.name): requirement for requirement in found}


def named_extras(text: str) -> set[str]:
    return {name.strip() for match in NAMED_EXTRAS.findall(text) for name in match.split(",")}


def required() -> list[Requirement]:
    """Everything that setup.cfg asks for, the package's own extras resolved by their contents."""
    text = configuration()["options"]["install_requires"]
    base = [Requirement(line) for line in text.split("\n") if line]
    every = [item for items in extras().values() for item in items]
    return [item for item in base + every if item.name != NAME]


def test_version_of_the_metadata_is_that_of_setup_cfg() -> None:
    assert importlib.metadata.version(NAME) == configuration()["metadata"]["version"]


def test_changelog_starts_with_the_version() -> None:
    headings = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == configuration()["metadata"]["version"]


def test_package_is_marked_as_typed() -> None:
    spec = importlib.util.find_spec(NAME)
    assert spec is not None
    assert spec.origin is not None
    assert (Path(spec.origin).parent / "py.typed").is_file()
    assert configuration()["options.package_data"][NAME] == "py.typed"


@pytest.mark.parametrize(
    "path",
    [*sorted((ROOT / NAME).rglob("*.py")), *SCRIPTS, ROOT / "Makefile", ROOT / "setup.cfg"],
    ids=lambda path: path.relative_to(ROOT).as_posix(),
)
def test_every_extra_that_is_named_exists(path: Path) -> None:
    assert named_extras(path.read_text()) <= set(extras())


def test_an_extra_that_does_not_exist_is_found() -> None:
    assert named_extras(f'pip install "{NAME}[mujoco, isaac]"') - set(extras()) == {"isaac"}


def test_the_makefile_asks_for_extras_that_exist() -> None:
    text = (ROOT / "Makefile").read_text()
    asked = re.search(r"^TRAIN_EXTRAS := (.+)$", text, re.MULTILINE)
    assert asked is not None
    assert {"mujoco", "box2d", "tensorboard"} <= set(asked[1].split(",")) <= set(extras())


def test_all_holds_every_extra_for_users() -> None:
    (requirement,) = extras()["all"]
    assert requirement.extras == set(extras()) - {"all", "bench", "dev", "docs"}


@pytest.mark.parametrize(("extra", "beside"), [("box2d", "pygame"), ("mujoco", "imageio")])
def test_simulators_bring_what_gymnasium_asks_for_beside_them(extra: str, beside: str) -> None:
    lines = map(Requirement, importlib.metadata.requires("gymnasium") or ())
    wanted = {
        # Two packages of one module, of which Gymnasium has asked for either.
        line.name.removesuffix("-ce")
        for line in lines
        if line.marker is not None and line.marker.evaluate({"extra": extra})
    }
    assert beside in wanted
    with_torchrl = {"packaging"}
    brought = {line.name.lower().removesuffix("-ce") for line in extras()[extra]}
    assert wanted <= brought | with_torchrl


@pytest.mark.parametrize("requirement", required(), ids=str)
def test_pins_lie_within_what_is_required(requirement: Requirement) -> None:
    pin = pins().get(canonicalize_name(requirement.name))
    unpinned = ("wandb", "mlflow")
    assert pin is not None or requirement.name in unpinned
    if pin is not None:
        (version,) = [specifier.version for specifier in pin.specifier]
        assert requirement.specifier.contains(version)


def test_pins_are_exact_and_name_no_build() -> None:
    for pin in pins().values():
        (specifier,) = pin.specifier
        assert specifier.operator == "=="
        assert "+" not in specifier.version


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]):
    """Runs a script as its own program, but for the start of an interpreter; how it ended."""

    def go(path: Path, *words: str) -> tuple[object, str]:
        monkeypatch.setattr(sys, "argv", [str(path), *words])
        monkeypatch.syspath_prepend(path.parent)
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(path), run_name="__main__")
        streams = capfd.readouterr()
        return ended.value.code or 0, streams.out + streams.err

    return go


@pytest.mark.parametrize(
    "path", [*SCRIPTS, *sorted((ROOT / "benchmarks").glob("[!_]*.py"))], ids=lambda path: path.name
)
def test_a_script_explains_itself(started, path: Path) -> None:
    code, printed = started(path, "--help")
    assert code == 0, printed
    assert len(printed.splitlines()) > 3, f"explains nothing: {printed!r}"


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_a_script_refuses_what_it_does_not_know(started, path: Path) -> None:
    code, printed = started(path, "no_such_option=1")
    assert code == 2
    assert "no_such_option" in printed
    assert "Traceback" not in printed
