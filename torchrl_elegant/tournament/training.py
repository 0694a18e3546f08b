"""Training: the work of real pods, each a trial without a folder."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any

import torch

from torchrl_elegant.algorithms import ALGORITHMS, AlgorithmConfig
from torchrl_elegant.config.text import UsageError
from torchrl_elegant.runs.trial import Env, Trial, configured_values
from torchrl_elegant.tournament.fusion import fused
from torchrl_elegant.tournament.leaderboard import Pod
from torchrl_elegant.tournament.pod import Link, Order, Result, Stop, peak_memory
from torchrl_elegant.tournament.space import configured
from torchrl_elegant.tournament.store import Store
from torchrl_elegant.trainers.evaluation import Evaluation, PlayStopped
from torchrl_elegant.trainers.learner import Learner
from torchrl_elegant.trainers.ledger import Ledger
from torchrl_elegant.trainers.run_config import RunConfig
from torchrl_elegant.trainers.sources import Source
from torchrl_elegant.trainers.watcher import Quantum


@dataclass(frozen=True)
class Training:
    """Work of a pod: load a checkpoint, train for a budget, evaluate, publish.

    Args:
        store: checkpoints.
        configs: configurations of the algorithms, before any option is searched.
        run: options of each member's run; ``total_frames`` is the plan that schedules follow.
        env: name or factory of the environment.
    """

    store: Store
    configs: tuple[AlgorithmConfig, ...]
    run: RunConfig
    env: Env

    def __call__(self, order: Order, link: Link) -> Result:
        """Carry out an order."""
        config = self.configs[order.entry]
        # A class of a script is rebuilt in a worker process, which has not registered it.
        ALGORITHMS.setdefault(config.name, type(config))
        if order.operation == "fuse":
            return self._fuse(order, link)
        try:
            return self._carry_out(order, link)
        except RemainderError:
            # In a new trial: nothing of what was loaded may stay.
            return self._carry_out(replace(order, start=None, amount=0.0), link)

    def _carry_out(self, order: Order, link: Link) -> Result:
        with self._new(order) as trial:
            if order.operation in ("recheck", "final"):
                return self._evaluate(order, trial, link)
            return self._train(order, trial, link)

    def trial(self, pod: Pod) -> Trial:
        """A trial with the policy of a finished pod."""
        assert pod.checkpoint is not None
        state = self._state(pod.checkpoint)
        trial = Trial(configured(self.configs[pod.entry], pod.options), self.env, run=self.run)
        trial.adopt(state)
        return trial

    def _new(self, order: Order) -> Trial:
        config, run = self.configs[order.entry], replace(self.run, seed=order.seed)
        return Trial(configured(config, order.options), self.env, run=run)

    def _fuse(self, order: Order, link: Link) -> Result:
        """Average two checkpoints; publish the average if it plays no worse than either.

        All three play the same episodes.
        """
        assert order.parent is not None
        assert order.other is not None
        parts = self._state(order.parent), self._state(order.other)
        state, found = fused(*parts), list[Evaluation]()
        about: dict[str, Any] = {"pod": order.pod, "attempt": order.attempt}
        begun = monotonic()
        for one in (*parts, state):
            # In a trial of its own: a trial's episodes go on from one evaluation to the next.
            with self._new(order) as trial:
                trial.adopt(one)
                if link.beat() is not None:
                    return Result(**about, kind="partial")
                try:
                    found.append(
                        trial.evaluate(lambda: link.beat() is not None, episodes=order.episodes)
                    )
                except PlayStopped:
                    return Result(**about, kind="partial")
        about |= {name: state["ledger"][name] for name in ("frames", "updates")}
        about |= {"memory": peak_memory(), "seconds": monotonic() - begun, **scored(found[-1])}
        own, best = found[-1].return_mean, max(one.return_mean for one in found[:-1])
        if not own >= best:
            told = f"the average has a return of {own:.6g}, its best part {best:.6g}"
            return Result(**about, kind="ended", error=told)
        return Result(**about, kind="done", **self._put(order, state))

    def _evaluate(self, order: Order, trial: Trial, link: Link) -> Result:
        assert order.parent is not None
        trial.adopt(self._state(order.parent))
        about: dict[str, Any] = {
            "pod": order.pod,
            "attempt": order.attempt,
            "memory": peak_memory(),
        }
        begun = monotonic()
        try:
            found = trial.evaluate(lambda: link.beat() is not None, episodes=order.episodes)
        except PlayStopped:
            return Result(**about, kind="partial")
        return Result(**about, kind="done", seconds=monotonic() - begun, **scored(found))

    def _train(self, order: Order, trial: Trial, link: Link) -> Result:
        amount = self.load(order, trial)
        watch = Watch(order, trial.ledger, link, amount)
        found: Evaluation | None = None
        try:
            for rung, goal in enumerate((*order.rungs, order.budget)):
                # A rung that an earlier attempt has passed was reported by it.
                if rung == len(order.rungs) or watch.amount < goal:
                    watch.follow(trial, goal)
                    found = trial.evaluate(watch.should_stop, episodes=order.episodes)
                    if rung < len(order.rungs):
                        link.report(rung, found.return_mean, trial.ledger.frames)
                        watch.should_stop()
                if watch.stop is not None:
                    raise PlayStopped
        except PlayStopped:
            if watch.stop == "hopeless":
                return Result(**watch.counts(), kind="ended", **(scored(found) if found else {}))
            news = self.publish(order, trial) if watch.amount > amount else {}
            return Result(**watch.counts(), kind="partial", **news)
        assert found is not None
        return Result(**watch.counts(), kind="done", **scored(found), **self.publish(order, trial))

    def load(self, order: Order, trial: Trial) -> float:
        """Load what the order begins with; returns the amount that is trained already."""
        digest = order.start or order.parent
        if digest is None:
            return 0.0
        try:
            with _options_kept(trial.learner):
                trial.load_state_dict(self._state(digest))
        except UsageError as error:
            if order.start is None:
                raise
            raise RemainderError from error
        trial.reseed()
        return order.amount if order.start else 0.0

    def _state(self, digest: str) -> Mapping[str, Any]:
        page = torch.load(io.BytesIO(self.store.get(digest)), map_location="cpu", weights_only=True)
        state: Mapping[str, Any] = page["state"]
        return state

    def publish(self, order: Order, trial: Trial) -> dict[str, Any]:
        """Put the state of a trial into the store; returns entries of a result."""
        return self._put(order, trial.state_dict())

    def _put(self, order: Order, state: Mapping[str, Any]) -> dict[str, Any]:
        data = io.BytesIO()
        page = {"pod": order.pod, "attempt": order.attempt, "state": state}
        torch.save(page, data)
        return {"checkpoint": self.store.put(data.getvalue()), "size": data.tell()}


class RemainderError(Exception):
    """The rest of a pod is too short to fill the replay buffer anew: all of it is trained again."""


class Watch:
    """Counts of a pod from where its order begins, and the reason to stop."""

    def __init__(self, order: Order, ledger: Ledger, link: Link, amount: float) -> None:
        self.stop: Stop | None = None
        self.amount = amount
        self.order, self._ledger, self._link = order, ledger, link
        self._begun = monotonic()

    def should_stop(self) -> bool:
        """Give a sign of life; True once the pod is to stop."""
        self.stop = self.stop or self._link.beat()
        return self.stop is not None

    def follow(self, trial: Trial, goal: float) -> None:
        """Train until ``goal`` is reached, or the pod is to stop."""
        unit, left = self.order.unit, goal - self.amount
        if self.should_stop():
            raise PlayStopped
        if left <= 0:
            return
        before, begun = self._count(), monotonic()
        bound = left if unit == "seconds" else math.ceil(left)
        trial.follow(_Until(self, self._ledger, **{unit: bound}))
        self.amount += monotonic() - begun if unit == "seconds" else self._count() - before
        if self.stop is not None:
            raise PlayStopped

    def counts(self) -> dict[str, Any]:
        """Entries of a result beside score and checkpoint."""
        return {
            "pod": self.order.pod,
            "attempt": self.order.attempt,
            "amount": self.amount,
            "frames": self._ledger.frames,
            "updates": self._ledger.updates,
            "seconds": monotonic() - self._begun,
            "memory": peak_memory(),
        }

    def _count(self) -> int:
        return self._ledger.updates if self.order.unit == "updates" else self._ledger.frames


class _Until(Quantum):
    """Quantum that ends early once its pod is to stop."""

    def __init__(self, watch: Watch, ledger: Ledger, **bounds: Any) -> None:
        super().__init__(ledger, **bounds)
        self._watch = watch

    def after(self, source: Source) -> bool:
        """True if no bound is reached and nobody says stop."""
        return not self._watch.should_stop() and super().after(source)


@contextmanager
def _options_kept(learner: Learner) -> Iterator[None]:
    """Refuse a load inside that would put the stored rates and settings in place of the new."""
    before = _options(learner)
    yield
    if _options(learner) != before:
        raise AssertionError("a loaded state has changed the options of the pod")


def _options(learner: Learner) -> list[Any]:
    groups = [
        {name: value for name, value in group.items() if name != "params"}
        for group in learner.optimizer.param_groups
    ]
    return [groups, {name: value.tolist() for name, value in configured_values(learner).items()}]


def scored(found: Evaluation) -> dict[str, Any]:
    """Entries of a result that an evaluation gives."""
    count = len(found.returns)
    return {
        "score": found.return_mean,
        "score_error": found.return_std / math.sqrt(count) if count > 1 else None,
        "episodes": count,
    }
