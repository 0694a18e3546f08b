"""The house keeps its order: packages import only from lower packages, files stay readable."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "torchrl_elegant"

# A package imports only from packages with a smaller number, and from itself.
FLOORS = {
    "functional": 0,
    "config": 0,
    "envs": 1,
    "modules": 1,
    "data": 1,
    "objectives": 2,
    "collectors": 2,
    "algorithms": 3,
    "trainers": 4,
    "runs": 5,
    "tournament": 6,
    "reports": 6,
    "cli": 7,
}
FILE_LINES, BODY_LINES, FOLDER_FILES, NEIGHBOR_LINES = 400, 40, 20, 60
SCRIPT_LINES = 100

LIBRARY = sorted((ROOT / PACKAGE).rglob("*.py"))
SCRIPTS = sorted((ROOT / "scripts").glob("*.py"))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def module_of(path: Path) -> tuple[str, ...]:
    """Dotted parts of the package that a file's relative imports start from, and its own name."""
    return path.relative_to(ROOT).with_suffix("").parts


def imported(tree: ast.AST, module: tuple[str, ...]) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Line and dotted parts of everything imported, wherever it stands, relative names resolved."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, tuple(alias.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            base = module[: -node.level] if node.level else ()
            parts = (*base, *(node.module or "").split(".")) if node.module else base
            for alias in node.names:
                yield node.lineno, (*parts, alias.name)


def order_faults(source: str, module: tuple[str, ...]) -> list[str]:
    """Imports of one library file that do not point to a lower floor."""
    if module in ((PACKAGE, "__init__"), (PACKAGE, "__main__")):
        return []
    room = module[1]
    if room not in FLOORS:
        return [f"{room} is no room of the house: give it a floor in FLOORS"]
    floor, faults = FLOORS[room], []
    for line, parts in imported(ast.parse(source), module):
        if parts[0] != PACKAGE or parts[1] == room:
            continue
        if parts[1:] == ("__version__",) and floor == max(FLOORS.values()):
            continue  # Nothing imports the top floor, so no circle can arise.
        if parts[1] not in FLOORS or FLOORS[parts[1]] >= floor:
            faults.append(f"line {line}: {room} imports {'.'.join(parts)}")
    return faults


def call_faults(source: str) -> list[str]:
    """Calls that the library does not make: ``print`` and ``time.time``."""
    faults = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("print", "time.time"):
            faults.append(f"line {node.lineno}: {ast.unparse(node.func)}()")
        if isinstance(node, ast.ImportFrom) and node.module == "time":
            faults += [f"line {node.lineno}: time.time" for a in node.names if a.name == "time"]
    return faults


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function's statements, without its signature and docstring."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def length_faults(source: str, bound: int) -> list[str]:
    faults = []
    if (lines := len(source.splitlines())) > bound:
        faults.append(f"{lines} lines, at most {bound}: two ideas in a file are two files")
    for node in ast.walk(ast.parse(source)):
        function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if function and (lines := body_lines(node)) > BODY_LINES:
            faults.append(f"line {node.lineno}: {node.name} has {lines}, at most {BODY_LINES}")
    return faults


def neighbor_faults(sources: dict[tuple[str, ...], str]) -> list[str]:
    """Small files that one neighbor alone imports, and no package exports."""
    importers: dict[tuple[str, ...], set[tuple[str, ...]]] = {module: set() for module in sources}
    for module, source in sources.items():
        for _, parts in imported(ast.parse(source), module):
            for end in (len(parts), len(parts) - 1):
                if parts[:end] in importers:
                    importers[parts[:end]].add(module)
    faults = []
    for module, source in sources.items():
        exported = any(other[-1] == "__init__" for other in importers[module])
        small = len(source.splitlines()) < NEIGHBOR_LINES and module[-1] != "__init__"
        if small and not exported and len(importers[module]) == 1:
            (only,) = importers[module]
            faults.append(f"{'/'.join(module)} serves {'/'.join(only)} alone: it lives beside it")
    return faults


def script_faults(source: str) -> list[str]:
    """A script parses, calls and prints: what needs a class beyond its options is library."""
    faults = length_faults(source, SCRIPT_LINES)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef):
            decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
            if not any("dataclass" in decorator for decorator in decorators):
                faults.append(f"line {node.lineno}: class {node.name} belongs in the library")
            if any(isinstance(item, ast.FunctionDef) for item in node.body):
                faults.append(f"line {node.lineno}: {node.name} has methods")
        if isinstance(node, ast.For | ast.While):
            faults.append(f"line {node.lineno}: a loop belongs in the library")
    return faults


def test_the_house_has_files() -> None:
    assert len(LIBRARY) > 20
    assert len(SCRIPTS) >= 2


@pytest.mark.parametrize("path", LIBRARY, ids=name_of)
def test_rooms_import_only_from_lower_floors(path: Path) -> None:
    assert order_faults(path.read_text(), module_of(path)) == []


@pytest.mark.parametrize("path", LIBRARY, ids=name_of)
def test_files_and_functions_stay_readable(path: Path) -> None:
    assert length_faults(path.read_text(), FILE_LINES) == []


