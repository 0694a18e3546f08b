"""Does the H-term make an actor-critic steadier? A study over seeds, at equal frames.

    python benchmarks/hterm_study.py task=ppo_pendulum processes=2
    python benchmarks/hterm_study.py task=ppo_hopper peers=PYTHON lr=2e-4 \\
        arm.h="hterm=true hterm.horizon=16" arm.k4="hterm=true hterm.horizon=4" \\
        arm.sb3="algorithm=_sb3:ppo"

A study compares arms. `base` is the task's algorithm, as `tuned=true` or the task sets it.
`arm.NAME="words"` is an arm that trains with these words besides. Without one, a task has
`arm.h="hterm=true"`, and ppo_hopper `arm.sb3="algorithm=_sb3:ppo"` too, for which `peers` must have
Stable-Baselines3. Words that are not the study's own go to all arms.

Each seed is stored as it ends, in `benchmarks/results/seeds`; the same command goes on where it
stopped, and a study with more seeds or arms takes over those that are there. `train=false` makes
the table of finished seeds and trains nothing. No table is replaced by one that lacks seeds of it.
To try settings out, take seeds that the study itself does not use, and another name:
`first_seed=100 seeds=5 name=hterm_ppo_pendulum_tuning`.

Writes `benchmarks/results/hterm_<task>.md`, `.png`, and `.csv` with each seed's result.
"""

from __future__ import annotations

import csv
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from _seeds import Result, Training, merged, run_all, stored_result
from _study_words import (
    BASE,
    StudyOptions,
    arm_words,
    check_arm,
    check_distinct,
    report_failures,
    split,
    split_arms,
    study_main,
)

TREATED = {"h": ("hterm=true",)}
# Quick enough for many seeds, and with PPO not learned in so many frames by all of them.
DOUBLE_PENDULUM = (
    *("total_frames=100000", "num_envs=8", "lr=3e-4..0"),
    *("normalize_observation=true", "normalize_value=true"),
)
SAC_DOUBLE_PENDULUM = (
    *("total_frames=15000", "num_cells=64,64", "batch_size=128"),
    *("actor_lr=1e-3", "critic_lr=1e-3", "alpha_lr=1e-3"),
)


@dataclass(frozen=True, kw_only=True)
class Task:
    """What `base` learns, over how many seeds, and the arms beside it unless others are given."""

    algorithm: str
    env: str
    seeds: int
    arms: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: TREATED)
    settings: tuple[str, ...] = ("tuned=true",)

    @property
    def words(self) -> tuple[str, ...]:
        return (f"algorithm={self.algorithm}", f"env={self.env}", *self.settings)


TASKS: Mapping[str, Task] = {
    "ppo_pendulum": Task(algorithm="ppo", env="Pendulum-v1", seeds=20),
    "ppo_lunarlander": Task(
        algorithm="ppo",
        env="LunarLanderContinuous-v3",
        seeds=20,
        settings=("tuned=true", "total_frames=400000"),
    ),
    "ppo_swimmer": Task(algorithm="ppo", env="Swimmer-v5", seeds=20),
    "ppo_hopper": Task(
        algorithm="ppo", env="Hopper-v5", seeds=10, arms=TREATED | {"sb3": ("algorithm=_sb3:ppo",)}
    ),
    "ppo_halfcheetah": Task(
        algorithm="ppo",
        env="HalfCheetah-v5",
        seeds=10,
        settings=("tuned=true", "total_frames=500000"),
    ),
    "sac_pendulum": Task(algorithm="sac", env="Pendulum-v1", seeds=10),
    "sac_double_pendulum": Task(
        algorithm="sac", env="InvertedDoublePendulum-v5", seeds=10, settings=SAC_DOUBLE_PENDULUM
    ),
    # Not of the study: what settings were chosen on.
    "ppo_double_pendulum": Task(
        algorithm="ppo", env="InvertedDoublePendulum-v5", seeds=10, settings=DOUBLE_PENDULUM
    ),
    "ppo_walker": Task(algorithm="ppo", env="Walker2d-v5", seeds=5),
}


