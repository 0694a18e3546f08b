"""One contender in a process of its own, which times a round whenever the pipe asks for one.

Run by ``_interleave.py``: ``python worker.py <contender> '<case as JSON>'``. Between rounds it
blocks on the pipe and uses no processor, so that only one contender runs at any moment.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import sys
import time
from pathlib import Path


def serve(contender: str, encoded: str) -> None:
    """Answer one JSON line on the standard output for each JSON line on the standard input."""
    # Libraries may print: only answers go down the pipe.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    # In place of the contenders' own folder, whose file names are those of libraries.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
    from contenders.case import decode

    case = decode(encoded)
    if hasattr(os, "sched_setaffinity"):
        allowed = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, allowed[: case.processors])
    module = importlib.import_module(f"contenders.{contender}")
    run = module.make(case)
    versions = {name: importlib.metadata.version(name) for name in module.PACKAGES}
    answers.write(json.dumps({"versions": versions}) + "\n")
    for line in sys.stdin:
        wanted = json.loads(line)["units"]
        start = time.perf_counter()
        done = run(wanted)
        seconds = time.perf_counter() - start
        # Where a part of the round alone is to be timed, the contender has done so.
        units, seconds = done if isinstance(done, tuple) else (done, seconds)
        answers.write(json.dumps({"units": units, "seconds": seconds}) + "\n")


if __name__ == "__main__":
    serve(*sys.argv[1:])
