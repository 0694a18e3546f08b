"""BenchMARL's experiments, without its logging, its evaluation and its files."""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from benchmarl.algorithms import algorithm_config_registry
from benchmarl.environments import VmasTask
from benchmarl.experiment import Callback, Experiment, ExperimentConfig
from benchmarl.models.mlp import MlpConfig
from tensordict import TensorDict
from torch import Tensor
from torchrl.envs.utils import ExplorationType, set_exploration_type

from contenders.teams.clock import Curve
from contenders.teams.play import play
from contenders.teams.setting import STEPS, Setting

PACKAGES = ("benchmarl", "torchrl", "tensordict", "torch", "vmas")


def experiment(setting: Setting, seed: int, callbacks: Sequence[Callback] = ()) -> Experiment:
    """An experiment at the setting, with BenchMARL's own defaults where it says nothing."""
    warnings.filterwarnings("ignore")
    logging.getLogger("torchrl").setLevel(logging.ERROR)
    task = VmasTask[setting.task.upper()].get_from_yaml()
    wanted = {**setting.scenario, "max_steps": STEPS}
    if setting.agents is None and task.config != wanted:
        raise ValueError(f"BenchMARL's task has {task.config}, the study {wanted}")
    task.config = wanted
    algorithm = algorithm_config_registry[setting.algorithm].get_from_yaml()
    if setting.on_policy:
        algorithm.lmbda, algorithm.clip_epsilon = setting.lmbda, setting.clip_epsilon
        algorithm.entropy_coef = setting.entropy
    model = MlpConfig.get_from_yaml()
    model.num_cells = list(setting.cells)
    return Experiment(
        task=task,
        algorithm_config=algorithm,
        model_config=model,
        seed=seed,
        config=configuration(setting),
        callbacks=list(callbacks),
    )


def configuration(setting: Setting) -> ExperimentConfig:
    config = ExperimentConfig.get_from_yaml()
    config.max_n_frames = setting.frames
    config.gamma, config.lr, config.adam_eps = (
        setting.gamma,
        setting.learning_rate,
        setting.adam_eps,
    )
    config.clip_grad_norm, config.clip_grad_val = True, setting.clip
    config.soft_target_update, config.polyak_tau = True, setting.tau
    config.exploration_eps_init = setting.explore_first
    config.exploration_eps_end = setting.explore_last
    config.exploration_anneal_frames = setting.explore_frames
    config.on_policy_collected_frames_per_batch = setting.batch_frames
    config.on_policy_n_envs_per_worker = setting.envs
    config.on_policy_n_minibatch_iters = setting.epochs
    config.on_policy_minibatch_size = setting.minibatch
    config.off_policy_collected_frames_per_batch = setting.batch_frames
    config.off_policy_n_envs_per_worker = setting.envs
    config.off_policy_n_optimizer_steps = setting.updates
    config.off_policy_train_batch_size = setting.minibatch
    config.off_policy_memory_size = setting.buffer
    config.evaluation = config.render = config.create_json = False
    config.loggers = []
    config.save_folder = tempfile.mkdtemp()
    return config


class Watch(Callback):
    """Evaluates the policy between BenchMARL's iterations."""

    def __init__(self, setting: Setting, points: int, episodes: int) -> None:
        super().__init__()
        self.setting, self.episodes = setting, episodes
        self.curve = Curve(setting.frames, points, self.evaluate)

    def on_train_end(self, training_td: TensorDict, group: str) -> None:
        self.curve.at(self.experiment.total_frames)

    def evaluate(self) -> float:
        module = self.experiment.algorithm.get_policy_for_loss("agents")

        def policy(seen: Tensor) -> Tensor:
            agents = TensorDict({"observation": seen}, seen.shape[:2])
            with set_exploration_type(ExplorationType.DETERMINISTIC):
                return module(TensorDict({"agents": agents}, seen.shape[:1]))["agents", "action"]

        return play(policy, self.setting, self.episodes)


def learn(setting: Setting, seed: int, points: int, episodes: int) -> dict[str, Any]:
    """Learning curve of one run."""
    torch.set_num_threads(1)
    watch = Watch(setting, points, episodes)
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
        run = experiment(setting, seed, [watch])
        watch.curve.start()
        run.run()
    return {"curve": watch.curve.rows}
