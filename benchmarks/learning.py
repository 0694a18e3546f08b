"""How well it learns: a study over seeds, each seed a run of ``scripts/train_sac.py`` of its own.

    python benchmarks/learning.py task=pendulum algorithm=sac,modsac,_sb3:sac seeds=5 processes=2

Words besides the study's own go to the training as they are, e.g. ``total_frames=50000``. A study
that was interrupted is taken up by the same command: finished seeds are kept, a seed that has a
checkpoint goes on from it. Writes ``benchmarks/results/learning_<task>.md`` and ``.png``.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).resolve().parent
SCRIPTS = HERE.parent / "scripts"

# The settings are those of `tuned=true`, with each algorithm's own budget.
TASKS: Mapping[str, tuple[str, ...]] = {
    "pendulum": ("env=Pendulum-v1", "tuned=true"),
    "cartpole": ("env=CartPole-v1", "tuned=true"),
    "acrobot": ("env=Acrobot-v1", "tuned=true"),
    "lunarlander": ("env=LunarLander-v3", "tuned=true"),
    "lunarlander_continuous": ("env=LunarLanderContinuous-v3", "tuned=true"),
    "hopper": ("env=Hopper-v5", "tuned=true"),
    "halfcheetah": ("env=HalfCheetah-v5", "tuned=true"),
    # Seen, not told: pictures of 20 by 20 bytes.
    "catch": (
        "env=_seen:Catch",
        "frame_stack=2",
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
    ),
}
# Those of `_plain` learn on TorchRL's own paths, those of `_sb3` are Stable-Baselines3's.
PLAIN = ("_plain:sac_plain", "_plain:ppo_plain")
SB3 = tuple(f"_sb3:{name}" for name in ("a2c", "ddpg", "dqn", "ppo", "sac", "td3"))
OURS = (
    *("a2c", "ppo", "ddpg", "td3", "sac", "modsac", "redq"),
    *("dqn", "double_dqn", "dueling_dqn", "d3qn", "discrete_sac"),
)
ALGORITHMS = (*OURS, *PLAIN, *SB3)


@dataclass(frozen=True, kw_only=True)
class Study:
    """Which runs make up a study; ``words`` go to every training."""

    task: str = field(default="pendulum", metadata={"help": f"one of {', '.join(TASKS)}"})
    algorithm: str = field(default="sac", metadata={"help": "one, or several with commas between"})
    seeds: int = field(default=5, metadata={"help": "runs per algorithm, seeds 0, 1, ..."})
    processes: int = field(default=2, metadata={"help": "runs at a time"})
    episodes: int = field(default=20, metadata={"help": "episodes of the evaluation at the end"})
    results: str = field(
        default=str(HERE / "results"), metadata={"help": "folder of the table and the picture"}
    )
    runs: str = field(
        default=str(HERE / "studies"), metadata={"help": "folder of the runs themselves"}
    )
    peers: str = field(
        default=sys.executable, metadata={"help": "interpreter that has Stable-Baselines3"}
    )
    words: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.task not in TASKS:
            raise ValueError(f"`task` must be one of {', '.join(TASKS)}, got {self.task!r}")
        for name in self.algorithms:
            if name not in ALGORITHMS:
                raise ValueError(
                    f"`algorithm` must be made of {', '.join(ALGORITHMS)}, got {name!r}"
                )
        for name in ("seeds", "processes", "episodes"):
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be at least 1, got {getattr(self, name)}")
        for word in self.words:
            if word.split("=")[0] in ("seed", "folder", "resume", "threads"):
                raise ValueError(f"`{word}` must be left to the study, which sets it for each run")

    @property
    def algorithms(self) -> tuple[str, ...]:
        return tuple(self.algorithm.split(","))

    @property
    def training_words(self) -> tuple[str, ...]:
        # A word given later takes the place of the task's own.
        merged = dict(word.split("=", 1) for word in (*TASKS[self.task], *self.words))
        return tuple(f"{key}={value}" for key, value in merged.items())

    @property
    def command(self) -> str:
        own = f"task={self.task} algorithm={self.algorithm} seeds={self.seeds}"
        tail = " ".join((f"processes={self.processes}", f"episodes={self.episodes}", *self.words))
        return f"python benchmarks/learning.py {own} {tail}"

    def tuned(self, algorithm: str) -> dict[str, Any]:
        """What `tuned=true` stands for today: other tables are other settings."""
        # Here, because it brings torch, which help and mistakes need not wait for.
        from torchrl_elegant.algorithms.tuned import tuned_settings

        words = dict(word.split("=", 1) for word in self.training_words)
        if words.get("tuned") != "true":
            return {}
        name = algorithm.removeprefix("_sb3:").removeprefix("_plain:").removesuffix("_plain")
        return tuned_settings(name, words["env"])

    def folder(self, algorithm: str) -> Path:
        """Runs with other settings have another folder, so that results are never mixed."""
        settings = json.dumps([self.training_words, self.episodes, self.tuned(algorithm)])
        digest = hashlib.sha256(settings.encode()).hexdigest()[:8]
        return Path(self.runs) / self.task / f"{algorithm.replace(':', '-')}-{digest}"


class Children:
    """The processes under way, so that an interrupted study stops them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._closed = False

    def run(self, words: Sequence[str], *, threads: int, log: Path, lock: int) -> None:
        """Run a script to its end; what it says goes to ``log``.

        It inherits the open file ``lock``, and with it the claim on the seed: a script that
        outlives a killed study keeps the next study from training the same seed beside it.
        """
        names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
        environment = os.environ | {name: str(threads) for name in names}
        with log.open("a") as messages:
            with self._lock:
                if self._closed:
                    raise RuntimeError("the study is stopping")
                process = subprocess.Popen(
                    words,
                    stdout=messages,
                    stderr=subprocess.STDOUT,
                    env=environment,
                    cwd=HERE,
                    pass_fds=(lock,),
                    start_new_session=True,
                )
                self._running.add(process)
            process.wait()
        with self._lock:
            self._running.discard(process)
        if process.returncode:
            raise RuntimeError(f"{Path(words[1]).name} ended with {process.returncode}: see {log}")

    def stop(self) -> None:
        """Ask every child to end, which leaves a checkpoint, and wait for it."""
        with self._lock:
            self._closed = True
            running = list(self._running)
        for process in running:
            process.terminate()
        for process in running:
            try:
                process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                process.kill()


