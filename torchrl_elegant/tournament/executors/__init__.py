"""Executors: where pods run."""

from pathlib import Path

from torchrl_elegant.tournament.executors.inline import InlineExecutor
from torchrl_elegant.tournament.executors.processes import ProcessExecutor, require_gpus
from torchrl_elegant.tournament.executors.protocol import Event, Executor, Hear
from torchrl_elegant.tournament.executors.ray_actors import RayExecutor
from torchrl_elegant.tournament.executors.vectorized import VectorizedExecutor
from torchrl_elegant.tournament.options import TournamentConfig
from torchrl_elegant.tournament.pod import Work
from torchrl_elegant.tournament.training import Training
from torchrl_elegant.trainers.run_config import RunConfig

__all__ = [
    "Event",
    "Executor",
    "Hear",
    "InlineExecutor",
    "ProcessExecutor",
    "RayExecutor",
    "VectorizedExecutor",
    "executor_of",
    "require_gpus",
]


def executor_of(config: TournamentConfig, run: RunConfig, work: Work, results: Path) -> Executor:
    """The executor that the options name."""
    threads = run.threads or 1
    if config.executor == "inline":
        return InlineExecutor(work, results)
    if config.executor == "vectorized":
        assert isinstance(work, Training), "pods that only pretend to train have no rows"
        return VectorizedExecutor(work, results)
    if config.executor == "ray":
        cpus = cores_of_pod(config, run)
        return RayExecutor(work, results, threads=threads, cpus=cpus, gpus=config.gpus)
    return ProcessExecutor(work, results, threads=threads, gpus=config.gpus)


def cores_of_pod(config: TournamentConfig, run: RunConfig) -> float:
    """Cores that one pod is given: one for each of its processes, unless the options say it."""
    if config.cpus is not None:
        return config.cpus
    workers = 0 if run.collector == "sync" else run.num_workers
    simulators = run.num_envs * max(1, workers) if run.env_backend == "parallel" else 0
    return 1.0 + workers + simulators
