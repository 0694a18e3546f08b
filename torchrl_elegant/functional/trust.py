"""ModSAC's critic trust: how often the actor may follow its critic."""

from __future__ import annotations

import math


def critic_trust(running_loss: float) -> float:
    """rel = exp(-c^2): one for a perfect critic, zero for a useless one.

    >>> critic_trust(0.0)
    1.0
    """
    return math.exp(-(running_loss**2))


def actor_ratio(trust: float) -> float:
    """Highest allowed actor updates per critic update, 1 / (2 - rel): from 1/2 up to 1.

    >>> actor_ratio(1.0), actor_ratio(0.0)
    (1.0, 0.5)
    """
    return 1.0 / (2.0 - trust)