@dataclass(frozen=True, kw_only=True)
class Study(StudyOptions):
    """Which runs make up a study; ``arms`` are those beside the base."""

    task: str = field(default="ppo_pendulum", metadata={"help": f"one of {', '.join(TASKS)}"})
    seeds: int = field(default=0, metadata={"help": "runs per arm; 0 for the task's own number"})
    first_seed: int = field(default=0, metadata={"help": "seeds are this one and those after it"})
    train: bool = field(default=True, metadata={"help": "false: only the table of finished seeds"})
    name: str = field(default="", metadata={"help": "of the table; hterm_<task> unless given"})
    arms: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.task not in TASKS:
            raise ValueError(f"`task` must be one of {', '.join(TASKS)}, got {self.task!r}")
        super().__post_init__()
        for word in self.words:
            if word.split("=")[0] in ("algorithm", "env"):
                raise ValueError(f"`{word}` must be left to the task")
            if word.split("=")[0].split(".")[0] == "hterm":
                raise ValueError(f"`{word}` must be given to arms, got it for the base as well")
        for name, words in self.arms.items():
            check_arm(name, words)

    @property
    def title(self) -> str:
        return self.name or f"hterm_{self.task}"

    @property
    def seed_range(self) -> range:
        count = self.seeds or TASKS[self.task].seeds
        return range(self.first_seed, self.first_seed + count)

    @property
    def compared(self) -> dict[str, tuple[str, ...]]:
        """The words of every arm, the base first."""
        arms = {BASE: ()} | dict(self.arms or TASKS[self.task].arms)
        shared = (*TASKS[self.task].words, *self.words)
        return {name: merged((*shared, *words)) for name, words in arms.items()}

    @property
    def trainings(self) -> tuple[Training, ...]:
        check_distinct(self.compared)
        return tuple(self.arm(name, words) for name, words in self.compared.items())

    def arm(self, name: str, words: Sequence[str]) -> Training:
        given = dict(word.split("=", 1) for word in words)
        algorithm = given.pop("algorithm")
        own = tuple(f"{key}={value}" for key, value in given.items())
        return self.training(name, algorithm, own, of=f"hterm_{self.task}")

    @property
    def command(self) -> str:
        counts = {
            "seeds": len(self.seed_range),
            "processes": self.processes,
            "episodes": self.episodes,
        }
        if self.first_seed:
            counts["first_seed"] = self.first_seed
        own = [f"task={self.task}", *(f"{name}={count}" for name, count in counts.items())]
        own += [f"name={self.name}"] if self.name else []
        tail = (*map(shlex.quote, self.words), *arm_words(self.arms))
        return " ".join(("python benchmarks/hterm_study.py", *own, *tail))


def run(study: Study, trainings: Sequence[Training]) -> int:
    seeds, failures = study.seed_range, []
    if study.train:
        results, failures = run_all(trainings, seeds, processes=study.processes)
    else:
        found = (stored_result(training, seed) for training in trainings for seed in seeds)
        results = [result for result in found if result is not None]
    missing = [one.name for one in trainings if one.name not in {r["algorithm"] for r in results}]
    if BASE in missing:
        print("no table: no seed of the base is finished", file=sys.stderr)
        return report_failures(failures) or 1
    if lost := unfound(Path(study.results) / f"{study.title}.csv", results):
        print(
            f"no table: that of {study.title} has {len(lost)} seeds that were not found, such as "
            f"{lost[0]}; give this one another name=",
            file=sys.stderr,
        )
        return report_failures(failures) or 1
    # Here, because it brings matplotlib and torch, which help and mistakes need not wait for.
    from _hterm_report import write

    path = write(
        results,
        Path(study.results),
        trainings=trainings,
        seeds=seeds,
        name=study.title,
        title=f"H-term: {TASKS[study.task].algorithm} on {TASKS[study.task].env}",
        command=study.command,
    )
    print(f"written to {path}")
    return report_failures(failures)


def unfound(path: Path, results: Sequence[Result]) -> list[str]:
    """Seeds of the table that is there, by arm, which a table of ``results`` would lack."""
    if not path.exists():
        return []
    with path.open() as file:
        kept = [f"{row['arm']} {row['seed']}" for row in csv.DictReader(file)]
    found = {f"{result['algorithm']} {result['seed']}" for result in results}
    return [seed for seed in kept if seed not in found]


def parse(argv: Sequence[str]) -> Study:
    own, rest = split(argv, Study)
    arms, words = split_arms(rest)
    return Study(**own, words=words, arms=arms)


if __name__ == "__main__":
    sys.exit(study_main(sys.argv[1:], kind=Study, doc=__doc__, parse=parse, run=run))
