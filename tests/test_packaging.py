"""The package as it is installed: its version, its extras, its commands, its pins."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import subprocess
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
    assert requirement.extras == set(extras()) - {"all", "dev", "bench"}


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


def start(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def test_scripts_explain_themselves() -> None:
    commands = [*SCRIPTS, *sorted((ROOT / "benchmarks").glob("[!_]*.py"))]
    running = {path.name: start(str(path), "--help") for path in commands}
    for name, process in running.items():
        printed, _ = process.communicate(timeout=120)
        assert process.returncode == 0, f"{name}: {printed}"
        assert len(printed.splitlines()) > 3, f"{name} explains nothing: {printed!r}"


def test_scripts_refuse_what_they_do_not_know() -> None:
    running = {path.name: start(str(path), "no_such_option=1") for path in SCRIPTS}
    for name, process in running.items():
        printed, _ = process.communicate(timeout=120)
        assert process.returncode == 2, f"{name}: {printed}"
        assert "Traceback" not in printed, f"{name}: {printed}"
