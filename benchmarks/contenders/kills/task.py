"""The work of a member, the same for all. Needs the standard library alone.

A unit sleeps for 20 ms. Ten units are a step, after which a member has a score.
"""

from __future__ import annotations

import json
import math
import os
import time
from pathlib import Path

MEMBERS, STEPS, UNITS, SECONDS, SLOTS = 8, 30, 10, 0.02, 2


def note_unit(folder: Path) -> None:
    """Add a line to the diary of all units that were ever worked."""
    diary = os.open(folder / "units", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    os.write(diary, b"unit\n")
    os.close(diary)


def train(skill: float, rate: float, folder: Path) -> float:
    """Skill after a step that began with ``skill``."""
    for _ in range(UNITS):
        time.sleep(SECONDS)
        note_unit(folder)
    return skill + math.exp(-abs(math.log10(rate) + 3))


def finish(folder: Path, steps: list[int]) -> None:
    """Tell that all is over, and how many steps each member has behind it."""
    (folder / "ended.json").write_text(json.dumps(steps))
