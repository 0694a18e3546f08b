"""What a training run is, apart from its algorithm."""

from __future__ import annotations

import importlib.util
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from torchrl_elegant.algorithms.base import check, check_fields, check_unused, option
from torchrl_elegant.envs import Pixels

_EVALUATIONS = 20
_CHECKPOINTS = 10


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Environment, budget, evaluation, checkpoints and output of one training run.

    Intervals left at None are filled in at construction, `frames_per_batch` when the run starts,
    because its default is the algorithm's. Whether a device or a logger is present on this machine
    is asked when it is needed (`torch_device`, `logger_name`), not here: the configuration of a run
    trained on a GPU is readable on a laptop.

    >>> RunConfig(total_frames=100_000, num_envs=4).eval_interval
    5000
    """

    env: str = option("Pendulum-v1", "Gymnasium id, or package.module:factory")
    total_frames: int = option(30_000, "environment steps to train for, over all environments")
    seed: int = option(0, "seed of the environments, the networks and the sampling")
    device: str = option("auto", "auto (cuda where there is one), cpu, cuda or cuda:1")
    threads: int = option(0, "torch threads; 0: decided from the width of the networks")
    num_envs: int = option(1, "environments stepped together in each collecting process")
    env_backend: Literal["vector", "parallel"] = option(
        "vector", "vector: all in one process; parallel: one process each, for slow simulators"
    )
    env_kwargs: Mapping[str, Any] = field(
        default_factory=dict,
        metadata={"help": "arguments of the environment, as env_kwargs.gravity=9.8"},
    )
    pixels: Literal["observed", "render"] = option(
        "observed", "render: learn from what the environment draws, not from what it observes"
    )
    frame_stack: int = option(1, "pictures in a row that make one observation")
    grey: bool = option(False, "pictures without colours")
    resize: int | None = option(None, "pixels a side of pictures; none: as they come")
    collector: Literal["sync", "parallel", "async"] = option(
        "sync",
        "sync: collect, then learn; parallel: in worker processes, for on-policy algorithms; "
        "async: workers collect while the learner learns",
    )
    num_workers: int = option(2, "collecting processes unless collector=sync")
    frames_per_batch: int | None = option(
        None,
        "frames between two rounds of updates; none: as the algorithm needs",
    )
    push_interval: int = option(
        10, "updates between two weight pushes of collector=async, off-policy"
    )
    eval_interval: int | None = option(
        None, f"frames between two evaluations; none: total_frames / {_EVALUATIONS}"
    )
    eval_episodes: int = option(10, "episodes of one evaluation")
    checkpoint_interval: int | None = option(
        None, f"frames between two checkpoints; none: total_frames / {_CHECKPOINTS}"
    )
    keep_last: int = option(2, "newest checkpoints kept, beside the best one")
    save_buffer: bool = option(True, "store the replay buffer in checkpoints")
    target_return: float | None = option(None, "stop once an evaluation reaches this return")
    folder: str | None = option(None, "run folder; none: runs/<env>-<algorithm>-s<seed>-<time>")
    logger: Literal["auto", "none", "tensorboard", "wandb", "mlflow"] = option(
        "auto", "where metrics go besides metrics.csv; auto: tensorboard when installed"
    )
    progress: bool = option(True, "show a progress bar")

    def __post_init__(self) -> None:
        # First what can say more than the type that a field has.
        self._check_names()
        self._check_counts()
        check_fields(self)
        self.picture_options()
        unused = {"sync": ("num_workers", "push_interval"), "parallel": ("push_interval",)}
        mode = f"collector={self.collector}"
        check_unused(self, *unused.get(self.collector, ()), mode=mode, other="collector=async")
        self._fill_in()
        self._check_batches()
        # A copy, so that the caller's mapping cannot change a frozen configuration.
        object.__setattr__(self, "env_kwargs", dict(self.env_kwargs))

    def picture_options(self) -> Pixels | None:
        """What is to be done to pictures; None for nothing.

        >>> RunConfig(frame_stack=4).picture_options()
        Pixels(source='observed', frame_stack=4, grey=False, resize=None)
        """
        stack, side = self.frame_stack, self.resize
        given = Pixels(source=self.pixels, frame_stack=stack, grey=self.grey, resize=side)
        return None if given == Pixels() else given

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
        """The logger to use on this machine: `none`, `tensorboard`, `wandb` or `mlflow`.

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
        for name in ("save_buffer", "progress"):
            check(isinstance(getattr(self, name), bool), name, "be a bool", getattr(self, name))
        folder_ok = self.folder is None or (isinstance(self.folder, str) and self.folder != "")
        check(folder_ok, "folder", "be a path or None", self.folder)
        mapping = isinstance(self.env_kwargs, Mapping) and _is_plain(self.env_kwargs)
        check(
            mapping,
            "env_kwargs",
            "map names to plain data (numbers, texts, bools, None, lists and mappings of them)",
            self.env_kwargs,
            "build anything else inside a factory: env=package.module:factory",
        )

    def _check_counts(self) -> None:
        least = dict.fromkeys(("seed", "threads"), 0)
        least |= dict.fromkeys(("total_frames", "num_envs", "num_workers", "push_interval"), 1)
        least |= dict.fromkeys(("eval_episodes", "keep_last"), 1)
        optional = ("frames_per_batch", "eval_interval", "checkpoint_interval")
        for name, low in (least | dict.fromkeys(optional, 1)).items():
            value = getattr(self, name)
            if value is None and name in optional:
                continue
            whole = isinstance(value, int) and not isinstance(value, bool)
            check(whole and value >= low, name, f"be an integer of {low} or more", value)
        target = self.target_return
        number = isinstance(target, (int, float)) and not isinstance(target, bool)
        finite = target is None or (number and math.isfinite(target))
        check(finite, "target_return", "be a finite number or None", target)

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


def _is_plain(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _is_plain(item) for key, item in value.items())
    if isinstance(value, list):
        return all(_is_plain(item) for item in value)
    return value is None or isinstance(value, (bool, int, float, str))
