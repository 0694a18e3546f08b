"""torchrl_elegant's algorithms for teams, trained as ``train`` trains them, without a folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor
from torchrl.envs.utils import ExplorationType, set_exploration_type

from contenders.teams.clock import Curve
from contenders.teams.play import play
from contenders.teams.setting import STEPS, Setting
from torchrl_elegant import Trial
from torchrl_elegant.algorithms import ALGORITHMS, AlgorithmConfig
from torchrl_elegant.cli.training import keep_freed_blocks
from torchrl_elegant.trainers import Ledger, Quantum
from torchrl_elegant.trainers.sources import Source

PACKAGES = ("torchrl_elegant", "torchrl", "tensordict", "torch", "vmas")


def trial(setting: Setting, seed: int, *, compiled: bool = False) -> Trial:
    """A trial at the setting, with our own defaults where it says nothing."""
    env_kwargs = {
        **setting.scenario,
        "max_steps": STEPS,
        # As BenchMARL has it.
        "time_limit": "terminated",
        "actions": "discrete" if setting.discrete else "continuous",
    }
    return Trial(
        config(setting, compiled),
        f"vmas/{setting.task}",
        seed=seed,
        num_envs=setting.envs,
        frames_per_batch=setting.batch_frames,
        total_frames=setting.frames,
        env_kwargs=env_kwargs,
        device="cpu",
    )


def config(setting: Setting, compiled: bool) -> AlgorithmConfig:
    kind = ALGORITHMS[setting.algorithm]
    known = {item.name for item in fields(kind)}
    options: dict[str, Any] = {
        "gamma": setting.gamma,
        "batch_size": setting.minibatch,
        "num_cells": setting.cells,
        "activation": "tanh",
        "max_grad_norm": setting.clip,
        "compile": compiled,
    }
    rates = ("lr", "actor_lr", "critic_lr", "alpha_lr")
    options |= {name: setting.learning_rate for name in rates if name in known}
    if setting.on_policy:
        options |= {"epochs": setting.epochs, "lmbda": setting.lmbda}
        options |= {"clip_epsilon": setting.clip_epsilon, "entropy_coeff": setting.entropy}
        options |= {"critic_coeff": 1.0, "normalize_advantage": False}
        return kind(**options)
    options |= {"tau": setting.tau, "buffer_size": setting.buffer, "warmup": 0}
    options["updates_per_frame"] = setting.updates / setting.batch_frames
    explore = (setting.explore_first, setting.explore_last)
    options |= {name: explore for name in ("epsilon", "noise_std") if name in known}
    if setting.discrete:
        options["double"] = False
    if "exploration_fraction" in known:
        options["exploration_fraction"] = min(1.0, setting.explore_frames / setting.frames)
    return kind(**options)


class Watch(Quantum):
    """Evaluates the policy between two rounds."""

    def __init__(self, ledger: Ledger, curve: Curve) -> None:
        super().__init__(ledger)
        self._counts, self._curve = ledger, curve

    def note(self, terms: Mapping[str, Tensor]) -> None:
        """Keep nothing: no metrics are written."""

    def after(self, source: Source) -> bool:
        self._curve.at(self._counts.frames)
        return super().after(source)


def learn(
    setting: Setting, seed: int, points: int, episodes: int, *, compiled: bool = False
) -> dict[str, Any]:
    """Learning curve of one run."""
    torch.set_num_threads(1)
    keep_freed_blocks()  # as a command does
    with trial(setting, seed, compiled=compiled) as run:
        module = run.learner.policy

        def policy(seen: Tensor) -> Tensor:
            agents = TensorDict({"observation": seen}, seen.shape[:2])
            with set_exploration_type(ExplorationType.DETERMINISTIC):
                action = module(TensorDict({"agents": agents}, seen.shape[:1]))["agents", "action"]
            return action.argmax(-1) if setting.discrete else action

        # Actions of these scenarios lie between -1 and 1, as ours do.
        curve = Curve(setting.frames, points, lambda: play(policy, setting, episodes))
        _ = run.source
        curve.start()
        run.follow(Watch(run.ledger, curve))
    return {"curve": curve.rows}