def run_seed(study: Study, algorithm: str, seed: int, children: Children) -> dict[str, Any]:
    """The result of one seed: read where it is finished, else trained, evaluated and stored."""
    folder = study.folder(algorithm) / f"s{seed}"
    stored = folder.with_suffix(".json")
    if stored.exists():
        return json.loads(stored.read_text())
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as claim:
        try:
            fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RuntimeError(f"another process still trains in {folder}: end it first") from None
        evaluation = train_and_evaluate(study, algorithm, seed, folder, children, claim.fileno())
    result = {
        "algorithm": algorithm,
        "seed": seed,
        "folder": str(folder),
        "evaluation": evaluation,
    }
    # Under its own name only when whole: a half-written result must not count as finished.
    partial = stored.with_suffix(".partial")
    partial.write_text(json.dumps(result, indent=2) + "\n")
    partial.replace(stored)
    return result


def train_and_evaluate(
    study: Study, algorithm: str, seed: int, folder: Path, children: Children, lock: int
) -> dict[str, float]:
    threads = max(1, (os.cpu_count() or 1) // study.processes)
    run = partial(children.run, threads=threads, log=folder.with_suffix(".log"), lock=lock)
    if algorithm in SB3:
        # It keeps no checkpoints: what was begun is begun again.
        shutil.rmtree(folder, ignore_errors=True)
        job = folder.with_suffix(".job")
        job.write_text(json.dumps(sb3_job(study, algorithm, seed, folder, threads)))
        run([study.peers, str(HERE / "_sb3_learner.py"), str(job)])
        return json.loads((folder / "evaluation.json").read_text())
    words = start_words(study, algorithm, seed, folder, threads)
    run([sys.executable, str(SCRIPTS / "train_sac.py"), *words])
    require_whole(folder)
    evaluate = (str(SCRIPTS / "evaluate.py"), str(folder), f"episodes={study.episodes}")
    run([sys.executable, *evaluate])
    return json.loads((folder / "evaluation.json").read_text())


def sb3_job(study: Study, algorithm: str, seed: int, folder: Path, threads: int) -> dict[str, Any]:
    """The same task and settings as ours, in words of Stable-Baselines3's."""
    from _sb3_settings import settings_of

    from torchrl_elegant.algorithms import ALGORITHMS as REGISTERED
    from torchrl_elegant.trainers.command import parse_training

    name = algorithm.removeprefix("_sb3:")
    options = parse_training(study.training_words, default=name)
    assert type(options.config) is REGISTERED[name]
    return settings_of(options.config, options.run) | {
        "env": options.run.env,
        "num_envs": options.run.num_envs,
        "total_frames": options.run.total_frames,
        "episodes": study.episodes,
        "folder": str(folder),
        "seed": seed,
        "threads": threads,
    }


def require_whole(folder: Path) -> None:
    """A run that was asked to stop ends well too, but is no result yet."""
    run = yaml.safe_load((folder / "config.yaml").read_text())["run"]
    frames = float((folder / "metrics.csv").read_text().split()[-1].split(",")[0])
    if run["target_return"] is None and frames < run["total_frames"]:
        raise RuntimeError(
            f"stopped at {frames:.0f} of {run['total_frames']} frames; the command goes on"
        )


def start_words(
    study: Study, algorithm: str, seed: int, folder: Path, threads: int
) -> tuple[str, ...]:
    if (folder / "config.yaml").exists() and any(folder.glob("checkpoints/*")):
        return (f"resume={folder}", "progress=false")
    # Killed before its first checkpoint: nothing in it can be taken up.
    if folder.exists():
        shutil.rmtree(folder)
    own = (f"algorithm={algorithm}", f"seed={seed}", f"threads={threads}", f"folder={folder}")
    quiet = ("progress=false", "logger=none")
    return (*own, *quiet, *study.training_words)


def run(study: Study) -> int:
    jobs = [(algorithm, seed) for seed in range(study.seeds) for algorithm in study.algorithms]
    children, results, failures = Children(), [], []
    with ThreadPoolExecutor(study.processes) as pool:
        waiting = {pool.submit(run_seed, study, *job, children): job for job in jobs}
        try:
            for done in as_completed(waiting):
                algorithm, seed = waiting[done]
                try:
                    results.append(done.result())
                except (OSError, RuntimeError, ValueError) as error:
                    failures.append(f"{algorithm} seed {seed}: {error}")
                    print(f"failed: {failures[-1]}", flush=True)
                    continue
                mean = results[-1]["evaluation"]["return_mean"]
                print(f"{algorithm} seed {seed}: return {mean:.1f}", flush=True)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            children.stop()
            raise
    if results:
        # Here, because it brings matplotlib and torch, which help and mistakes need not wait for.
        from _learning_report import write

        order = {name: index for index, name in enumerate(study.algorithms)}
        results.sort(key=lambda result: (order[result["algorithm"]], result["seed"]))
        path = write(
            results,
            Path(study.results),
            name=f"learning_{study.task}",
            title=f"Learning {study.task}",
            command=study.command,
            settings=" ".join(study.training_words),
            episodes=study.episodes,
        )
        print(f"written to {path}")
    for failure in failures:
        print(f"failed: {failure}", file=sys.stderr)
    return 1 if failures else 0


def parse(argv: Sequence[str]) -> Study:
    own: dict[str, Any] = {}
    words = []
    known = {item.name: item for item in fields(Study) if item.name != "words"}
    for word in argv:
        key, equals, value = word.partition("=")
        if not equals:
            raise ValueError(f"a word must be key=value, got {word!r}")
        if key not in known:
            words.append(word)
        elif isinstance(known[key].default, int):
            if not value.isdecimal():
                raise ValueError(f"`{key}` must be an integer, got {value!r}")
            own[key] = int(value)
        else:
            own[key] = value
    return Study(**own, words=tuple(words))


def main(argv: Sequence[str]) -> int:
    if {"--help", "-h"} & set(argv):
        print(__doc__)
        for item in fields(Study):
            if item.name != "words":
                shown = str(item.default).replace(str(HERE), "benchmarks")
                print(f"  {item.name}={shown:<20} {item.metadata['help']}")
        return 0
    try:
        study = parse(argv)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    # A polite end is asked for by either signal, and both leave checkpoints.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return run(study)
    except KeyboardInterrupt:
        print("interrupted: the same command goes on from here", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
