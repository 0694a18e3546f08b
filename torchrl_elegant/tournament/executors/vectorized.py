"""Vectorized executor: pods of equal shape train together, in the process of the orchestrator."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torchrl_elegant.algorithms import AlgorithmConfig
from torchrl_elegant.runs.population import VectorizedPopulation
from torchrl_elegant.runs.trial import Env
from torchrl_elegant.tournament.executors.protocol import Event, Hear
from torchrl_elegant.tournament.leaderboard import TRAINING
from torchrl_elegant.tournament.pod import Link, Order, Result, Stop, carry_out
from torchrl_elegant.tournament.space import configured
from torchrl_elegant.tournament.training import RemainderError, Training, Watch, scored
from torchrl_elegant.trainers.evaluation import Evaluation, PlayStopped
from torchrl_elegant.trainers.population import members_class
from torchrl_elegant.trainers.run_config import RunConfig


def check_alone(config: AlgorithmConfig, env: Env, run: RunConfig) -> None:
    """Refuse what no vectorized population can train, before a tournament begins."""
    with VectorizedPopulation([config], env, run=run) as population:
        assert population.members.envs_each > 0


class VectorizedExecutor:
    """Trains all pods that it is given inside one ``wait``, those of equal shape together.

    Pods that differ in an option which a vectorized population shares, such as ``num_cells``, make
    a population each. Evaluations alone are played one after another. What a pod loads and leaves
    is what it would in any other executor.

    Args:
        work: what a pod does alone.
        results: folder of result files.
    """

    #: One process trains all pods: they take no cores of their own.
    is_local = False
    most: int | None = None

    def __init__(self, work: Training, results: Path) -> None:
        self.work, self._results = work, results
        self._waiting: dict[int, Order] = {}
        self.stops: dict[int, Stop] = {}
        self._hear: Hear | None = None
        # Populations of the last pods: what they have recorded serves the next.
        self._kept: dict[str, VectorizedPopulation] = {}

    def start(self, text: str) -> None:
        """Keep the order for the next ``wait``."""
        order = Order.from_json(text)
        self._waiting[order.pod] = order
        self.stops.pop(order.pod, None)

    def stop(self, pod: int, reason: Stop) -> None:
        """Have the pod's next sign of life end it."""
        self.stops[pod] = reason

    def kill(self, pod: int) -> None:
        """Hear nothing more of a pod; what it does in this process ends with its next round."""
        self._waiting.pop(pod, None)
        self.stops[pod] = "preempted"

    def wait(self, seconds: float, hear: Hear) -> None:
        """Carry out all orders that wait; without one, sleep."""
        if not self._waiting:
            time.sleep(seconds)
            return
        self._hear = hear
        orders = list(self._waiting.values())
        alone = [order for order in orders if order.operation not in TRAINING]
        for order in alone:
            self._leave(order, carry_out(self.work, order, self._link(order), self._results))
        groups = self._groups([order for order in orders if order.operation in TRAINING])
        for form in self._kept.keys() - groups.keys() if groups else ():
            self._kept.pop(form).close()
        for form, group in groups.items():
            self._train(form, group)

    def close(self) -> None:
        """Close the environments."""
        while self._kept:
            self._kept.popitem()[1].close()

    def beat_all(self) -> None:
        """Give a sign of life of every pod that is not over."""
        assert self._hear is not None
        for order in list(self._waiting.values()):
            self._hear(Event(pod=order.pod, attempt=order.attempt))

    def end(self, order: Order, outcome: Result | Exception) -> None:
        """Leave and tell the result of a pod, or what it has failed by."""

        def give(order: Order, link: Link) -> Result:
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        if order.pod in self._waiting:
            self._leave(order, carry_out(give, order, self._link(order), self._results))

    def _link(self, order: Order) -> Link:
        return _Line(self, order)

    def _leave(self, order: Order, result: Result) -> None:
        """Tell the end of a pod, unless it was killed."""
        assert self._hear is not None
        if self._waiting.pop(order.pod, None) is not None:
            self._hear(Event(pod=order.pod, attempt=order.attempt, result=result))

    def _config(self, order: Order) -> AlgorithmConfig:
        return configured(self.work.configs[order.entry], order.options)

    def _groups(self, orders: Sequence[Order]) -> dict[str, list[Order]]:
        """Orders that one population can carry out, by what these have in common."""
        groups: dict[str, list[Order]] = {}
        for order in orders:
            own = members_class(self._config(order).family).own
            shared = {name: value for name, value in order.options.items() if name not in own}
            form = (order.entry, sorted(shared.items()), order.budget - order.amount)
            groups.setdefault(repr(form), []).append(order)
        return groups

    def _train(self, form: str, orders: list[Order]) -> None:
        outcomes: dict[int, Result | Exception] = {}
        for order in orders:
            for digest in filter(None, (order.start, order.parent)):
                try:
                    self.work.store.get(digest)
                except Exception as error:  # it is this pod's alone
                    outcomes[order.pod] = error
        whole = [order for order in orders if order.pod not in outcomes]
        if whole:
            try:
                try:
                    outcomes |= self._together(form, whole)
                except RemainderError:
                    again = [replace(order, start=None, amount=0.0) for order in whole]
                    outcomes |= self._together(form, again)
            except Exception as error:  # of environment or networks, which are anybody's
                outcomes |= {order.pod: error for order in whole}

        for order in orders:
            if order.pod in outcomes:
                self.end(order, outcomes[order.pod])

    def _together(self, form: str, orders: list[Order]) -> dict[int, Result | Exception]:
        """Train the pods of a population; returns what each has come to."""
        population = self._population(form, orders)
        try:
            watches = []
            for order, trial in zip(orders, population.trials, strict=True):
                amount = self.work.load(order, trial)
                watches.append(Watch(order, trial.ledger, self._link(order), amount))
            ends = _Pods(self, population, watches).ends()
        except BaseException:
            population.close()
            raise
        self._kept[form] = population
        return ends

    def _population(self, form: str, orders: list[Order]) -> VectorizedPopulation:
        """A population for the orders, with what an earlier one has recorded."""
        configs, seeds = [self._config(order) for order in orders], [o.seed for o in orders]
        kept = self._kept.pop(form, None)
        if kept is not None:
            if len(kept.trials) == len(orders):
                kept.renew(configs, seeds)
                return kept
            kept.close()
        return VectorizedPopulation(configs, self.work.env, seeds=seeds, run=self.work.run)


