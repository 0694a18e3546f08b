"""One training of a team for ``teams.py``: ``python _team_learner.py JOB.json``.

Needs the library that is named in the job, and nothing of another.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import sys
from pathlib import Path
from typing import Any

from contenders.teams.setting import Setting


def main(job: dict[str, Any]) -> None:
    module = importlib.import_module(f"contenders.teams.{job['library']}")
    fields = job["setting"] | {"cells": tuple(job["setting"]["cells"])}
    found = module.learn(Setting(**fields), job["seed"], job["points"], job["episodes"])
    found["versions"] = {name: importlib.metadata.version(name) for name in module.PACKAGES}
    path = Path(job["outcome"])
    stage = path.with_suffix(".partial")
    stage.write_text(json.dumps(found))
    os.replace(stage, path)


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
