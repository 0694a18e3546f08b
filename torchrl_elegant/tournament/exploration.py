"""Exploration: the options with which a member goes on from another's checkpoint."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from torchrl_elegant.tournament.leaderboard import TRAINING, Leaderboard, Pod
from torchrl_elegant.tournament.options import TournamentConfig
from torchrl_elegant.tournament.space import Space, Uniform, Values

Array = NDArray[np.float64]

# Pods that the model of the bandit looks back on, those without which it says nothing, and points
# among which it chooses.
_NEWEST, _FEW, _POINTS = 200, 4, 1_000
# What the kernel's numbers are chosen from: lengths, parts that are forgotten a quantum, noise.
_GRID = ((0.1, 0.25, 0.6), (0.0, 0.05, 0.2), (0.01, 0.2))


class Exploration(Protocol):
    """Rule by which a rival's options become those of the member that goes on from it."""

    def explored(self, space: Space, parent: Pod, rng: np.random.Generator) -> Values:
        """Options near or far from those of ``parent``, inside a transaction."""


@dataclass(frozen=True)
class Perturb:
    """Each option is moved by a factor or drawn anew (Jaderberg et al. 2017, section 4.1.2)."""

    config: TournamentConfig

    def explored(self, space: Space, parent: Pod, rng: np.random.Generator) -> Values:
        """Values near those of ``parent``, or drawn anew."""
        resample, factor = self.config.resample, self.config.factor
        return space.explored(parent.options, resample=resample, factor=factor, rng=rng)


@dataclass(frozen=True)
class Bandit:
    """Numbers are chosen by a time-varying bandit: PB2 (Parker-Holder et al. 2020).

    A Gaussian process is fitted to the improvements in score per pod so far. Its kernel is the
    product of one over options and one over time (eq. 6 there): ``k = exp(-|x - x'|^2 / 2 l^2) (1 -
    w)^(|t - t'| / 2)``, where options ``x`` lie in [0, 1], ``t`` counts quanta, and ``l``, ``w``
    and the noise have the greatest marginal likelihood of a grid. The choice maximizes the upper
    confidence bound (algorithm 2). Pods under way count as if they did what is expected of them, so
    that several choices at a time differ. All other options are perturbed.

    Args:
        board: the pods so far.
        perturb: the rule for other options, and for all as long as there are few pods.
    """

    board: Leaderboard
    perturb: Perturb

    def explored(self, space: Space, parent: Pod, rng: np.random.Generator) -> Values:
        """The numbers that promise most, beside other options near those of ``parent``."""
        values, parts = self.perturb.explored(space, parent, rng), space.numbers()
        points, gains = self._improvements(parent.entry, parts)
        if len(gains) < _FEW or not parts:
            return values
        pending = self._points(parent.entry, parts, "state IN ('queued', 'running')")
        asked = np.full((_POINTS, len(parts) + 1), parent.depth + 1.0)
        asked[:, :-1] = rng.random((_POINTS, len(parts)))
        best = asked[int(np.argmax(upper_bounds(points, gains, pending, asked)))]
        chosen = zip(parts.items(), best[:-1], strict=True)
        return values | {word: part.at(float(place)) for (word, part), place in chosen}

    def _improvements(self, entry: int, parts: dict[str, Uniform]) -> tuple[Array, Array]:
        """Options and time of pods that have finished, and how much better each is than before."""
        pods = self._pods(entry, "state = 'done' AND parents != '[]'")
        marks = ", ".join(str(pod.parents[0]) for pod in pods)
        before = {pod.id: pod.score for pod in self.board.pods(f"id IN ({marks})")}
        found = [
            (pod, pod.score - score)
            for pod in pods
            if pod.score is not None and (score := before[pod.parents[0]]) is not None
        ]
        gains = np.array([gain for _, gain in found])
        return _places([pod for pod, _ in found], parts), gains

    def _points(self, entry: int, parts: dict[str, Uniform], where: str) -> Array:
        return _places(self._pods(entry, where), parts)

    def _pods(self, entry: int, where: str) -> list[Pod]:
        query = f"SELECT id FROM pod WHERE {where} AND entry = ? AND operation IN {TRAINING}"
        return self.board.pods(f"id IN ({query} ORDER BY id DESC LIMIT {_NEWEST})", entry)


def upper_bounds(points: Array, gains: Array, pending: Array, asked: Array) -> Array:
    """Upper confidence bounds of the gain at points, whose last column is time.

    ``mean + sqrt(0.2 + log(0.4 n)) std`` of gains in standard deviations, with the constants of the
    authors; the standard deviation falls near ``pending`` points.
    """
    spread = gains.std()
    scaled = (gains - gains.mean()) / (spread if spread > 0 else 1.0)
    fits = {numbers: _fitted(points, scaled, *numbers) for numbers in product(*_GRID)}
    numbers = max(fits, key=lambda one: fits[one].log_marginal_likelihood_value_)
    model = fits[numbers]
    mean = model.predict(asked)
    if len(pending):
        told = np.concatenate([scaled, model.predict(pending)])
        model = _fitted(np.concatenate([points, pending]), told, *numbers)
    _, std = model.predict(asked, return_std=True)
    weight = math.sqrt(0.2 + max(0.0, math.log(0.4 * len(gains))))
    bounds: Array = mean + weight * std
    return bounds


def _fitted(points: Array, scaled: Array, length: float, forgotten: float, noise: float) -> Any:
    """Gaussian process with given numbers."""
    # Here, because it comes with an extra.
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, Matern

    options = points.shape[1] - 1
    # (1 - w)^(|t - t'| / 2) is a Matern kernel with nu = 1/2. Infinite lengths leave columns out.
    time = -2.0 / math.log1p(-forgotten) if forgotten else math.inf
    over_options = RBF([length] * options + [math.inf], "fixed")
    over_time = Matern([math.inf] * options + [time], "fixed", nu=0.5)
    model = GaussianProcessRegressor(over_options * over_time, alpha=noise, optimizer=None)
    return model.fit(points, scaled)


def _places(pods: Sequence[Pod], parts: dict[str, Uniform]) -> Array:
    rows = [
        [*(part.place(pod.options[word]) for word, part in parts.items()), pod.depth]
        for pod in pods
    ]
    return np.array(rows, dtype=float).reshape(len(rows), len(parts) + 1)


def exploration_of(board: Leaderboard, config: TournamentConfig) -> Exploration:
    """The rule that the options name."""
    perturb = Perturb(config)
    return Bandit(board, perturb) if config.explore == "pb2" else perturb
