"""Looking up the settings that are kept for an environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchrl_elegant.algorithms.registry import ALGORITHMS
from torchrl_elegant.algorithms.tuned_off_policy import OFF_POLICY
from torchrl_elegant.algorithms.tuned_on_policy import ON_POLICY
from torchrl_elegant.algorithms.tuned_shared import Settings

#: By algorithm and environment; a configuration without a table of its own takes its parent's.
TUNED: dict[str, Mapping[str, Settings]] = {**OFF_POLICY, **ON_POLICY}


def tuned_settings(algorithm: str, env: str) -> dict[str, Any]:
    """Fields of the run and of the algorithm's configuration, for an environment in the table.

    >>> tuned_settings("modsac", "Pendulum-v1")["num_cells"]
    (64, 64)
    """
    for kind in ALGORITHMS[algorithm].__mro__:
        table = TUNED.get(vars(kind).get("name", ""))
        if table is not None and env in table:
            return dict(table[env])
        if table is not None:
            raise ValueError(
                f"`tuned` must be false for {algorithm} on `{env}`, which is in no table; there "
                f"are settings for {', '.join(sorted(table))}"
            )
    raise ValueError(f"`tuned` must be false for {algorithm}, which has no table of settings")
