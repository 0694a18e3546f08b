"""TorchRL's own tests of its collector, run with ours in its place.

    python benchmarks/torchrl_tests.py --torchrl path/to/checkout
    python benchmarks/torchrl_tests.py --torchrl path/to/checkout -k RB -x     # words for pytest
    python benchmarks/torchrl_tests.py --torchrl path/to/checkout --theirs     # to compare with

The checkout is a clone of https://github.com/pytorch/rl near the installed version. Its tests are
run where they lie, and nothing of them is copied. The last line counts the collectors that were
made, and those that took the lean path: the others ran TorchRL's own rollout, which proves little.
"""

from __future__ import annotations

import argparse
import inspect
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torchrl.collectors
from torchrl.collectors import Collector

from torchrl_elegant.collectors import SyncCollector

#: Tests that ours cannot pass, and why.
_DISPATCH = "`backend` is of TorchRL's class alone, which chooses another one by it"
DIFFERENT = {
    "test_backend_dispatch": _DISPATCH,
    "test_backend_dispatch_validation": _DISPATCH,
    "test_context_backend_dispatch": _DISPATCH,
    "test_explicit_direct_backend_overrides_context": _DISPATCH,
    "test_process_backend_smoke_and_context_isolation": _DISPATCH,
    "test_sequence_inference_and_options_are_not_mutated": _DISPATCH,
    "test_collector_with_rb_uses_lazy_stack": "a lean batch is dense: there is no stack to save",
}
ELSEWHERE = re.compile(r"ray|rpc|distributed|submitit", re.IGNORECASE)


class Counted(SyncCollector):
    """Counts the collectors that are made, and those that are lean."""

    made: ClassVar[list[bool]] = []

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        Counted.made.append(self.is_lean)


class PutIn:
    """Plugin of pytest: chooses the tests that make a collector, and puts one in.

    Args:
        collector: class that stands in for TorchRL's.
        different: tests that it cannot pass, and why.
    """

    def __init__(self, collector: type[Collector], different: Mapping[str, str]) -> None:
        self.collector, self.different = collector, different

    def pytest_configure(self) -> None:
        torchrl.collectors.Collector = self.collector

    def pytest_collection_modifyitems(self, config: Any, items: list[Any]) -> None:
        chosen = [item for item in items if self._makes_one(item)]
        config.hook.pytest_deselected(items=[item for item in items if item not in set(chosen)])
        for item in chosen:
            if reason := self.different.get(item.originalname):
                item.add_marker(pytest.mark.xfail(reason=reason))
        items[:] = chosen

    def _makes_one(self, item: Any) -> bool:
        source = inspect.getsource(item.function)
        return bool(re.search(r"(?<!\w)Collector\(", source)) and not ELSEWHERE.search(item.name)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        made = Counted.made
        terminalreporter.write_line(f"{len(made)} collectors in this process, {sum(made)} lean")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--torchrl", type=Path, required=True, help="a checkout of TorchRL")
    parser.add_argument("--theirs", action="store_true", help="leave TorchRL's own collector in")
    arguments, words = parser.parse_known_args()
    tests = arguments.torchrl / "test" / "test_collectors.py"
    if not tests.is_file():
        parser.error(
            f"--torchrl must be a checkout of TorchRL, got {arguments.torchrl}: no {tests}"
        )
    options = ["-q", "-W", "ignore", "--rootdir", str(tests.parent), "-c", "/dev/null"]
    plugin = PutIn(Collector, {}) if arguments.theirs else PutIn(Counted, DIFFERENT)
    return pytest.main([*options, str(tests), *words], plugins=[plugin])


if __name__ == "__main__":
    sys.exit(main())
