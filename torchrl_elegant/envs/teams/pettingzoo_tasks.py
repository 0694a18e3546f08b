"""Parallel environments of PettingZoo by their names."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

# Libraries of environments that PettingZoo's registry does not hold.
_LIBRARIES = ("mpe2",)
_FORMS = "'<module>:<environment>' or an id in PettingZoo's registry"
_UNEXPECTED = re.compile(r"unexpected keyword argument '(\w+)'")


def task_names() -> list[str]:
    """Names of all that PettingZoo and mpe2 bring; empty where PettingZoo is not installed.

    >>> "mpe2:simple_spread_v3" in task_names(), "butterfly/pistonball-v6" in task_names()
    (True, True)
    """
    if not _is_installed("pettingzoo"):
        return []
    return [f"{name}:{task}" for name in _LIBRARIES for task in _below(name)] + [*_registry()]


def make_task(task: str, arguments: Mapping[str, Any]) -> Any:
    """Makes a parallel environment from its name; ValueError for an argument that it lacks.

    >>> make_task("mpe2:simple_spread_v3", {"N": 2}).possible_agents
    ['agent_0', 'agent_1']
    """
    make, raw = _found(task)
    try:
        return make(**arguments)
    except TypeError as error:
        unexpected = _UNEXPECTED.search(str(error))
        if unexpected is None:
            raise
        known = _parameters(raw)
        told = f"; the nearest: {_nearest(unexpected[1], known)}; all: {', '.join(known)}"
        raise ValueError(
            f"`{unexpected[1]}` is no argument of `{task}`{told if known else ''}"
        ) from error


def _found(task: str) -> tuple[Callable[..., Any], Any]:
    """Callable that makes an environment, and the one that tells its arguments."""
    _require("pettingzoo", task)
    module, colon, name = task.partition(":")
    if colon and module and name:
        _require(module.partition(".")[0], task)
        found = _module(f"{module}.{name}", task)
        if found is None:
            own = _attribute(module, name, task)
            return own, own
        make = _parallel(found, task)
        return make, vars(found).get("raw_env", make)
    spec = _registry().get(task)
    if spec is None:
        raise ValueError(
            f"`task` must be {_FORMS}, got `{task}`; the nearest: {_nearest(task, task_names())}"
        )
    import pettingzoo

    make, entry = partial(pettingzoo.make, "parallel", task), spec.entry_point
    # An id that a user has registered may hold a callable.
    holder = _module(entry.partition(":")[0], task) if isinstance(entry, str) else None
    return make, entry if holder is None else vars(holder).get("raw_env", entry)


def _module(name: str, task: str) -> Any:
    """The module; None where there is none of this name."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            return None
        family = re.search(r"pettingzoo\.(\w+)", name)
        wanted = f"'pettingzoo[{family[1]}]'" if family else error.name
        raise ImportError(
            f"`{task}` needs a package that is not installed, `{error.name}`: pip install {wanted}"
        ) from error


def _parallel(module: Any, task: str) -> Callable[..., Any]:
    made: Callable[..., Any] | None = vars(module).get("parallel_env")
    if made is None:
        raise ValueError(
            f"`task` must have a `parallel_env`, got `{task}`, whose agents act in turn; choose "
            "one whose agents act at once"
        )
    return made


def _attribute(module_name: str, name: str, task: str) -> Callable[..., Any]:
    module = _module(module_name, task)
    if module is None:
        raise ValueError(
            f"`task` must name an importable module before the colon, got `{task}`; run from the "
            "folder that holds it"
        )
    found = vars(module).get(name)
    if not callable(found):
        raise ValueError(
            f"`task` must name an environment of `{module_name}` after the colon, got `{task}`; "
            f"the nearest: {_nearest(name, _below(module_name)) or 'none'}"
        )
    return found


def _registry() -> Mapping[str, Any]:
    import pettingzoo

    known: Mapping[str, Any] = pettingzoo.parallel_registry
    return known


def _below(module: str) -> Iterator[str]:
    """Modules of a package that are called as environments are."""
    spec = importlib.util.find_spec(module) if _is_installed(module) else None
    places = spec.submodule_search_locations if spec is not None else None
    found = [each.name for each in pkgutil.iter_modules(places)] if places else []
    return (name for name in found if re.search(r"_v\d+$", name))


def _parameters(target: Any) -> list[str]:
    """Names of the arguments, as far as the code tells them."""
    if not callable(target):
        return []
    parameters = inspect.signature(target).parameters.values()
    unnamed = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [each.name for each in parameters if each.kind not in unnamed]


def _nearest(name: str, known: Iterable[str]) -> str:
    return ", ".join(difflib.get_close_matches(name, [*known], n=3, cutoff=0.0))


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _require(module: str, task: str) -> None:
    if module in ("pettingzoo", *_LIBRARIES) and not _is_installed(module):
        raise ImportError(
            f"`{task}` needs a package that is not installed, `{module}`: "
            "pip install torchrl_elegant[pettingzoo]"
        )
