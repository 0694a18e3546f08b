"""Trial: a run without a folder."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import asdict, replace
from operator import attrgetter
from typing import Any

from torch import Tensor
from torch.nn import Parameter

from torchrl_elegant.algorithms import AlgorithmConfig, that_take
from torchrl_elegant.config.options import options_of, require_known
from torchrl_elegant.config.text import UsageError
from torchrl_elegant.envs import Outcome
from torchrl_elegant.modules import ActionSpaceError
from torchrl_elegant.trainers.environments import LEARN, Environments, seed_of
from torchrl_elegant.trainers.evaluation import Evaluation, PolicyEvaluator
from torchrl_elegant.trainers.family import family_of
from torchrl_elegant.trainers.learner import DivergedError, Learner
from torchrl_elegant.trainers.ledger import Ledger
from torchrl_elegant.trainers.random_streams import RandomStreams
from torchrl_elegant.trainers.ranks import Ranks
from torchrl_elegant.trainers.resources import check_memory
from torchrl_elegant.trainers.run_config import RunConfig
from torchrl_elegant.trainers.sources import Source
from torchrl_elegant.trainers.watcher import Quantum, Watcher

Env = str | Callable[..., Any] | None


class Trial:
    """A run without a folder: build, load a state, train so much, give back state and score.

    A trial draws from random streams of its own, so that several in one process neither notice nor
    disturb one another. Its ``close`` ends workers and environments; it is a context as well.

    Args:
        config: an algorithm's configuration.
        env: as in ``train``.
        run: a ready ``RunConfig`` in place of its fields.
        ranks: processes that train together; alone by default.
        fields: fields of ``RunConfig``; ``total_frames`` is the plan that schedules follow.

    >>> from torchrl_elegant.algorithms import SACConfig
    >>> with Trial(SACConfig(num_cells=(8,), batch_size=8, warmup=8), total_frames=64) as trial:
    ...     ledger = trial.train(frames=32)
    ...     score = trial.evaluate(episodes=1).return_mean
    >>> ledger.frames, ledger.updates
    (32, 24)
    """

    def __init__(
        self,
        config: AlgorithmConfig,
        env: Env = None,
        *,
        run: RunConfig | None = None,
        ranks: Ranks | None = None,
        **fields: Any,
    ) -> None:
        run = run_config(config, env, **fields) if run is None else replace(run, **fields)
        self.ranks = ranks or Ranks.alone(run.torch_device())
        self.family = family_of(run, config, self.ranks)
        self.run, self.config = self.family.run, self.family.config
        self.random = RandomStreams(self._seed())
        self.environments = Environments(
            self.run,
            env,
            device=self.ranks.device,
            rank=self.ranks.rank,
            workers=self.family.has_workers,
        )
        self._source: Source | None = None
        self._start = 0  # frames that were loaded
        try:
            with self.random.active():
                self.learner: Learner = self._build()
                self.store = self.family.store()
            self.ranks.share(self.learner.loss)
        except BaseException:
            self.environments.close()
            raise

    @property
    def ledger(self) -> Ledger:
        """Frames, updates, and updates owed."""
        return self.learner.ledger

    @property
    def metric_names(self) -> list[str]:
        """Names of all that updates and evaluations report beside the return."""
        groups = Outcome.of(self.environments.specs()).groups
        return [*(f"return_{name}" for name in groups), *self.learner.metric_names]

    @property
    def source(self) -> Source:
        """Source of frames; made when it is first asked for."""
        if self._source is None:
            with self.random.active():
                self._source = self.family.source(self.environments, self.learner, self.store)
        return self._source

    def train(
        self,
        *,
        frames: int | None = None,
        updates: int | None = None,
        seconds: float | None = None,
    ) -> Ledger:
        """Train for so many more frames, updates or seconds, or to the end of the plan."""
        self.follow(Quantum(self.ledger, frames=frames, updates=updates, seconds=seconds))
        return self.ledger

    def follow(self, watcher: Watcher) -> None:
        """Train until the plan is fulfilled or ``watcher`` says stop."""
        with self.random.active():
            try:
                self.family.train(self.source, self.learner, self.store, watcher)
            except DivergedError as error:
                raise DivergedError(f"{error}; stopped at frame {self.ledger.frames}") from error

    def evaluate(
        self, should_stop: Callable[[], bool] = lambda: False, *, episodes: int | None = None
    ) -> Evaluation:
        """Play whole episodes with the policy's best actions.

        With ``evaluation_env="shared"`` the episodes of training are started anew afterwards.
        """
        episodes = self.run.eval_episodes if episodes is None else episodes
        if episodes < 1:
            raise ValueError(f"`episodes` must be at least 1, got `{episodes}`")
        with self.random.active():
            env = self.environments.evaluation(episodes, self._start)
            try:
                most = self.run.max_eval_steps
                policy = self.learner.policy
                evaluator = PolicyEvaluator(env, policy, episodes=episodes, max_steps=most)
                return evaluator.evaluate(should_stop)
            finally:
                if self.environments.is_shared:
                    self.source.restart()

    def state_dict(self) -> dict[str, Any]:
        """Give copies of learner, counts and random streams, without the replay buffer."""
        return {
            "learner": deepcopy(self.learner.state_dict()),
            "ledger": self.ledger.state_dict(),
            "random": self.random.state_dict(),
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on where another trial of the same configuration was; before the first frame only.

        Configured values, such as learning rates, stay those of this trial. A replay buffer is
        filled anew before anything is learned. The random streams go on as the other trial's would:
        several that load one state draw the same numbers, unless ``reseed`` is called.
        """
        if self._source is not None:
            raise RuntimeError(
                "`load_state_dict` must come before the trial's first frame, got one that has "
                f"{self.ledger.frames}; make a new trial, or `adopt` the state"
            )
        with configured_values_kept(self.learner):
            self.learner.load_state_dict(deepcopy(state_dict["learner"]))
        self.ledger.load_state_dict(state_dict["ledger"])
        self.random.load_state_dict(state_dict["random"])
        self.go_on()

    def adopt(self, state_dict: Mapping[str, Any]) -> None:
        """Take over what another trial has learned: parameters, moments, running statistics.

        Counts, random streams, the replay buffer and configured values stay this trial's own.
        """
        counts = self.ledger.state_dict()
        with configured_values_kept(self.learner):
            self.learner.load_state_dict(deepcopy(state_dict["learner"]))
        self.ledger.load_state_dict(counts)
        if self._source is not None:
            self._source.send_weights()

    def go_on(self) -> None:
        """Make counts and store ready after a load."""
        self._start = self.ledger.frames
        self.family.go_on(self.ledger, self.store)

    def reseed(self) -> None:
        """Begin random streams that depend on seed, rank and frames alone."""
        self.random.seed(self._seed(self.ledger.frames))
        for add_on in self.learner.add_ons.values():
            add_on.reseed(self._seed(self.ledger.frames))

    def about(self) -> dict[str, Any]:
        """Facts that a policy file has to tell of the environment."""
        return {
            "env": self.run.env,
            "algorithm": self.config.name,
            "pixels": None if self.run.pixels is None else asdict(self.run.pixels),
            **self.environments.about(),
        }

    def close(self) -> None:
        """End workers and environments; may be called twice."""
        if self._source is not None:
            self._source.shutdown()
        self.environments.close()

    def __enter__(self) -> Trial:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _seed(self, frames: int = 0) -> int:
        return seed_of(self.run, LEARN, self.ranks.rank, 0, frames)

    def _build(self) -> Learner:
        specs = self.environments.specs()
        check_memory(self.run, self.family.share, specs)
        try:
            parts = self.family.share.assemble(specs)
        except ActionSpaceError as error:
            names = that_take(error.kind, teams=self.config.teams)
            fitting = ", ".join(names) or "none that is registered"
            message = f"{error} (algorithms for {error.kind} actions: {fitting})"
            raise UsageError(message) from error
        self.environments.rest()
        return self.family.learner(parts)