@pytest.mark.parametrize("folder", sorted({path.parent for path in LIBRARY}), ids=name_of)
def test_a_folder_holds_few_files(folder: Path) -> None:
    assert len([path for path in folder.glob("*.py") if path.name != "__init__.py"]) <= FOLDER_FILES


def test_every_small_file_is_exported_or_shared() -> None:
    assert neighbor_faults({module_of(path): path.read_text() for path in LIBRARY}) == []


@pytest.mark.parametrize("path", LIBRARY, ids=name_of)
def test_the_library_neither_prints_nor_times_by_hand(path: Path) -> None:
    assert call_faults(path.read_text()) == []


@pytest.mark.parametrize("path", LIBRARY, ids=name_of)
def test_every_library_file_says_what_it_is(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text()))


@pytest.mark.parametrize("path", SCRIPTS, ids=name_of)
def test_scripts_are_thin(path: Path) -> None:
    assert script_faults(path.read_text()) == []


@pytest.mark.parametrize(
    "line",
    [
        "from torchrl_elegant.trainers import train",
        "import torchrl_elegant.trainers.off_policy",
        "from torchrl_elegant import trainers",
        "from ..trainers import loop",
        "from .. import reports",
        "from ..collectors.sync import SyncCollector",
        "from torchrl_elegant import SACLoss",
        "from .. import __version__",
        "def f():\n    from ..algorithms.base import option",
        "if True:\n    import torchrl_elegant.objectives as o, torchrl_elegant.collectors as c",
    ],
)
def test_an_import_out_of_order_is_found(line: str) -> None:
    assert len(order_faults(line, (PACKAGE, "objectives", "sac"))) == 1


@pytest.mark.parametrize(
    "line",
    [
        "from ..functional import bellman_target",
        "from torchrl_elegant.modules.bounded_actor import SquashedGaussianActor",
        "from .networks import networks",
        "from . import networks",
        "from torchrl_elegant.objectives import networks",
        "import torch, torchrl.collectors",
        "from torchrl.trainers import Trainer",
    ],
)
def test_an_import_in_order_is_let_pass(line: str) -> None:
    assert order_faults(line, (PACKAGE, "objectives", "sac")) == []


def test_commands_may_read_the_version() -> None:
    line = "from torchrl_elegant import __version__"
    assert order_faults(line, (PACKAGE, "cli", "main")) == []
    assert order_faults("from torchrl_elegant import train", (PACKAGE, "cli", "main"))


def test_neighbours_on_one_floor_are_kept_apart() -> None:
    assert order_faults("from ..modules import actor", (PACKAGE, "envs", "make"))
    assert order_faults("from ..envs import make_env", (PACKAGE, "envs", "make")) == []


def test_a_package_without_a_floor_is_found() -> None:
    assert order_faults("", (PACKAGE, "utils", "__init__"))


def test_a_package_file_resolves_its_relative_imports_from_itself() -> None:
    found = imported(ast.parse("from .sac import SACLoss"), (PACKAGE, "objectives", "__init__"))
    assert list(found) == [(1, (PACKAGE, "objectives", "sac", "SACLoss"))]


@pytest.mark.parametrize(
    ("source", "faults"),
    [
        ("print('x')", 1),
        ("import time\nstart = time.time()", 1),
        ("from time import time", 1),
        ("'''\n>>> print(1)\n'''\nimport time\ntime.strftime('%Y')\nprinter()", 0),
    ],
)
def test_forbidden_calls_are_found(source: str, faults: int) -> None:
    assert len(call_faults(source)) == faults


def test_long_files_and_functions_are_found() -> None:
    long = "def f():\n    '''Doc.'''\n" + "    x = 1\n" * BODY_LINES
    assert length_faults(long, 100) == []
    assert len(length_faults(long + "    x = 1\n", 100)) == 1
    assert len(length_faults("x = 1\n" * 101, 100)) == 1


@pytest.mark.parametrize(
    ("source", "faults"),
    [
        ("class Trainer:\n    pass", 1),
        ("@dataclass\nclass Extra:\n    resume: str = ''", 0),
        ("@dataclass\nclass Extra:\n    def run(self): pass", 1),
        ("for frame in range(3):\n    step()", 1),
        ("x = 1\n" * (SCRIPT_LINES + 1), 1),
    ],
)
def test_thick_scripts_are_found(source: str, faults: int) -> None:
    assert len(script_faults(source)) == faults


def test_a_small_file_of_one_neighbor_is_found() -> None:
    house = {
        (PACKAGE, "data", "__init__"): "from torchrl_elegant.data.replay import make_buffer",
        (PACKAGE, "data", "replay"): "from torchrl_elegant.data.rows import Rows",
        (PACKAGE, "data", "rows"): "class Rows: ...",
    }
    assert len(neighbor_faults(house)) == 1
    assert neighbor_faults({**house, (PACKAGE, "data", "rows"): "x = 1\n" * NEIGHBOR_LINES}) == []
    shared = {(PACKAGE, "data", "slices"): "from torchrl_elegant.data.rows import Rows\n" * 60}
    assert neighbor_faults({**house, **shared}) == []
    assert (
        neighbor_faults({(PACKAGE, "data", "replay"): "from torchrl_elegant.data import rows"})
        == []
    )
