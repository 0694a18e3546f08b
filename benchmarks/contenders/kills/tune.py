"""Population based training by Ray Tune, gone on with by ``Tuner.restore``."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))
import ray
from ray import tune
from ray.tune import CheckpointConfig, RunConfig, TuneConfig
from ray.tune.schedulers import PopulationBasedTraining

from contenders.kills import task

FOLDER = Path(sys.argv[1]).resolve()


class Member(tune.Trainable):
    def setup(self, config):
        self.skill, self.rate, self.steps = 0.0, config["lr"], 0

    def step(self):
        self.skill = task.train(self.skill, self.rate, FOLDER)
        self.steps += 1
        return {"score": self.skill, "steps": self.steps}

    def save_checkpoint(self, folder):
        page = {"skill": self.skill, "steps": self.steps}
        (Path(folder) / "state.json").write_text(json.dumps(page))

    def load_checkpoint(self, folder):
        page = json.loads((Path(folder) / "state.json").read_text())
        self.skill, self.steps = page["skill"], page["steps"]

    def reset_config(self, config):
        self.rate = config["lr"]
        return True


def main() -> None:
    ray.init(
        address="local",
        num_cpus=task.SLOTS,
        include_dashboard=False,
        logging_level=logging.ERROR,
        log_to_driver=False,
    )
    lr = tune.loguniform(1e-5, 1e-1)
    scheduler = PopulationBasedTraining(
        time_attr="training_iteration",
        metric="score",
        mode="max",
        perturbation_interval=1,
        hyperparam_mutations={"lr": lr},
    )
    stored = FOLDER / "tune"
    if tune.Tuner.can_restore(str(stored)):
        tuner = tune.Tuner.restore(
            str(stored), Member, param_space={"lr": lr}, resume_unfinished=True, resume_errored=True
        )
    else:
        tuner = tune.Tuner(
            Member,
            param_space={"lr": lr},
            tune_config=TuneConfig(
                num_samples=task.MEMBERS, scheduler=scheduler, reuse_actors=True
            ),
            run_config=RunConfig(
                name="tune",
                storage_path=str(FOLDER),
                stop={"training_iteration": task.STEPS},
                checkpoint_config=CheckpointConfig(checkpoint_frequency=1),
                verbose=0,
            ),
        )
    results = tuner.fit()
    if results.num_errors:
        sys.exit(f"{results.num_errors} trials ended with an error: {results.errors[0]}")
    task.finish(FOLDER, [result.metrics["training_iteration"] for result in results])


if __name__ == "__main__":
    main()
