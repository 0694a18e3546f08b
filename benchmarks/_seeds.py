"""Runs the seeds of a study side by side, each stored as it ends, so that the study can go on.

A seed is a run of ``scripts/train_sac.py`` of its own and an evaluation of what it has learned, or
one of Stable-Baselines3's.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import _archive
import yaml

HERE = Path(__file__).resolve().parent
SCRIPTS = HERE.parent / "scripts"
# Those of `_sb3` are Stable-Baselines3's.
SB3 = "_sb3:"
# What a study sets itself, for each run.
OWN_WORDS = ("seed", "folder", "resume", "threads")

Result = dict[str, Any]
Job, Ended = TypeVar("Job"), TypeVar("Ended")


@dataclass(frozen=True, kw_only=True)
class Training:
    """What is trained, seed after seed, and where its seeds are stored."""

    name: str
    algorithm: str
    words: tuple[str, ...]
    folder: Path
    archive: Path
    episodes: int
    threads: int
    peers: str


def merged(words: Sequence[str]) -> tuple[str, ...]:
    """A word given later takes the place of an earlier one."""
    return tuple(f"{key}={value}" for key, value in dict(w.split("=", 1) for w in words).items())


def check_words(words: Sequence[str]) -> None:
    for word in words:
        if word.split("=")[0] in OWN_WORDS:
            raise ValueError(f"`{word}` must be left to the study, which sets it for each run")


def tuned_of(algorithm: str, words: Sequence[str]) -> dict[str, Any]:
    """What `tuned=true` stands for today: other tables are other settings."""
    # Here, because it brings torch, which help and mistakes need not wait for.
    from torchrl_elegant.algorithms.tuned import tuned_settings

    given = dict(word.split("=", 1) for word in words)
    if given.get("tuned") not in ("true", "simulator"):
        return {}
    name = algorithm.removeprefix(SB3).removeprefix("_plain:").removesuffix("_plain")
    return tuned_settings(name, given["env"] if given["tuned"] == "true" else "simulator")


def folder_name(algorithm: str, words: Sequence[str], episodes: int) -> str:
    """Runs with other settings have another folder, so that results are never mixed."""
    settings = json.dumps([words, episodes, tuned_of(algorithm, words)])
    digest = hashlib.sha256(settings.encode()).hexdigest()[:8]
    return f"{algorithm.replace(':', '-')}-{digest}"


def threads_each(processes: int) -> int:
    return max(1, (os.cpu_count() or 1) // processes)


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


def stored_result(training: Training, seed: int) -> Result | None:
    """What a finished seed has left; an arm may have been given another name since."""
    kept = _archive.read(training.archive).get(seed)
    return None if kept is None else kept | {"algorithm": training.name}


def run_seed(training: Training, seed: int, children: Children) -> Result:
    """The result of one seed: read where it is finished, else trained, evaluated and kept."""
    if (result := stored_result(training, seed)) is not None:
        return result
    folder = training.folder / f"s{seed}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as claim:
        try:
            fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RuntimeError(f"another process still trains in {folder}: end it first") from None
        evaluation = train_and_evaluate(training, seed, folder, children, claim.fileno())
    _archive.add(training.archive, seed, _archive.gather(folder, evaluation))
    result = stored_result(training, seed)
    assert result is not None
    return result


def train_and_evaluate(
    training: Training, seed: int, folder: Path, children: Children, lock: int
) -> dict[str, float]:
    log = folder.with_suffix(".log")
    run = partial(children.run, threads=training.threads, log=log, lock=lock)
    if training.algorithm.startswith(SB3):
        # It keeps no checkpoints: what was begun is begun again.
        shutil.rmtree(folder, ignore_errors=True)
        job = folder.with_suffix(".job")
        job.write_text(json.dumps(sb3_job(training, seed, folder)))
        run([training.peers, str(HERE / "_sb3_learner.py"), str(job)])
        return json.loads((folder / "evaluation.json").read_text())
    # Stopped between training and evaluation, a run has nothing left to go on with.
    if not is_whole(folder):
        run([sys.executable, str(SCRIPTS / "train_sac.py"), *start_words(training, seed, folder)])
        if not is_whole(folder):
            raise RuntimeError("stopped before its last frame; the command goes on")
    evaluate = (str(SCRIPTS / "evaluate.py"), str(folder), f"episodes={training.episodes}")
    run([sys.executable, *evaluate])
    return json.loads((folder / "evaluation.json").read_text())


def sb3_job(training: Training, seed: int, folder: Path) -> dict[str, Any]:
    """The same task and settings as ours, in words of Stable-Baselines3's."""
    from _sb3_settings import settings_of

    from torchrl_elegant.algorithms import ALGORITHMS as REGISTERED
    from torchrl_elegant.cli.training import parse_training

    name = training.algorithm.removeprefix(SB3)
    options = parse_training(training.words, default=name)
    assert type(options.config) is REGISTERED[name]
    return settings_of(options.config, options.run) | {
        "env": options.run.env,
        "num_envs": options.run.num_envs,
        "total_frames": options.run.total_frames,
        "episodes": training.episodes,
        "folder": str(folder),
        "seed": seed,
        "threads": training.threads,
    }


