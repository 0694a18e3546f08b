"""torchrl_elegant's algorithms for teams with ``compile=true``."""

from __future__ import annotations

from functools import partial

from contenders.teams.ours import PACKAGES
from contenders.teams.ours import learn as learn_plain

__all__ = ["PACKAGES", "learn"]

learn = partial(learn_plain, compiled=True)
