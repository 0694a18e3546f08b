"""How well it learns: a study over seeds, each seed a run of ``scripts/train_sac.py`` of its own.

    python benchmarks/learning.py task=pendulum algorithm=sac,modsac,_sb3:sac seeds=5 processes=2

`arm.NAME="words"` is an arm that trains the one algorithm with these words besides:

    python benchmarks/learning.py task=pendulum arm.norm="layer_norm=critics" name=norm_pendulum

Words besides the study's own go to the training as they are, e.g. ``total_frames=50000``. A study
that was interrupted is taken up by the same command: a seed that has a checkpoint goes on from it,
and finished seeds are kept in ``benchmarks/results/seeds``, by environment and settings. A change
of the code is no change of settings: remove a file there to train its seeds again. Writes
``benchmarks/results/learning_<task>.md`` and ``.png``.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from _seeds import Training, merged, run_all
from _study_words import (
    BASE,
    StudyOptions,
    arm_words,
    check_arm,
    check_counts,
    check_distinct,
    report_failures,
    split,
    split_arms,
    study_main,
)

# The settings are those of `tuned=true`, with each algorithm's own budget.
TASKS: dict[str, tuple[str, ...]] = {
    "pendulum": ("env=Pendulum-v1", "tuned=true"),
    "cartpole": ("env=CartPole-v1", "tuned=true"),
    "acrobot": ("env=Acrobot-v1", "tuned=true"),
    "lunarlander": ("env=LunarLander-v3", "tuned=true"),
    "lunarlander_continuous": ("env=LunarLanderContinuous-v3", "tuned=true"),
    "hopper": ("env=Hopper-v5", "tuned=true"),
    "halfcheetah": ("env=HalfCheetah-v5", "tuned=true"),
    "chasing": ("env=elegant/chasing", "tuned=true"),
    # Time to a threshold: a run ends where an evaluation reaches it.
    "chasing_at_scale": (
        "env=elegant/chasing",
        "tuned=true",
        "num_envs=1024",
        "target_return=10.0",
        "eval_interval=131072",
        "eval_episodes=8",
    ),
    # For algorithms with a replay buffer: a fifth of the frames, and nets as small as the machine.
    "hopper_200k": (
        "env=Hopper-v5",
        "tuned=true",
        "total_frames=200000",
        "num_cells=128,128",
        "batch_size=128",
        # Rates that suit such nets, and that end at 0: values that still move drop the hopper.
        "actor_lr=1e-3..0",
        "critic_lr=1e-3..0",
        "alpha_lr=1e-3..0",
    ),
    # Seen, not told: pictures of 20 by 20 bytes.
    "catch": (
        "env=_seen:Catch",
        "pixels.frame_stack=2",
        "num_envs=8",
        "frames_per_batch=1024",
        "total_frames=150000",
        "lr=1e-3",
        "batch_size=256",
        "epochs=6",
        "entropy_coeff=0.01",
        "activation=relu",
    ),
    "reach": (
        "env=_seen:Reach",
        "num_envs=4",
        "total_frames=12000",
        "batch_size=64",
        "num_cells=64,64",
        "actor_lr=1e-3",
        "critic_lr=1e-3",
        "alpha_lr=1e-3",
        "gamma=0.9",
        "alpha=0.2",
        "buffer_size=20000",
        "updates_per_frame=0.5",
    ),
    # What many updates a frame buy: few frames, and nets as small as the machine.
    "hopper_few_frames": (
        "env=Hopper-v5",
        "total_frames=30000",
        "num_cells=128,128",
        "warmup=1000",
        "batch_size=64",
    ),
}
# Gates A and B of the team algorithms: three navigators with goals of their own, four carriers.
_NAVIGATION = {
    "agents_with_same_goal": 1,
    "collisions": "false",
    "split_goals": "false",
    "observe_all_goals": "false",
    "shared_rew": "false",
    "lidar_range": 0.35,
    "agent_radius": 0.1,
    "n_agents": 3,
}
_BALANCE = {"n_agents": 4, "random_package_pos_on_line": "true", "package_mass": 5}
for _task, _arguments in (("navigation", _NAVIGATION), ("balance", _BALANCE)):
    TASKS |= {
        _task: (
            f"env=vmas/{_task}",
            "tuned=true",
            "total_frames=300000",
            *(f"env_kwargs.{name}={value}" for name, value in _arguments.items()),
        )
    }
# Those of `_plain` learn on TorchRL's own paths, those of `_sb3` are Stable-Baselines3's.
PLAIN = ("_plain:sac_plain", "_plain:ppo_plain")
SB3 = tuple(f"_sb3:{name}" for name in ("a2c", "ddpg", "dqn", "ppo", "sac", "td3"))
OURS = (
    *("a2c", "ppo", "ddpg", "td3", "sac", "modsac", "redq"),
    *("dqn", "double_dqn", "dueling_dqn", "d3qn", "discrete_sac"),
    *("qmix", "vdn", "maddpg", "matd3", "mappo", "ippo", "masac", "isac"),
)
ALGORITHMS = (*OURS, *PLAIN, *SB3)


@dataclass(frozen=True, kw_only=True)
class Study(StudyOptions):
    """Which runs make up a study."""

    task: str = field(default="pendulum", metadata={"help": f"one of {', '.join(TASKS)}"})
    algorithm: str = field(default="sac", metadata={"help": "one, or several with commas between"})
    seeds: int = field(default=5, metadata={"help": "runs per algorithm, seeds 0, 1, ..."})
    name: str = field(default="", metadata={"help": "of the table; learning_<task> unless given"})
    arms: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.task not in TASKS:
            raise ValueError(f"`task` must be one of {', '.join(TASKS)}, got {self.task!r}")
        for name in self.algorithms:
            if name not in ALGORITHMS:
                raise ValueError(
                    f"`algorithm` must be made of {', '.join(ALGORITHMS)}, got {name!r}"
                )
        if self.arms and len(self.algorithms) > 1:
            raise ValueError(f"`algorithm` must be one beside arms, got {self.algorithm!r}")
        for name, words in self.arms.items():
            check_arm(name, words)
            if any(word.startswith("algorithm=") for word in words):
                raise ValueError(f"`arm.{name}` must leave algorithm to all arms, got {words}")
        check_counts({"seeds": self.seeds})
        super().__post_init__()

    @property
    def title(self) -> str:
        return self.name or f"learning_{self.task}"

    @property
    def algorithms(self) -> tuple[str, ...]:
        return tuple(self.algorithm.split(","))

    @property
    def training_words(self) -> tuple[str, ...]:
        return merged((*TASKS[self.task], *self.words))

    @property
    def command(self) -> str:
        own = f"task={self.task} algorithm={self.algorithm} seeds={self.seeds}"
        own += f" name={self.name}" if self.name else ""
        own += f" processes={self.processes} episodes={self.episodes}"
        return " ".join(("python benchmarks/learning.py", own, *self.words, *arm_words(self.arms)))

    @property
    def trainings(self) -> tuple[Training, ...]:
        shared = self.training_words
        arms = {name: merged((*shared, *words)) for name, words in self.arms.items()}
        check_distinct({BASE: shared, **arms})
        named = [(one, one, shared) for one in self.algorithms]
        named += [(f"{self.algorithm}, {name}", self.algorithm, own) for name, own in arms.items()]
        return tuple(self.training(*one, of=self.task) for one in named)


def run(study: Study, trainings: Sequence[Training]) -> int:
    results, failures = run_all(trainings, range(study.seeds), processes=study.processes)
    if results:
        # Here, because it brings matplotlib and torch, which help and mistakes need not wait for.
        from _learning_report import write

        path = write(
            results,
            Path(study.results),
            name=study.title,
            title=f"Learning {study.task}",
            command=study.command,
            settings=" ".join(study.training_words),
            episodes=study.episodes,
        )
        print(f"written to {path}")
    return report_failures(failures)


def parse(argv: Sequence[str]) -> Study:
    own, rest = split(argv, Study)
    arms, words = split_arms(rest)
    return Study(**own, words=words, arms=arms)


if __name__ == "__main__":
    sys.exit(study_main(sys.argv[1:], kind=Study, doc=__doc__, parse=parse, run=run))
