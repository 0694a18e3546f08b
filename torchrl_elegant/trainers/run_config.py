"""Options of a training run, apart from those of its algorithm."""

from __future__ import annotations

import importlib.util
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch

from torchrl_elegant.config.options import check, check_options, check_unused, option
from torchrl_elegant.envs import Pixels

_EVALUATIONS = 20
_CHECKPOINTS = 10
_MOST_EPISODES = 100_000


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Environment, budget, evaluation, checkpoints and output of one training run.

    Intervals left at None are filled in at construction; `frames_per_batch` is filled in when the
    run starts, because the algorithm chooses it. `torch_device` and `logger_name` check later
    whether this machine has the device and the logger: a laptop can read the configuration of a run
    that was trained on a GPU.

    >>> RunConfig(total_frames=100_000, num_envs=4).eval_interval
    5000
    """

    env: str = option("Pendulum-v1", "Gymnasium id, or package.module:factory", topic="environment")
    total_frames: int = option(
        30_000, "environment steps to train for, over all environments", low=1
    )
    num_envs: int = option(1, "environments stepped together in each collecting process", low=1)
    env_backend: Literal["vector", "parallel"] = option(
        "vector", "vector: all in one process; parallel: one process each, for slow simulators"
    )
    env_kwargs: Mapping[str, Any] = option(
        {}, "arguments of the environment, as env_kwargs.gravity=9.8"
    )
    pixels: Pixels | None = option(None, "treat the pictures of the environment")
    seed: int = option(
        0, "seed of the environments, the networks and the sampling", topic="machine", low=0
    )
    device: str = option("auto", "auto (cuda where there is one), cpu, cuda or cuda:1")
    threads: int = option(
        0,
        "torch threads; 0: commands choose by the width of the networks, Python keeps its own",
        low=0,
    )
    collector: Literal["sync", "parallel", "async"] = option(
        "sync",
        "sync: collect, then learn; parallel: in worker processes, for on-policy algorithms; "
        "async: workers collect while the learner learns",
        topic="collection",
    )
    num_workers: int = option(2, "collecting processes unless collector=sync", low=1)
    frames_per_batch: int | None = option(
        None, "frames between two rounds of updates; none: chosen by the algorithm", low=1
    )
    push_interval: int = option(
        10, "updates between two weight pushes of collector=async, off-policy", low=1
    )
    eval_interval: int | None = option(
        None,
        f"frames between two evaluations; none: total_frames / {_EVALUATIONS}",
        topic="evaluation",
        low=1,
    )
    eval_episodes: int = option(10, "episodes of one evaluation", low=1)
    max_eval_steps: int = option(
        100_000,
        "steps after which an evaluation episode counts as it is, and a film ends",
        low=1,
    )
    evaluation_env: Literal["own", "shared"] = option(
        "own",
        "own: evaluate in environments of its own; shared: evaluate in the training environment, "
        "for simulators that are expensive to make; its episodes then start anew",
    )
    target_return: float | None = option(None, "stop once an evaluation reaches this return")
    folder: str | None = option(
        None, "run folder; none: runs/<env>-<algorithm>-s<seed>-<time>", topic="output"
    )
    checkpoint_interval: int | None = option(
        None, f"frames between two checkpoints; none: total_frames / {_CHECKPOINTS}", low=1
    )
    keep_last: int = option(2, "newest checkpoints that are kept, beside the best one", low=1)
    save_buffer: bool = option(True, "store the replay buffer in checkpoints")
    episode_log: bool = option(
        False,
        "write each finished training episode into episodes.csv: frame, seconds, return, length",
    )
    logger: Literal["auto", "none", "tensorboard", "wandb", "mlflow"] = option(
        "auto", "where metrics go besides metrics.csv; auto: tensorboard when installed"
    )
    progress: bool = option(True, "show a progress bar, in a terminal or a notebook")

    def __post_init__(self) -> None:
        self._check_names()
        check_options(self)
        check_episodes("eval_episodes", self.eval_episodes)
        unused = {"sync": ("num_workers", "push_interval"), "parallel": ("push_interval",)}
        mode = f"collector={self.collector}"
        check_unused(self, *unused.get(self.collector, ()), mode=mode, other="collector=async")
        if self.collector != "sync":
            other = "collector=sync"
            check_unused(self, "evaluation_env", mode=mode, other=other)
        self._fill_in()
        self._check_batches()
        # A copy, so that the caller's mapping cannot change a frozen configuration.
        object.__setattr__(self, "env_kwargs", dict(self.env_kwargs))

    def torch_device(self) -> torch.device:
        """The device to train on, on this machine.

        >>> RunConfig(device="cpu").torch_device()
        device(type='cpu')
        """
        if self.device == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        device = torch.device(self.device)
        present = torch.cuda.device_count() if device.type == "cuda" else 1
        check(
            (device.index or 0) < present,
            "device",
            f"be present ({present} CUDA devices are)",
            self.device,
            "set device=cpu or device=auto",
        )
        return device

    def logger_name(self) -> str:
        """The logger to use on this machine, `none`, `tensorboard`, `wandb` or `mlflow`.

        >>> RunConfig(logger="none").logger_name()
        'none'
        """
        if self.logger == "auto":
            return "tensorboard" if importlib.util.find_spec("tensorboard") else "none"
        installed = self.logger == "none" or importlib.util.find_spec(self.logger) is not None
        way_out = f"pip install torchrl_elegant[{self.logger}], or set logger=none"
        check(installed, "logger", "be installed", self.logger, way_out)
        return self.logger

    def _check_names(self) -> None:
        named = isinstance(self.env, str) and bool(self.env.strip())
        check(named, "env", "be a Gymnasium id or package.module:factory", self.env)
        known = isinstance(self.device, str) and re.fullmatch(r"auto|cpu|cuda(:\d+)?", self.device)
        check(bool(known), "device", "be auto, cpu, cuda or cuda:<number>", self.device)
        folder_ok = self.folder is None or (isinstance(self.folder, str) and self.folder != "")
        check(folder_ok, "folder", "be a path or none", self.folder)
        mapping = isinstance(self.env_kwargs, Mapping) and _is_plain(self.env_kwargs)
        check(
            mapping,
            "env_kwargs",
            "map names to plain data (numbers, texts, bools, None, lists and mappings of them)",
            self.env_kwargs,
            "build anything else inside a factory: env=package.module:factory",
        )

    def _fill_in(self) -> None:
        filled = {
            "eval_interval": max(1, self.total_frames // _EVALUATIONS),
            "checkpoint_interval": max(1, self.total_frames // _CHECKPOINTS),
        }
        for name, value in filled.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)

    def _check_batches(self) -> None:
        frames, envs = self.frames_per_batch or self.num_envs, self.num_envs
        check(
            frames % envs == 0,
            "frames_per_batch",
            f"be a multiple of num_envs ({envs})",
            frames,
            f"set frames_per_batch={math.ceil(frames / envs) * envs}, or none",
        )


def check_episodes(name: str, value: int) -> None:
    """Refuse an evaluation that would never come to its end.

    >>> check_episodes("episodes", 10)
    """
    check(value <= _MOST_EPISODES, name, f"be at most {_MOST_EPISODES}", value)


def _is_plain(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _is_plain(item) for key, item in value.items())
    if isinstance(value, list):
        return all(_is_plain(item) for item in value)
    return value is None or isinstance(value, (bool, int, float, str))
