"""How a script ends: its exit code, and the one line that says why."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from torchrl_elegant.collectors import WorkerDiedError
from torchrl_elegant.trainers.values import UsageError

__all__ = ["HelpRequest", "run_main"]


class HelpRequest(Exception):
    """Raised on `--help`; its text is the help page."""


def run_main(main: Callable[[Sequence[str]], int | None], argv: Sequence[str]) -> int:
    """Run a script's `main(argv)` and return its exit code.

    A mistake of the user's is one line and 2; a run that could not go on is one line and 1.

    >>> run_main(lambda argv: None, [])
    0
    """
    try:
        return main(argv) or 0
    except HelpRequest as page:
        sys.stdout.write(f"{page}\n")
        return 0
    except UsageError as error:
        sys.stderr.write(f"error: {' '.join(str(error).split())}\n")
        return 2
    except (FloatingPointError, WorkerDiedError) as error:
        # Of a worker's report the head says which worker, and the last line what happened.
        lines = str(error).strip().splitlines()
        told = lines[0] if len(lines) == 1 else f"{lines[0]} {lines[-1]}"
        sys.stderr.write(f"error: {told}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("error: interrupted\n")
        return 130
