"""Pods that only pretend to train, under Ray Tune; prints milliseconds a pod.

Run by the interpreter that has Ray Tune: it imports nothing of this project. As in ours, each pod
publishes a checkpoint of a kilobyte that is flushed to the disk, and actors are used again.

    python benchmarks/contenders/tune_pods.py empty 1000
    python benchmarks/contenders/tune_pods.py steps 400
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path

import ray
from ray import tune
from ray.tune.schedulers import PopulationBasedTraining

SLOTS, POPULATION, BYTES = 2, 8, 1_000


class Pretended(tune.Trainable):
    """A trial that sleeps; its checkpoint is a file."""

    def setup(self, config):
        self._config = config

    def reset_config(self, config):
        self._config = config
        return True

    def step(self):
        time.sleep(self._config["seconds"])
        return {"score": self._config["lr"]}

    def save_checkpoint(self, folder):
        path = Path(folder) / "weights"
        with path.open("wb") as file:
            file.write(b"-" * BYTES)
            file.flush()
            os.fsync(file.fileno())

    def load_checkpoint(self, folder):
        (Path(folder) / "weights").read_bytes()


class Moments(tune.Callback):
    """Notes the moment of each result."""

    def __init__(self) -> None:
        self.moments: list[float] = []

    def on_trial_result(self, iteration, trials, trial, result, **info):
        self.moments.append(time.perf_counter())


def milliseconds(case: str, pods: int) -> float:
    """Milliseconds a pod, from the first that has finished to the last."""
    steps = case == "steps"
    lr = tune.loguniform(1e-5, 1e-2)
    scheduler = None
    if steps:
        scheduler = PopulationBasedTraining(
            time_attr="training_iteration",
            perturbation_interval=1,
            hyperparam_mutations={"lr": lr},
        )
    moments = Moments()
    with tempfile.TemporaryDirectory() as folder:
        tune.Tuner(
            tune.with_resources(Pretended, {"cpu": 1}),
            param_space={"seconds": 0.02 if steps else 0.0, "lr": lr},
            tune_config=tune.TuneConfig(
                num_samples=POPULATION if steps else pods,
                metric="score",
                mode="max",
                scheduler=scheduler,
                reuse_actors=True,
            ),
            run_config=tune.RunConfig(
                storage_path=folder,
                stop={"training_iteration": pods // POPULATION if steps else 1},
                checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=1),
                callbacks=[moments],
                verbose=0,
            ),
        ).fit()
    first, *_, last = moments.moments
    return 1_000 * (last - first) / (len(moments.moments) - 1)


def main() -> None:
    case, pods = sys.argv[1], int(sys.argv[2])
    # A cluster of its own, whatever else runs on this machine.
    ray.init("local", num_cpus=SLOTS, include_dashboard=False, log_to_driver=False)
    print(json.dumps({"ms": milliseconds(case, pods), "ray": ray.__version__}))


if __name__ == "__main__":
    main()
