"""Groups of agents that see and do the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

#: Names of the agents in each group.
Groups = Mapping[str, Sequence[str]]


def grouped(
    names: Sequence[str], spaces: Sequence[tuple[Any, Any]], groups: Groups | None = None
) -> dict[str, list[str]]:
    """Groups whose agents see and do the same; one whose agents differ is split and numbered.

    Args:
        names: of all agents.
        spaces: observation and action of each.
        groups: None for a group `<name>` of agents called `<name>_<number>`; `agent` alone is
            called `agents`.

    >>> from gymnasium.spaces import Box, Discrete
    >>> alike, other = (Box(-1, 1, (2,)), Discrete(3)), (Box(-1, 1, (2,)), Discrete(5))
    >>> grouped(["agent_0", "agent_1"], [alike, alike])
    {'agents': ['agent_0', 'agent_1']}
    >>> grouped(["prey_0", "fox_0", "fox_1"], [alike, alike, other])
    {'prey': ['prey_0'], 'fox_0': ['fox_0'], 'fox_1': ['fox_1']}
    """
    groups = _by_name(names) if groups is None else groups
    given = [member for members in groups.values() for member in members]
    if sorted(given) != sorted(names):
        raise ValueError(
            f"`groups` must have each of the agents {', '.join(names)} once, got {dict(groups)}"
        )
    of = dict(zip(names, spaces, strict=True))
    parts: dict[str, list[str]] = {}
    for group, members in groups.items():
        alike: dict[str, list[str]] = {}
        for member in members:
            alike.setdefault(_kind(*of[member]), []).append(member)
        for number, part in enumerate(alike.values()):
            parts[group if len(alike) == 1 else f"{group}_{number}"] = part
    return parts


def _by_name(names: Sequence[str]) -> Groups:
    found: dict[str, list[str]] = {}
    for name in names:
        group, _, number = name.rpartition("_")
        if not (group and number.isdigit()):
            return {"agents": list(names)}
        found.setdefault(group, []).append(name)
    return {"agents": found["agent"]} if found.keys() == {"agent"} else found


def _kind(seen: Any, acted: Any) -> str:
    # Bounds of continuous actions may differ: each agent's are scaled.
    continuous = np.issubdtype(acted.dtype, np.floating)
    return f"{seen} {(acted.shape, acted.dtype) if continuous else acted}"
