"""Ratings of earlier selves of two groups that play against each other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torchrl.envs import EnvBase

from torchrl_elegant.config.text import UsageError
from torchrl_elegant.envs import Outcome
from torchrl_elegant.modules.multiagent.selfplay import SelfPlayActors
from torchrl_elegant.trainers.evaluation import play_rows, shares_of
from torchrl_elegant.trainers.run_config import RunConfig

# Points of a rating in which a player wins ten games for each that it loses.
_POINTS = 400.0


@dataclass(frozen=True, kw_only=True)
class Rated:
    """Rating of one group at one moment of its run, and its mean return against all others.

    ``snapshot`` counts earlier selves from 0; None is the group as it is now.
    """

    group: str
    snapshot: int | None
    rating: float
    mean_return: float


def ratings_of(wins: Sequence[Sequence[float]], *, rounds: int = 1_000) -> list[float]:
    r"""Ratings of players from their results against each other, on the scale of Elo, mean 0.

    .. math:: P(i \text{ beats } j) = \frac{1}{1 + 10^{(r_j - r_i) / 400}}

    They are the most likely ones (Bradley and Terry 1952), found by Hunter's iteration (2004,
    doi:10.1214/aos/1079120141, eq. 3). Each pair that has met is given one more draw, so that a
    player who never lost has a finite rating.

    Args:
        wins: ``wins[i][j]`` games that i won against j; a draw is half a game for both.
        rounds: of the iteration.

    >>> [round(rating) for rating in ratings_of([[0.0, 9.5], [0.5, 0.0]])]
    [200, -200]
    """
    won = torch.tensor(wins, dtype=torch.float64)
    if won.ndim != 2 or won.shape[0] != won.shape[1] or bool((won < 0).any()):
        raise ValueError(f"`wins` must be a square table of numbers from 0 on, got `{wins}`")
    games = won + won.T
    won, games = won + 0.5 * (games > 0), games + (games > 0)
    strength = torch.ones(len(won), dtype=torch.float64)
    for _ in range(rounds):
        met = games / (strength.unsqueeze(0) + strength.unsqueeze(1))
        strength = won.sum(1) / met.sum(1).clamp_min(1e-300)
        strength = strength / strength.log().mean().exp()
    return (strength.log() * (_POINTS / math.log(10.0))).tolist()


def rate(
    policy: SelfPlayActors,
    env: EnvBase,
    *,
    episodes: int = 10,
    max_steps: int = RunConfig.max_eval_steps,
) -> list[Rated]:
    """Play each self of one group against each of the other; the group with the larger return wins.

    Args:
        policy: of two groups, with the earlier selves that a run has kept.
        env: the environment in which they play.
        episodes: of each pair.
        max_steps: steps after which an episode counts as it is.
    """
    groups = list(policy.actors)
    if len(groups) != 2:
        raise UsageError(f"`policy` must have two groups to be rated, got {groups}")
    if episodes < 1:
        raise UsageError(f"`episodes` must be at least 1, got {episodes}")
    selves: list[int | None] = [*range(policy.kept), None]
    players = [(group, snapshot) for group in groups for snapshot in selves]
    known = Outcome.of(env).groups
    if any(group not in known for group in groups):
        raise UsageError(f"`env` must have a reward for each of {groups}, got {known or 'one'}")
    count, order = len(selves), [known.index(group) for group in groups]
    wins = [[0.0] * len(players) for _ in players]
    sums = [0.0] * len(players)
    shares = shares_of(episodes, env.batch_size.numel())
    for i, first in enumerate(selves):
        for j, second in enumerate(selves):
            cast = {groups[0]: first, groups[1]: second}
            policy.cast = {name: self for name, self in cast.items() if self is not None}
            for played in play_rows(env, policy, shares, max_steps=max_steps):
                own, other = (played.groups[place] for place in order)
                result = 0.5 if own == other else float(own > other)
                wins[i][count + j] += result
                wins[count + j][i] += 1.0 - result
                sums[i] += own
                sums[count + j] += other
    policy.cast = {}
    return [
        Rated(group=group, snapshot=snapshot, rating=rating, mean_return=total / count / episodes)
        for (group, snapshot), rating, total in zip(players, ratings_of(wins), sums, strict=True)
    ]
