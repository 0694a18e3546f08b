"""Vectorized population: trials of equal shape that train together in one process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from tensordict.nn import TensorDictModuleBase
from torchrl.envs import EnvBase

from torchrl_elegant.algorithms import AlgorithmConfig
from torchrl_elegant.config.options import check
from torchrl_elegant.runs.trial import Env, Trial, configured_values, run_config
from torchrl_elegant.trainers.environments import EVALUATE, TRAIN, Environments, seed_of
from torchrl_elegant.trainers.evaluation import Evaluation, play_rows, shares_of
from torchrl_elegant.trainers.learner import DivergedError
from torchrl_elegant.trainers.population import Members, members_class
from torchrl_elegant.trainers.random_streams import streams_kept
from torchrl_elegant.trainers.run_config import RunConfig

# Name of PyTorch's stream among those of a trial.
_STREAM = "torch_cpu"
# Environments in which one member is evaluated at a time.
_ROWS = 16


class VectorizedPopulation:
    """Members of one algorithm whose acting and updates are computed for all at once.

    Each member is a ``Trial`` with a seed, rates, coefficients, discounts, rewards and statistics
    of its own, and learns what it would learn alone from the same frames. Their networks must have
    equal shapes. The environment is one, of ``num_envs`` rows for each member.

    Args:
        configs: configuration of each member.
        env: as in ``train``; an environment in tensors gains most.
        seeds: of the members; None counts up from ``seed``.
        run: a ready ``RunConfig`` in place of its fields.
        fields: fields of ``RunConfig``, for each member.

    >>> from torchrl_elegant.algorithms import PPOConfig
    >>> configs = [PPOConfig(lr=lr, num_cells=(8,), batch_size=32) for lr in (1e-4, 1e-3)]
    >>> small = {"num_envs": 4, "frames_per_batch": 64, "total_frames": 640}
    >>> with VectorizedPopulation(configs, "elegant/chasing", **small) as population:
    ...     population.train(frames=128)
    ...     scores = [found.return_mean for found in population.evaluate(episodes=2)]
    >>> len(scores), population.trials[0].ledger.frames
    (2, 128)
    """

    def __init__(
        self,
        configs: Sequence[AlgorithmConfig],
        env: Env = None,
        *,
        seeds: Sequence[int] | None = None,
        run: RunConfig | None = None,
        **fields: Any,
    ) -> None:
        configs = list(configs)
        check(len(configs) > 0, "configs", "hold one configuration or more", configs)
        self._kind = members_class(configs[0].family)
        run = run_config(configs[0], env, **fields) if run is None else replace(run, **fields)
        together = "its members act and learn together"
        for name, now, wanted in (
            ("collector", run.collector, "sync"),
            ("device", run.torch_device().type, "cpu"),
            ("evaluation_env", run.evaluation_env, "own"),
        ):
            check(now == wanted, name, f"be {wanted} in a vectorized population", now, together)
        self._env, self._run, self._example = env, run, configs[0]
        self._generators = [torch.Generator() for _ in configs]
        self._members: Members | None = None
        self._begun = False
        self.trials: list[Trial] = []
        self.renew(configs, seeds)
        self._environments = self._whole()

    def renew(self, configs: Sequence[AlgorithmConfig], seeds: Sequence[int] | None = None) -> None:
        """Begin anew with other members of the same number and shapes.

        What was recorded and compiled is used again. The result is that of a new population.
        """
        self._kind.require_alike([self._example, *configs])
        count = len(self._generators)
        seeds = [self._run.seed + index for index in range(count)] if seeds is None else seeds
        check(len(configs) == count, "configs", f"be {count}", len(configs))
        check(len(seeds) == count, "seeds", "be as many as configs", len(seeds))
        self._begun = False
        runs = [replace(self._run, seed=seed) for seed in seeds]
        self.trials = [self._trial(*pair) for pair in zip(configs, runs, strict=True)]

    def _trial(self, config: AlgorithmConfig, run: RunConfig) -> Trial:
        trial = Trial(config, self._env, run=run)
        # Members act in the environment of all.
        trial.environments.close()
        return trial

    def _whole(self) -> Environments:
        """The environments of all members."""
        run, count = self.trials[0].run, len(self.trials)
        whole = replace(
            run,
            num_envs=count * run.num_envs,
            frames_per_batch=None,
            total_frames=count * run.total_frames,
        )
        return Environments(whole, self._env, device=self.trials[0].ranks.device)

    @property
    def members(self) -> Members:
        """The learners of all members and their frames; they begin when first asked for."""
        if self._members is None:
            frames = self.trials[0].run.frames_per_batch
            assert frames is not None
            self._members = self._kind(
                [trial.learner for trial in self.trials],
                self._generators,
                self._environments.training(),
                configs=[trial.config for trial in self.trials],
                frames_per_batch=frames,
            )
        elif not self._begun:
            for index, trial in enumerate(self.trials):
                self._members.replace(index, trial.learner)
        if not self._begun:
            self._begun = True
            run, ledger = self.trials[0].run, self.trials[0].ledger
            self._members.restart(seed_of(run, TRAIN, 0, ledger.frames))
            for trial, generator in zip(self.trials, self._generators, strict=True):
                generator.set_state(trial.random.state_dict()[_STREAM])
        return self._members

    def train(self, frames: int, should_stop: Callable[[], bool] = lambda: False) -> None:
        """Train each member for so many more frames, in whole rounds.

        ``should_stop`` is asked after each round.
        """
        ledger = self.trials[0].ledger
        end = ledger.frames + frames
        while ledger.frames < end and not ledger.is_full:
            self.members.round()
            if should_stop():
                break

    @property
    def returns(self) -> list[float | None]:
        """Mean return of each member's training episodes that ended since the last call."""
        return [each.take() for each in self.members.returns]

    def evaluate(
        self, episodes: int = 10, should_stop: Callable[[], bool] = lambda: False
    ) -> list[Evaluation]:
        """Play whole episodes with the best actions of every member, all at once."""
        check(episodes >= 1, "episodes", "be at least 1", episodes)
        count, rows = len(self.trials), min(episodes, _ROWS)
        env = self._evaluation(count * rows)
        shares = shares_of(episodes, rows)
        try:
            with streams_kept():
                most = self._run.max_eval_steps
                actor = self.members.actor
                played = play_rows(env, actor, shares * count, should_stop, max_steps=most)
        finally:
            env.close(raise_if_closed=False)
        found: list[list[tuple[float, int]]] = [[] for _ in self.trials]
        for each in played:
            found[each.row // rows].append((each.value, each.length))
        pairs = [tuple(zip(*own, strict=True)) for own in found]
        return [Evaluation(returns=values, lengths=lengths) for values, lengths in pairs]

    def _evaluation(self, rows: int) -> EnvBase:
        first = self.trials[0]
        seed = seed_of(self._run, EVALUATE, first.ledger.frames)
        with streams_kept():
            return self._environments.make(rows, seed=seed, device=first.ranks.device)

    def policy(self, member: int) -> TensorDictModuleBase:
        """The policy of a member, which goes on learning."""
        return self.trials[member].learner.policy

    def copy_rows(self, source: int, target: int, *, config: AlgorithmConfig | None = None) -> None:
        """Let one member go on from another: parameters, moments, running statistics.

        The target keeps its seed, its counts and its options, or has those of ``config``.
        """
        if config is not None:
            self._reconfigure(target, config)
        learner, other = self.trials[target].learner, self.trials[source].learner
        kept = {f"loss.{name}" for name in configured_values(learner)}
        self.members.rows.copy(source, target, kept=kept)
        for name, add_on in learner.add_ons.items():
            add_on.load_state_dict(other.add_ons[name].state_dict())

    def _reconfigure(self, index: int, config: AlgorithmConfig) -> None:
        self._kind.require_alike([self.trials[0].config, replace(config, compile=self._compile)])
        old = self.trials[index]
        trial = self._trial(config, old.run)
        trial.ledger.load_state_dict(old.ledger.state_dict())
        trial.learner.at(trial.ledger.progress)
        self.trials[index] = trial
        self.members.replace(index, trial.learner)

    @property
    def _compile(self) -> Any:
        return self.trials[0].config.compile

    def state(self, member: int) -> dict[str, Any]:
        """State of a member, which a ``Trial`` of its configuration loads."""
        return self.trial(member).state_dict()

    def trial(self, member: int) -> Trial:
        """A member as a trial whose random stream is where the member's is."""
        trial, generator = self.trials[member], self._generators[member]
        if self._begun:
            random = {**trial.random.state_dict(), _STREAM: generator.get_state()}
            trial.random.load_state_dict(random)
        return trial

    def state_dict(self) -> dict[str, Any]:
        """States of all members."""
        return {"members": [self.state(index) for index in range(len(self.trials))]}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on where another population of the same configurations was; before the first frame.

        Episodes start anew, as where a run goes on.
        """
        states = state_dict["members"]
        count = len(self.trials)
        check(len(states) == count, "state_dict", f"have {count} members", len(states))
        for index, state in enumerate(states):
            self.load(index, state)

    def load(self, member: int, state: Mapping[str, Any]) -> None:
        """Load the state of one member, a ``Trial``'s or a population's; before the first frame."""
        if self._begun:
            raise RuntimeError(
                "`load` must come before the population's first frame, got one that has "
                f"{self.trials[member].ledger.frames}; make a new population"
            )
        self.trials[member].load_state_dict(state)

    def require_finite(self, member: int) -> None:
        """Raise where a member's parameters have ceased to be finite."""
        if self.members.diverged[member]:
            raise DivergedError(
                f"a parameter of member {member} is not finite; lower the learning rate, or set "
                "max_grad_norm"
            )

    def close(self) -> None:
        """End the environments; may be called twice."""
        if self._members is not None:
            self._members.close()
        self._environments.close()

    def __enter__(self) -> VectorizedPopulation:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