def run_config(config: AlgorithmConfig, env: Env = None, **run: Any) -> RunConfig:
    """The ``RunConfig`` of ``train(config, env, **run)``."""
    own = options_of(type(config)) if isinstance(config, AlgorithmConfig) else {}
    for name in (name for name in run if name in own):
        raise UsageError(
            f"`{name}` must be given to the configuration: {type(config).__name__}({name}=...)"
        )
    require_known(run, RunConfig)
    if env is None:
        env = config.example if isinstance(config, AlgorithmConfig) else RunConfig.env
    return RunConfig(env=env if isinstance(env, str) else _import_path(env), **run)


def _import_path(factory: Callable[..., Any]) -> str:
    """The name that leads back to a factory; in angle brackets where none does."""
    module, name = factory.__module__, getattr(factory, "__qualname__", type(factory).__qualname__)
    try:
        found = attrgetter(name)(sys.modules[module])
    except (KeyError, AttributeError):
        found = None
    return f"{module}:{name}" if found is factory or "<" in name else f"{module}:<{name}>"


# Hyper-parameters that losses keep as buffers, and so write into every state.
_DECIDED = frozenset(
    {
        *("_target_entropy", "target_entropy", "target_entropy_buffer"),
        *("alpha_init", "min_log_alpha", "max_log_alpha"),
        *("clip_epsilon", "clip_value", "critic_coeff", "entropy_coeff"),
    }
)
_ESTIMATOR = "_value_estimator."
# Beginning of the names in a loss of several groups of agents.
_GROUP = re.compile(r"^losses\.[^.]+\.")


@contextmanager
def configured_values_kept(learner: Learner) -> Iterator[None]:
    """Keep learning rates, discount and entropy settings over a load inside.

    What is learned comes with the state: a learned temperature is a parameter, a fixed one is
    configured.

    >>> from torchrl_elegant.algorithms import SACConfig
    >>> from torchrl_elegant.envs import make_env
    >>> env = make_env("Pendulum-v1")
    >>> old, new = (Learner(SACConfig(actor_lr=lr).build(env)) for lr in (0.1, 0.2))
    >>> with configured_values_kept(new):
    ...     new.load_state_dict(old.state_dict())
    >>> new.optimizer.param_groups[0]["lr"]
    0.2
    """
    groups = [
        {name: value for name, value in group.items() if name != "params"}
        for group in learner.optimizer.param_groups
    ]
    buffers = {name: value.clone() for name, value in configured_values(learner).items()}
    yield
    for group, own in zip(learner.optimizer.param_groups, groups, strict=True):
        group.update(own)
    found = configured_values(learner)
    for name, value in buffers.items():
        found[name].copy_(value)


def configured_values(learner: Learner) -> dict[str, Tensor]:
    """Discount, entropy settings and their like, which a loss keeps as buffers."""
    loss = learner.loss
    # The state holds buffers that are made when they are first asked for.
    state = loss.state_dict(keep_vars=True)
    learned = dict(loss.named_parameters()).keys()
    return {
        name: value
        for name, value in state.items()
        if (own := _GROUP.sub("", name)) in _DECIDED
        or (own == "log_alpha" and name not in learned)
        or _is_estimators(own, value)
    }


def _is_estimators(name: str, value: Tensor) -> bool:
    # V-trace holds the actor too, and that is learned.
    return name.startswith(_ESTIMATOR) and not isinstance(value, Parameter)
