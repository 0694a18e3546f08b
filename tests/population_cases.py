"""Environments and trials for tests of populations beside their members trained alone."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase

from torchrl_elegant.algorithms import AlgorithmConfig
from torchrl_elegant.envs.batched import ChasingEnv
from torchrl_elegant.envs.wrap import CompleteEnv
from torchrl_elegant.runs.trial import Trial
from torchrl_elegant.trainers.environments import TRAIN, seed_of
from torchrl_elegant.trainers.learner import Learner


class SideBySide(CompleteEnv):
    """Environments of equal size as one, each with the random numbers that it has alone."""

    resets_by_mask = True

    def __init__(self, envs: list[ChasingEnv]) -> None:
        self._each = envs[0].num_envs
        super().__init__(device="cpu", batch_size=[len(envs) * self._each])
        self.envs = envs
        whole = ChasingEnv(num_envs=len(envs) * self._each, discrete=envs[0].discrete, seed=0)
        self.observation_spec, self.action_spec = whole.observation_spec, whole.action_spec
        self.reward_spec, self.done_spec = whole.reward_spec, whole.done_spec
        self.action_low, self.action_high = whole.action_low, whole.action_high

    def _set_seed(self, seed: int | None) -> None:
        raise AssertionError("each has its seed")

    def _reset(self, tensordict: TensorDictBase | None = None, **_: Any) -> TensorDictBase:
        parts: Any = [None] * len(self.envs)
        if tensordict is not None:
            parts = tensordict.split(self._each)
        return torch.cat([env._reset(part) for env, part in zip(self.envs, parts, strict=True)])

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        parts = TensorDict({"action": tensordict["action"]}, self.batch_size).split(self._each)
        return torch.cat([env._step(part) for env, part in zip(self.envs, parts, strict=True)])


def trials_of(configs: list[AlgorithmConfig], **run: Any) -> list[Trial]:
    """A trial for each configuration, with seeds 0, 1, 2..."""
    return [Trial(one, "elegant/chasing", seed=seed, **run) for seed, one in enumerate(configs)]


def env_of(trials: list[Trial]) -> SideBySide:
    """The environments that the trials would train in, as one."""
    rows = trials[0].run.num_envs
    return SideBySide(
        [
            ChasingEnv(
                num_envs=rows, seed=seed_of(one.run, TRAIN, 0, 0), **(one.run.env_kwargs or {})
            )
            for one in trials
        ]
    )


def generators_of(trials: list[Trial]) -> list[torch.Generator]:
    """The random streams of the trials, where they are now."""
    streams = [trial.random.state_dict()["torch_cpu"] for trial in trials]
    generators = [torch.Generator() for _ in streams]
    for generator, state in zip(generators, streams, strict=True):
        generator.set_state(state)
    return generators


def differences(left: Learner, right: Learner) -> dict[str, float]:
    """Largest difference of each entry of two learners' losses and policies."""
    found = {}
    for name, one, other in (
        ("loss", left.loss, right.loss),
        ("policy", left.policy, right.policy),
    ):
        pairs = one.state_dict(), other.state_dict()
        assert pairs[0].keys() == pairs[1].keys()
        found |= {
            f"{name}.{key}": (pairs[0][key] - pairs[1][key]).abs().max().item() for key in pairs[0]
        }
    return found


def members_of(kind, trials):
    """Members of a family, made of the learners of trials."""
    return kind(
        [trial.learner for trial in trials],
        generators_of(trials),
        env_of(trials),
        configs=[trial.config for trial in trials],
        frames_per_batch=trials[0].run.frames_per_batch,
    )
