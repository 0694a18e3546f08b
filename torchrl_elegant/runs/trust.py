"""Names in a stored configuration that would run code, and whose word lets them."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium

from torchrl_elegant.config.text import UsageError
from torchrl_elegant.envs import PREFIXES

# Names of environments that the user of this process has given, and with which arguments.
_KNOWN: set[tuple[str, str]] = set()
_ANY = "any"
# Ids whose environments import what their arguments name.
_WRAPPERS = ("GymV21Environment", "GymV26Environment")
_MAIN = "__main__"


def know_environment(name: str, arguments: Mapping[str, Any] | None = None) -> None:
    """Note a name that the user of this process has given: it needs no trust from now on.

    ``arguments`` are those that it may be called with; None for any.
    """
    if "<" not in name:
        _KNOWN.add((name, _ANY if arguments is None else _told(arguments)))


def _told(arguments: Mapping[str, Any]) -> str:
    # As YAML gives them back: a list in place of a tuple.
    return json.dumps(arguments, sort_keys=True, default=str)


@dataclass(frozen=True, kw_only=True)
class Trust:
    """Trust of a user in the names of a stored configuration.

    Ids of Gymnasium, names of this package, and what libraries in its table of names bring run no
    code of others. A name such as ``module:name`` does, and is refused unless ``everything`` is
    trusted, unless the user has given it in this process, or unless ``module`` itself defines it.

    Args:
        everything: follow all names.
        module: a module that the user has named and imported. It stands in for the script or
            notebook that trained the run, too, which is stored as ``__main__``.

    >>> Trust().environment("Pendulum-v1")
    'Pendulum-v1'
    """

    everything: bool = False
    module: str | None = None

    @classmethod
    def of(cls, trust: bool | Trust) -> Trust:
        """Trust that was given as such, or as true or false."""
        return trust if isinstance(trust, Trust) else cls(everything=trust)

    def renamed(self, name: str) -> str:
        """A stored name, with ``module`` in place of the script or notebook that defined it."""
        module, colon, path = name.partition(":")
        return f"{self.module}:{path}" if colon and module == _MAIN and self.module else name

    def environment(self, name: str, arguments: Mapping[str, Any] | None = None) -> str:
        """The stored name of an environment; UsageError where it must not be followed.

        ``arguments`` are the stored ones that it would be called with.
        """
        if {(name, _ANY), (name, _told(arguments or {}))} & _KNOWN:
            return name
        module, _, path = name.partition(":")
        if "<" in path:
            raise UsageError(
                f"`env` must be given for a run on {name!r}, a callable that no name leads back "
                "to; set env=my_file:my_function, or env_factory=... in Python"
            )
        if module == _MAIN and path.partition(".")[0] not in vars(sys.modules[_MAIN]):
            raise UsageError(
                f"`env` must be importable, got {name!r}, which the script or notebook that "
                f"trained the run defined; {_way_to_main('env_factory=... in Python')}"
            )
        if _runs_code(name) and not self.everything and not self._defines(module, path):
            raise self.refusal(name)
        return name

    def algorithm(self, name: str) -> None:
        """Refuse a stored name of an algorithm whose module would have to be imported."""
        if not self.everything and name.rpartition(":")[0] not in sys.modules:
            raise self.refusal(name)

    def refusal(self, name: str) -> UsageError:
        """The error for a name that must not be followed."""
        return UsageError(
            f"`trust` must be true to follow {name!r}, which would run code: it is a name in the "
            "stored configuration; set trust=true if you trust its writer"
        )

    def _defines(self, module: str, path: str) -> bool:
        # Not what it imports: `my_file:os.system` is a name in every file that imports os.
        if module != self.module or module not in sys.modules:
            return False
        found = vars(sys.modules[module]).get(path)
        return found is not None and inspect.getmodule(found) is sys.modules[module]


def leads_back(name: str) -> bool:
    """True for a name that means the same in every process: no lambda's, no script's.

    >>> leads_back("my_file:make"), leads_back("__main__:make"), leads_back("my_file:<lambda>")
    (True, False, False)
    """
    return "<" not in name and not name.startswith(f"{_MAIN}:")


def unregistered(module: str) -> str:
    """Hint for an algorithm that ``module`` has not registered."""
    if module != _MAIN:
        return 'decorate the class with @register("name")'
    way_out = _way_to_main("import that file first in Python")
    return f"the script or notebook that trained the run did so; {way_out}"


def _way_to_main(in_python: str) -> str:
    return f"name its file, as module=my_file, or {in_python}"


def _runs_code(name: str) -> bool:
    module, colon, path = name.partition(":")
    if not colon:
        return name.startswith(_WRAPPERS)
    prefix, slash, rest = name.partition("/")
    if slash and prefix in PREFIXES and rest in [*PREFIXES[prefix]]:
        return False
    # An id of Gymnasium whose module is there already: nothing is left to import.
    known: Mapping[str, object] = gymnasium.registry
    return not (module in sys.modules and path in known and not path.isidentifier())