def is_whole(folder: Path) -> bool:
    """Whether a run has come to its end; one that was asked to stop ends well too."""
    from torchrl_elegant.runs import Policy

    if not (folder / "policy.pt").exists():
        return False
    run = yaml.safe_load((folder / "config.yaml").read_text())["run"]
    frames = Policy.load(folder / "policy.pt").metadata["frames"]
    return frames >= run["total_frames"] or _has_reached(folder, run["target_return"])


def _has_reached(folder: Path, target: float | None) -> bool:
    from torchrl_elegant.runs.metrics import read_metrics

    rows = read_metrics(folder / "metrics.csv")
    return target is not None and bool(rows) and rows[-1]["return_mean"] >= target


def start_words(training: Training, seed: int, folder: Path) -> tuple[str, ...]:
    if (folder / "config.yaml").exists() and any(folder.glob("checkpoints/*")):
        return (f"resume={folder}", "progress=false")
    # Killed before its first checkpoint: nothing in it can be taken up.
    if folder.exists():
        shutil.rmtree(folder)
    own = (f"algorithm={training.algorithm}", f"seed={seed}", f"threads={training.threads}")
    quiet = (f"folder={folder}", "progress=false", "logger=none")
    return (*own, *quiet, *training.words)


def run_all(
    trainings: Sequence[Training], seeds: Sequence[int], *, processes: int
) -> tuple[list[Result], list[str]]:
    """Every seed of every training, and what went wrong; results in the order of both."""
    jobs = [(training, seed) for seed in seeds for training in trainings]
    children, results, failures = Children(), [], []
    train = partial(_train, children=children)
    with side_by_side(train, jobs, processes=processes, children=children) as ended:
        for (training, seed), done in ended:
            try:
                results.append(done.result())
            except (OSError, RuntimeError, ValueError) as error:
                failures.append(f"{training.name} seed {seed}: {error}")
                print(f"failed: {failures[-1]}", flush=True)
                continue
            mean = results[-1]["evaluation"]["return_mean"]
            print(f"{training.name} seed {seed}: return {mean:.1f}", flush=True)
    return in_order(results, trainings), failures


def _train(job: tuple[Training, int], children: Children) -> Result:
    return run_seed(*job, children)


@contextmanager
def side_by_side(
    run: Callable[[Job], Ended], jobs: Iterable[Job], *, processes: int, children: Children
) -> Iterator[Iterator[tuple[Job, Future[Ended]]]]:
    """The jobs as they end, so many at a time; what is raised inside stops all of them."""
    with ThreadPoolExecutor(processes) as pool:
        waiting = {pool.submit(run, job): job for job in jobs}
        try:
            yield ((waiting[done], done) for done in as_completed(waiting))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            children.stop()
            raise


def in_order(results: Sequence[Result], trainings: Sequence[Training]) -> list[Result]:
    order = {training.name: index for index, training in enumerate(trainings)}
    return sorted(results, key=lambda result: (order[result["algorithm"]], result["seed"]))
