"""Runs one seed of the value study under Ray Tune's PBT; each of its trials trains by a `Trial`.

    python benchmarks/_tune_pbt.py JOB

``JOB`` is a JSON file with the words of a tournament, which give the population, the quantum, the
evaluations and the slots here as well. The run ends once its trials have trained as many quanta as
a tournament would: a trial that is cloned goes on with the frames of the other, so that no trial by
itself can tell. Writes ``outcome.json`` beside it.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import ray
import torch
from ray import tune
from ray.tune.schedulers import PopulationBasedTraining

from torchrl_elegant.cli.training import parse_training
from torchrl_elegant.runs.trial import Trial

# Words of a tournament that a training does not know.
OWN = ("population", "final_episodes", "finalists", "budget", "quantum", "slots")
RATES = (1e-5, 1e-2)


class Plan:
    """Numbers of the study, and how a member trains."""

    def __init__(self, job: dict[str, Any]) -> None:
        words = dict(word.split("=", 1) for word in job["words"])
        (
            self.population,
            self.final_episodes,
            self.finalists,
            self.budget,
            self.quantum,
            self.slots,
        ) = (int(words.pop(name)) for name in OWN)
        self.seed, self.held_out = job["seed"], job["held_out"]
        self.words = [
            f"{name}={text}"
            for name, text in words.items()
            if name != "algorithm" and not name.startswith("space.")
        ]

    def trial(self, lr: float, seed: int) -> Trial:
        words = [*self.words, f"total_frames={self.budget}", "tuned=false"]
        options = parse_training(words, default="ppo")
        run = replace(options.run, seed=seed)
        return Trial(replace(options.config, lr=lr, compile=False), run=run)


def member(config: dict[str, Any], plan: Plan) -> None:
    """Train quantum after quantum, each with an evaluation and a checkpoint."""
    torch.set_num_threads(1)
    number = int(tune.get_context().get_trial_id().rsplit("_", 1)[1])
    with plan.trial(config["lr"], 1_000 * plan.seed + number) as trial:
        begun = tune.get_checkpoint()
        if begun is not None:
            with begun.as_directory() as folder:
                trial.load_state_dict(torch.load(Path(folder) / "state.pt", weights_only=True))
            trial.reseed()
        while True:
            trial.train(frames=plan.quantum)
            score = trial.evaluate().return_mean
            with tempfile.TemporaryDirectory() as folder:
                torch.save(trial.state_dict(), Path(folder) / "state.pt")
                kept = tune.Checkpoint.from_directory(folder)
                tune.report({"score": score, "lr": config["lr"]}, checkpoint=kept)


class Curve(tune.Callback):
    """Total frames, seconds and best return so far, after each quantum of any trial."""

    def __init__(self, quantum: int) -> None:
        self.quantum, self.begun = quantum, time.monotonic()
        self.rows: list[tuple[float, float, float]] = []

    def on_trial_result(
        self, iteration: int, trials: Any, trial: Any, result: Any, **_: Any
    ) -> None:
        frames, _seconds, best = self.rows[-1] if self.rows else (0.0, 0.0, -float("inf"))
        seconds = time.monotonic() - self.begun
        self.rows.append((frames + self.quantum, seconds, max(best, result["score"])))


class Budget(tune.Stopper):
    """Ends all trials once so many quanta are trained."""

    def __init__(self, quanta: int) -> None:
        self.left = quanta

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        self.left -= 1
        return False

    def stop_all(self) -> bool:
        return self.left <= 0


def tuned(plan: Plan, folder: Path, curve: Curve) -> list[tuple[Any, dict[str, Any]]]:
    """The best checkpoint of each trial with its metrics, the best first."""
    scheduler = PopulationBasedTraining(
        time_attr="training_iteration",
        perturbation_interval=1,
        hyperparam_mutations={"lr": tune.loguniform(*RATES)},
        quantile_fraction=0.25,
        resample_probability=0.25,
    )
    tuner = tune.Tuner(
        tune.with_resources(tune.with_parameters(member, plan=plan), {"cpu": 1}),
        param_space={"lr": tune.loguniform(*RATES)},
        tune_config=tune.TuneConfig(
            metric="score",
            mode="max",
            scheduler=scheduler,
            num_samples=plan.population,
            reuse_actors=True,
        ),
        run_config=tune.RunConfig(
            storage_path=str(folder),
            callbacks=[curve],
            stop=Budget(plan.budget // plan.quantum),
            verbose=0,
        ),
    )
    found = tuner.fit()
    if found.num_errors:
        raise RuntimeError(str(found.errors[0]))
    best = [max(one.best_checkpoints, key=lambda kept: kept[1]["score"]) for one in found]
    return sorted(best, key=lambda kept: -kept[1]["score"])


def play(plan: Plan, kept: tuple[Any, dict[str, Any]], *, seed: int, episodes: int) -> float:
    checkpoint, about = kept
    with checkpoint.as_directory() as folder, plan.trial(about["lr"], seed) as trial:
        trial.adopt(torch.load(Path(folder) / "state.pt", weights_only=True))
        return trial.evaluate(episodes=episodes).return_mean


def main(job: Path) -> None:
    plan = Plan(json.loads(job.read_text()))
    random.seed(plan.seed)
    np.random.seed(plan.seed)  # noqa: NPY002
    ray.init(num_cpus=plan.slots, include_dashboard=False, log_to_driver=False)
    curve = Curve(plan.quantum)
    finalists = tuned(plan, job.parent / "tune", curve)[: plan.finalists]
    seeds = (10**6 + plan.seed, 2 * 10**6 + plan.seed)
    finals = [play(plan, one, seed=seeds[0], episodes=plan.final_episodes) for one in finalists]
    winner = finalists[int(np.argmax(finals))]
    held_out = play(plan, winner, seed=seeds[1], episodes=plan.held_out)
    ray.shutdown()
    page = json.dumps({"held_out": held_out, "curve": curve.rows})
    (job.parent / "outcome.json").write_text(page)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
