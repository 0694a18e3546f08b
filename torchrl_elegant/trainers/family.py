"""Families of algorithms: everything in which one differs from another, as one object."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torchrl.data import ReplayBuffer

from torchrl_elegant.algorithms import ALGORITHMS, AlgorithmConfig, Parts
from torchrl_elegant.collectors import SyncCollector
from torchrl_elegant.config.options import options_of
from torchrl_elegant.config.text import UsageError
from torchrl_elegant.trainers.environments import Environments
from torchrl_elegant.trainers.learner import Learner
from torchrl_elegant.trainers.ledger import Ledger
from torchrl_elegant.trainers.ranks import Ranks
from torchrl_elegant.trainers.resources import check_processes
from torchrl_elegant.trainers.run_config import RunConfig
from torchrl_elegant.trainers.sources import Source, acting_copy
from torchrl_elegant.trainers.watcher import Watcher

Config = TypeVar("Config", bound=AlgorithmConfig)


class Family(ABC, Generic[Config]):
    """One run of one family: its checks, store, learner, source of frames, loop and resume rules.

    At construction it refuses, before anything is made, what the two configurations cannot do
    together, and fills in ``run.frames_per_batch``, arguments of the environment and
    ``config.compile``: a run is stored with what follows from the frames that it was begun with,
    and keeps it when it goes on. A subclass is registered by ``@family(name)`` and found by
    ``config.family``.

    Args:
        run: what is trained, and for how long.
        config: the algorithm's configuration, for all ranks together.
        ranks: processes that train together.
    """

    #: Whether the workers of one run make each batch together.
    shares_batches: ClassVar[bool] = False
    learner_class: ClassVar[type[Learner]] = Learner
    #: Updates of a run from which on compilation saves more time than it takes, with a margin.
    worth_compiling: ClassVar[int]

    def __init__(self, run: RunConfig, config: Config, ranks: Ranks) -> None:
        check_processes(run)
        self.config, self.ranks = config, ranks
        self.run = run
        self.check()
        env_kwargs = {**config.env_arguments(run.env), **run.env_kwargs}
        frames = self._frames_per_batch()
        self.run = replace(run, frames_per_batch=frames, env_kwargs=env_kwargs)
        if config.compile == "auto":
            worth = not config.recurrent and self._is_worth_compiling()
            self.config = replace(config, compile=worth)
        #: Configuration of this rank's share.
        self.share = self._share()

    @property
    def has_workers(self) -> bool:
        """True if other processes collect."""
        return self.run.collector != "sync"

    @abstractmethod
    def check(self) -> None:
        """Refuse collectors and options of the run that the family does not use."""

    @abstractmethod
    def ledger(self) -> Ledger:
        """An empty ledger."""

    @abstractmethod
    def store(self) -> ReplayBuffer | None:
        """The replay buffer, for algorithms that have one."""

    def learner(self, parts: Parts) -> Learner:
        """The learner of the parts, with an empty ledger."""
        ranks = self.ranks if self.ranks.count > 1 else None
        compile = self.config.compile is True
        return self.learner_class(parts, ledger=self.ledger(), ranks=ranks, compile=compile)

    @property
    @abstractmethod
    def planned_updates(self) -> float:
        """Updates of the whole run."""

    def _is_worth_compiling(self) -> bool:
        """True for as many updates as pay on this device: by the plan of the run alone."""
        on_cpu = torch.device(self.ranks.device).type == "cpu"
        return on_cpu and self.planned_updates >= self.worth_compiling

    def collector(
        self, environments: Environments, learner: Learner, frames_per_batch: int
    ) -> SyncCollector:
        """The collector of a rank that collects by itself, on its environment's device."""
        env = environments.training(learner.ledger.frames)
        return SyncCollector(
            env,
            acting_copy(learner.policy, env.device),
            total_frames=-1,
            frames_per_batch=frames_per_batch,
            auto_register_policy_transforms=False,
            track_traj_ids=False,
            frames_done=learner.ledger.frames // self.ranks.count,
        )

    @abstractmethod
    def source(
        self, environments: Environments, learner: Learner, store: ReplayBuffer | None
    ) -> Source:
        """Collector, and where its rows go, for a run as far as the ledger says."""

    @abstractmethod
    def train(
        self, source: Source, learner: Learner, store: ReplayBuffer | None, watcher: Watcher
    ) -> None:
        """Run the loop until all frames are learned from, or the watcher says stop."""

    @abstractmethod
    def go_on(self, ledger: Ledger, store: ReplayBuffer | None) -> None:
        """Make ledger and store ready after a load; refuse rows that do not suit."""

    def refuse_changes(self, before: AlgorithmConfig, names: Iterable[str] | None = None) -> None:
        """Refuse a configuration that differs from the stored one in ``names``, or in anything."""
        now = self.config
        if names is None:
            names = options_of(type(now))
        known = options_of(type(before)).keys()
        changed = [
            name
            for name in names
            if name not in known or _plain(getattr(before, name)) != _plain(getattr(now, name))
        ]
        if changed:
            was = ", ".join(f"{name}={getattr(before, name)}" for name in changed if name in known)
            new = ", ".join(f"{name}={getattr(now, name)}" for name in changed)
            raise UsageError(
                f"`{'`, `'.join(changed)}` cannot change on resume: the stored run has {was}, got "
                f"{new}; start a new run instead"
            )

    def _frames_per_batch(self) -> int:
        run, config = self.run, self.config
        workers = run.num_workers if self.has_workers else 1
        every = run.num_envs * workers
        if every > run.total_frames:
            name = "num_envs" if run.num_envs >= workers else "num_workers"
            raise UsageError(
                f"`{name}` must not give more environments than total_frames "
                f"({run.total_frames}), got {every} environments; what they collect beyond that "
                "would be thrown away"
            )
        # Workers make one batch together, or one each.
        envs = every if self.shares_batches else run.num_envs
        usual = config.frames_per_batch(total_frames=run.total_frames, num_envs=envs)
        frames = run.frames_per_batch or usual
        if frames > max(usual, -(-run.total_frames // envs) * envs):
            raise UsageError(
                f"`frames_per_batch` must be at most total_frames ({run.total_frames}), got "
                f"{frames}; what is collected beyond that would be thrown away"
            )
        config.check_budget(total_frames=run.total_frames, frames_per_batch=frames, num_envs=every)
        if frames % envs:
            raise UsageError(
                f"`frames_per_batch` must be a multiple of num_workers * num_envs ({envs}), got "
                f"{frames}; set frames_per_batch={-(-frames // envs) * envs}, or none"
            )
        return frames

    def _share(self) -> Config:
        """The configuration of one rank, so that all ranks together do what one would."""
        config, count = self.config, self.ranks.count
        if count == 1:
            return config
        if self.has_workers:
            raise UsageError(
                f"`collector` must be sync under torchrun, got {self.run.collector!r}; each rank "
                "already collects in a process of its own"
            )
        each = config.sequence_length if config.recurrent else 1
        if config.batch_size % (count * each):
            times = f" times sequence_length ({each})" if config.recurrent else ""
            raise UsageError(
                f"`batch_size` must be a multiple of the {count} ranks{times}, got "
                f"{config.batch_size}"
            )
        return config.share(count)  # type: ignore[return-value]


#: Families by name.
FAMILIES: dict[str, type[Family[Any]]] = {}


def _plain(value: Any) -> Any:
    # A list says the same as the tuple that is stored.
    return tuple(value) if isinstance(value, list) else value


def family(name: str) -> Any:
    """Register a family under ``name``, which configurations call it by."""

    def add(kind: type[Family[Any]]) -> type[Family[Any]]:
        FAMILIES[name] = kind
        return kind

    return add


def family_of(run: RunConfig, config: AlgorithmConfig, ranks: Ranks) -> Family[Any]:
    """The family of ``config`` for one run; UsageError unless its class is registered."""
    kind = type(config)
    if isinstance(config, (type, str)):
        raise UsageError(
            f"`config` must be a configuration such as SACConfig(), got {config}; call the class, "
            "or take one by name from tuned(algorithm, env)"
        )
    if kind not in ALGORITHMS.values():
        raise UsageError(
            f"`config` must be of a registered class, got {kind.__name__}; decorate it with "
            f"@register({kind.__name__.removesuffix('Config').lower()!r}), so that its runs can "
            "be stored and go on"
        )
    return FAMILIES[config.family](run, config, ranks)
