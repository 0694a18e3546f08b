"""Members: learners of one family that act and learn together, each with streams of its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import torch
from tensordict import NestedKey, TensorDict, TensorDictBase
from torch import Tensor
from torchrl.envs import EnvBase

from torchrl_elegant.algorithms import AlgorithmConfig
from torchrl_elegant.collectors import SyncCollector
from torchrl_elegant.config.options import check, options_of
from torchrl_elegant.config.text import UsageError
from torchrl_elegant.envs import Outcome
from torchrl_elegant.functional import junk_keys
from torchrl_elegant.trainers.episode_returns import EpisodeReturns
from torchrl_elegant.trainers.learner import Learner
from torchrl_elegant.trainers.population.actor import StackedActor
from torchrl_elegant.trainers.population.rows import Rows
from torchrl_elegant.trainers.population.update import StackedUpdate
from torchrl_elegant.trainers.random_streams import streams_kept


class Members(ABC):
    """Learners as rows, their environments as rows of one, and the loop over both.

    Acting and updates, which a run makes thousands of times, are computed for all members at once.
    What is done once a rollout, such as statistics and advantages, is done by each learner itself.

    Args:
        learners: of equal shapes, with ledgers of their own.
        generators: random stream of each member; a learner alone would draw the same from it.
        env: batched; each member has as many rows as every other.
        configs: configurations of the members.
        frames_per_batch: frames of one member between two rounds of updates.
    """

    #: Options that members may have of their own.
    own: ClassVar[frozenset[str]]

    def __init__(
        self,
        learners: Sequence[Learner],
        generators: Sequence[torch.Generator],
        env: EnvBase,
        *,
        configs: Sequence[AlgorithmConfig],
        frames_per_batch: int,
    ) -> None:
        self.require_alike(configs)
        self.generators = list(generators)
        count = len(learners)
        every = env.batch_size.numel()
        if every % count:
            raise UsageError(
                f"`env` must have rows for each of the {count} members, got {every} rows; give a "
                f"factory that makes as many as it is asked for, {count} times num_envs"
            )
        for learner in learners:
            _check_add_ons(learner)
        if junk_keys(env):
            raise UsageError(
                f"`env` must flag no junk in a vectorized population, got {type(env).__name__}, "
                "which resets in the next step; train its members one by one"
            )
        self.envs_each, self.frames_per_batch = every // count, frames_per_batch
        self.rows = Rows(learners)
        self.actor = StackedActor(self.rows, self.generators)
        outcome = Outcome.of(env)
        self.returns = [EpisodeReturns(outcome=outcome) for _ in self.learners]
        self._compile = configs[0].compile is True
        self._updates: dict[Any, StackedUpdate] = {}
        for learner in self.learners:
            # Before the first frame: how much a policy explores can depend on the progress.
            learner.at(learner.ledger.progress)
        self.collector = self._collector(env)
        self._batches = iter(self.collector)
        #: Members whose parameters are no finite numbers any more; they go on at zero.
        self.diverged = [False] * count

    def _collector(self, env: EnvBase) -> SyncCollector:
        return SyncCollector(
            env,
            self.actor,
            total_frames=-1,
            frames_per_batch=self.frames_per_batch * len(self.learners),
            auto_register_policy_transforms=False,
            track_traj_ids=False,
        )

    @classmethod
    def require_alike(cls, configs: Sequence[AlgorithmConfig]) -> None:
        """Refuse configurations that differ in what all members must share."""
        first = configs[0]
        for one in configs:
            if type(one) is not type(first):
                raise UsageError(
                    "`configs` must be of one algorithm in a vectorized population, got "
                    f"{first.name} and {one.name}; make a population of each"
                )
            must, way_out = "be None in a vectorized population", "train its members one by one"
            check(not one.networks, "networks", must, sorted(one.networks or ()), way_out)
            must = "be one for a single agent in a vectorized population"
            check(not one.teams, "algorithm", must, one.name, way_out)
            must = "be false in a vectorized population"
            check(not one.recurrent, "recurrent", must, one.recurrent, way_out)
            for name in options_of(type(first)).keys() - cls.own:
                one_has, first_has = getattr(one, name), getattr(first, name)
                if one_has != first_has:
                    raise UsageError(
                        f"`{name}` must be the same for all members of a vectorized population, "
                        f"got {first_has} and {one_has}; members may have of their own: "
                        f"{', '.join(sorted(cls.own))}"
                    )

    @property
    def learners(self) -> list[Learner]:
        """The learners, one a row."""
        return self.rows.learners

    def replace(self, index: int, learner: Learner) -> None:
        """Put another learner of the same shapes in the place of one, with its numbers."""
        if _terms_of(learner) != _terms_of(self.learners[index]):
            self._updates.clear()  # another one must be recorded
        self.rows.replace(index, learner)
        self.diverged[index] = False
        learner.at(learner.ledger.progress)

    def restart(self, seed: int) -> None:
        """Begin all episodes anew, with the random numbers of this seed."""
        with streams_kept():
            self.collector.set_seed(seed)
        for returns in self.returns:
            returns.restart()
            returns.take()

    @abstractmethod
    def round(self) -> None:
        """Collect once and learn from it."""

    def collected(self) -> Iterator[tuple[int, TensorDictBase]]:
        """The next batch ``[E, T]`` of each member, entered in its counts."""
        batch, each = next(self._batches), self.envs_each
        for index, learner in enumerate(self.learners):
            part = batch[index * each : (index + 1) * each]
            ledger = learner.ledger
            self.returns[index].add(part, frames=ledger.frames)
            ledger.frames += part.numel()
            learner.at(ledger.progress)
            yield index, part

    def update(self, batch: Mapping[NestedKey, Tensor], *, size: int) -> dict[str, Tensor]:
        """One update of all members on batches ``[P, size, ...]``; returns terms ``[P]``."""
        actor = self.learners[0].schedule.due()
        if (size, actor) not in self._updates:
            self._updates[size, actor] = self._record(batch, size=size, actor=actor)
        terms = self._updates[size, actor](batch, self.generators)
        for learner in self.learners:
            learner.schedule.observe(terms)
            learner.ledger.updates += 1
        return terms

    def refresh(self) -> None:
        """Take over rates that have moved."""
        for update in self._updates.values():
            update.refresh()

    def look_after(self) -> None:
        """Set members to zero whose parameters are no finite numbers any more.

        Their actions would reach the environment that all members share.
        """
        for index, finite in enumerate(self.rows.are_finite()):
            if not finite:
                self.diverged[index] = True
                with torch.no_grad():
                    for param in self.rows.params[index]:
                        param.zero_()

    @abstractmethod
    def after_step(self, members: slice) -> None:
        """Do what follows a step of some members."""

    def _record(
        self, batch: Mapping[NestedKey, Tensor], *, size: int, actor: bool
    ) -> StackedUpdate:
        # A member that rewards entropy: the graph of one that does not would lack the term.
        recorded = max(self.learners, key=_terms_of)
        example = TensorDict({key: value[0].clone() for key, value in batch.items()}, [size])
        return StackedUpdate(
            self.rows,
            recorded,
            example,
            actor=actor,
            compile=self._compile,
            then=self.after_step,
        )

    def close(self) -> None:
        """Close the collector and its environment."""
        self.collector.shutdown()


def _terms_of(learner: Learner) -> int:
    return len(learner.metric_names)


def _check_add_ons(learner: Learner) -> None:
    """Refuse what learns beside the loss, or decides by numbers that differ between members."""
    strange = sorted(learner.add_ons.keys() - {"scaling"})
    if strange or learner.schedule.reads:
        what = f"`{strange[0]}`" if strange else "a rule that decides by `critic_error`"
        raise UsageError(
            f"`algorithm` must not have {what} in a vectorized population, whose members share "
            "each update; leave it out, or train the members one by one"
        )
