"""Options of a tournament, apart from those of its algorithms and of their runs."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from torchrl_elegant.config.options import check, check_options, check_unused, option

#: Quanta that a member is given unless ``quantum`` says otherwise.
_QUANTA = 10


@dataclass(frozen=True, kw_only=True)
class TournamentConfig:
    """Budget, population, search and machine of one tournament.

    ``quantum`` left at None is filled in at construction.

    >>> config = TournamentConfig(budget=80_000, population=4)
    >>> config.quantum, config.quanta
    (2000, 10)
    """

    budget: int = option(
        400_000, "units that all pods together may train for", topic="budget", low=1
    )
    unit: Literal["frames", "updates", "seconds"] = option(
        "frames", "unit of budget and quantum; seconds are those of training alone"
    )
    quantum: int | None = option(
        None, f"units of one pod; none: a member's share of the budget / {_QUANTA}", low=1
    )
    population: int = option(
        8,
        "members, of which each trains one pod after another",
        topic="search",
        low=1,
        high=100_000,
    )
    space: Mapping[str, Any] = option(
        {},
        "options to search, as space.lr=log:1e-5..1e-2, space.gamma=uniform:0.9..0.999, "
        "space.epochs=int:4..20, space.activation=tanh,relu, or space.ppo.lr=... for one "
        "algorithm; nothing: learning rates from a tenth to ten times their value",
    )
    scheme: Literal["asynchronous", "generational"] = option(
        "asynchronous",
        "asynchronous: a member goes on once a slot is free; generational: each member trains one "
        "pod of a generation, and the next begins when all of them are done",
    )
    selection: Literal["truncation", "tournament", "softmax", "none"] = option(
        "truncation",
        "rule by which a member is replaced: truncation: the worst quarter by one of the best "
        "quarter; tournament: by the best of three, if that is better; softmax: by one drawn by "
        "its score; none: nobody is replaced, which is a random search",
    )
    explore: Literal["perturb", "pb2"] = option(
        "perturb",
        "rule by which a replaced member's options change: perturb: each is moved or drawn anew; "
        "pb2: numbers are chosen where a model of all pods so far promises most, by scikit-learn",
    )
    resample: float = option(
        0.25, "chance that an explored option is drawn anew and not moved", low=0, high=1
    )
    factor: float = option(1.2, "factor by which an explored number moves, up or down", above=1)
    switch: float = option(
        0.0, "chance that a replaced member begins anew with another algorithm", low=0, high=1
    )
    fusion: bool = option(
        False,
        "average pairs of good members that have the same options and a common ancestor, and keep "
        "the average where it is not worse than either; with scheme=generational",
    )
    rungs: int = option(
        0,
        "evaluations inside a pod, at 1/2, 1/4, ... of it; a pod below the median of its rung ends",
        low=0,
        high=10,
    )
    recheck: bool = option(
        True, "evaluate whoever newly leads its depth once more, on unseen seeds", topic="scores"
    )
    finalists: int = option(
        3, "best members, whose checkpoints are kept and evaluated anew at the end", low=1
    )
    final_episodes: int = option(100, "episodes of each finalist, on seeds of their own", low=1)
    slots: int | None = option(
        None,
        "pods at a time; none: one for each core, as many as there are at the moment; a file "
        "slots in the folder, with a number, changes it while it runs",
        topic="machine",
        low=0,
        high=10_000,
    )
    executor: Literal["processes", "ray", "inline", "vectorized"] = option(
        "processes",
        "processes: pods in worker processes; ray: in actors of a Ray cluster; inline: one after "
        "another in this one; vectorized: all members together in this one, their updates computed "
        "at once",
    )
    cpus: float | None = option(
        None, "cores of one pod; none: one for each process that it has", above=0
    )
    gpus: float = option(0.0, "GPUs of one pod; 0.5: two pods share one", low=0)
    lease: float = option(300.0, "seconds of silence after which a pod counts as lost", above=0)
    retries: int = option(3, "times that a pod whose process died is started again", low=0)
    store_mb: int = option(
        10_000, "megabytes that checkpoints may take, but for those that are needed", low=1
    )

    def __post_init__(self) -> None:
        check_options(self)
        if self.executor == "inline":
            check_unused(
                self, "lease", "cpus", "gpus", mode="executor=inline", other="executor=processes"
            )
            single = self.slots in (None, 0, 1)
            check(single, "slots", "be 0, 1 or none with executor=inline", self.slots)
        if self.executor == "vectorized":
            mode, other = "executor=vectorized", "executor=processes"
            check_unused(self, "lease", "rungs", "cpus", "gpus", mode=mode, other=other)
            check(self.unit == "frames", "unit", "be frames with executor=vectorized", self.unit)
        check(
            self.gpus <= 1 or self.gpus == int(self.gpus),
            "gpus",
            "be a part of one, or a whole number",
            self.gpus,
        )
        if self.executor == "ray":
            installed = importlib.util.find_spec("ray") is not None
            way_out = "pip install torchrl_elegant[ray], or set executor=processes"
            check(installed, "executor", "be processes without Ray", self.executor, way_out)
        if self.scheme == "asynchronous":
            mode, other = "scheme=asynchronous", "scheme=generational"
            check_unused(self, "fusion", mode=mode, other=other)
        if self.explore == "pb2":
            installed = importlib.util.find_spec("sklearn") is not None
            way_out = "pip install torchrl_elegant[pb2], or set explore=perturb"
            check(installed, "explore", "be perturb without scikit-learn", self.explore, way_out)
        if self.quantum is None:
            share = self.budget // self.population
            object.__setattr__(self, "quantum", max(1, share // _QUANTA))
        check(
            self.quanta > 0,
            "budget",
            f"allow each of the {self.population} members one quantum of {self.quantum} "
            f"{self.unit}, which makes {self.population * self.pod_budget}",
            self.budget,
            "set budget higher, or population or quantum lower",
        )

    @property
    def pod_budget(self) -> int:
        """Units of one pod."""
        assert self.quantum is not None
        return self.quantum

    @property
    def quanta(self) -> int:
        """Pods of one member, if it is never set back."""
        return self.budget // (self.population * self.pod_budget)