class _Pods:
    """Pods of one population: their signs of life, and what they leave."""

    def __init__(
        self,
        executor: VectorizedExecutor,
        population: VectorizedPopulation,
        watches: list[Watch],
    ) -> None:
        self._executor, self._population, self._watches = executor, population, watches
        self._frames = [trial.ledger.frames for trial in population.trials]
        self._amounts = [watch.amount for watch in watches]

    def ends(self) -> dict[int, Result | Exception]:
        """Train and evaluate; results of the pods that come to their end, or their failures."""
        watches, population = self._watches, self._population
        frames = max(watch.order.budget - watch.amount for watch in watches)
        try:
            population.train(round(frames), self.should_stop)
            if self.should_stop():
                raise PlayStopped
            found = population.evaluate(watches[0].order.episodes, self.should_stop)
        except PlayStopped:
            return {}
        going = [index for index, watch in enumerate(watches) if watch.stop is None]
        return {watches[index].order.pod: self.done(index, found[index]) for index in going}

    def should_stop(self) -> bool:
        """Give signs of life, and end pods that are to stop; True once no pod is left."""
        self._executor.beat_all()
        for index, watch in enumerate(self._watches):
            frames = self._population.trials[index].ledger.frames
            watch.amount = self._amounts[index] + frames - self._frames[index]
            stop = self._executor.stops.get(watch.order.pod)
            if watch.stop is None and stop is not None:
                # Its row goes on with the others, and nobody reads it any more.
                watch.stop = stop
                self._executor.end(watch.order, self.partial(index))
        return all(watch.stop for watch in self._watches)

    def partial(self, index: int) -> Result | Exception:
        """Result of a pod that ends early, with a checkpoint if it has learned anything."""
        news = self._watches[index].amount > self._amounts[index]
        published = self._publish(index) if news else {}
        if isinstance(published, Exception):
            return published
        return Result(**self._watches[index].counts(), kind="partial", **published)

    def done(self, index: int, found: Evaluation) -> Result | Exception:
        """Result of a pod that has trained its whole quantum."""
        published = self._publish(index)
        if isinstance(published, Exception):
            return published
        counts = self._watches[index].counts()
        return Result(**counts, kind="done", **scored(found), **published)

    def _publish(self, index: int) -> dict[str, Any] | Exception:
        order = self._watches[index].order
        try:
            self._population.require_finite(index)
            return self._executor.work.publish(order, self._population.trial(index))
        except (FloatingPointError, OSError) as error:
            return error


class _Line:
    """Link of a pod in the same process."""

    def __init__(self, executor: VectorizedExecutor, order: Order) -> None:
        self._executor, self._order = executor, order

    def beat(self) -> Stop | None:
        self._executor.beat_all()
        return self._executor.stops.get(self._order.pod)

    def report(self, rung: int, score: float, frames: int) -> None:
        raise AssertionError("there are no rungs here")
