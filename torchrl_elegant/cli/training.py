"""The command `train`: words in, a run or a sweep of seeds out, an exit code back."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

import torch

from torchrl_elegant.algorithms import ALGORITHMS, AlgorithmConfig
from torchrl_elegant.algorithms.tuned import is_tuned, tuned_settings
from torchrl_elegant.cli.command_line import Options, import_named, parse, run_main
from torchrl_elegant.config.options import check, check_options, option, options_of
from torchrl_elegant.config.text import UsageError
from torchrl_elegant.runs.config_file import Stored, from_yaml
from torchrl_elegant.runs.files import sole_use
from torchrl_elegant.runs.sweeps.folder import SweepFolder, is_sweep
from torchrl_elegant.runs.sweeps.side_by_side import MISTAKE
from torchrl_elegant.runs.sweeps.sweep import (
    mistakes_of_all,
    note_end,
    refuse_own,
    refuse_unfit,
    run_seeds,
    sweep_path,
)
from torchrl_elegant.runs.train import (
    TrainResult,
    run_with,
    stored_run,
    the_same_environment,
)
from torchrl_elegant.runs.trust import Trust
from torchrl_elegant.trainers.run_config import RunConfig


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """Options of `train` itself."""

    resume: str | None = option(None, "run folder to continue; other words change its options")
    trust: bool = option(
        False,
        "let names in the stored configuration of resume run code; env= or algorithm= given once "
        "more do so for themselves",
    )
    module: str | None = option(
        None, "module to import first: one that registers algorithms or defines the environment"
    )
    start_from: str | None = option(
        None, "run folder or policy file whose actor's parameters a new run begins with"
    )
    tuned: bool | Literal["simulator"] | None = option(
        None,
        "start from the tuned settings for this environment; simulator: from those for simulators "
        "of thousands of environments; none: only for environments of this package, which need "
        "them",
    )
    seeds: int | None = option(
        None,
        "number of seeds to train, the first is seed: a sweep, one folder with a run folder for "
        "each seed; resume= of a sweep goes on with the seeds that are not finished",
        low=1,
        high=10_000,
    )
    jobs: int = option(
        1, "runs of a sweep at a time, each in a process with its share of the cores", low=1
    )

    def __post_init__(self) -> None:
        check_options(self)
        several = self.seeds is not None or (self.resume is not None and is_sweep(self.resume))
        check(several or self.jobs == 1, "jobs", "be 1 for one run", self.jobs, "set seeds=...")
        one = self.resume is None or is_sweep(self.resume)
        way_out = "give the folder of a sweep"
        check(one or self.seeds is None, "seeds", "be none with resume", self.seeds, way_out)
        alone = self.resume is None or not self.tuned
        check(alone, "tuned", "be false with resume", self.tuned, "set the options by name")
        new = self.start_from is None or (self.resume is None and self.seeds is None)
        must, way_out = "be none with resume and with seeds", "give folder=... for one new run"
        check(new, "start_from", must, self.start_from, way_out)
        check(
            self.resume is not None or not self.trust,
            "trust",
            "be false without resume",
            self.trust,
            "what you name yourself needs no trust",
        )

    @property
    def trusted(self) -> Trust:
        """Trust that the words put into stored names."""
        return Trust(everything=self.trust, module=self.module)


def train_command(
    argv: Sequence[str],
    *,
    program: str,
    default: str,
    end: Callable[[TrainResult], int] = attrgetter("exit_code"),
) -> int:
    """Train or continue a run; returns the exit code, 2 for a mistake in the words.

    ``end`` gives the exit code of a run that is over.
    """

    def main(words: Sequence[str]) -> int:
        words = import_named(words)
        options = parse_training(words, default=default, program=program)
        own = options.extra
        one_run = partial(train_command, program=program, default=default)
        if own.resume is not None and is_sweep(own.resume):
            with SweepFolder.going_on(Path(own.resume)) as sweep:
                return _go_on_with_sweep(sweep, words, options, one_run)
        if own.seeds is not None:
            return _begin_sweep(words, options, one_run)
        set_process(options.run, options.config)
        path = None if own.resume is None else Path(own.resume)
        run, config = options.run, options.config
        return end(run_with(run, config, path, trust=own.trusted, start_from=own.start_from))

    return run_main(main, argv)


def _begin_sweep(words: Sequence[str], options: Options, one_run: Callable[..., int]) -> int:
    run, kept = options.run, _without(words, "seeds", "jobs", "seed", "folder")
    sweep = SweepFolder.create(
        sweep_path(run, options.algorithm.rpartition(":")[2]),
        run=run,
        config=options.config,
        seeds=options.extra.seeds,
    )
    end = partial(note_end, sweep.total_frames)
    tasks = {
        seed: partial(one_run, [*kept, f"seed={seed}", f"folder={sweep.of(seed)}"], end=end)
        for seed in sweep.seeds
    }
    with sole_use(sweep.path):
        # A mistake in the words is one for every seed.
        return run_seeds(sweep, tasks, jobs=options.extra.jobs, last_codes=[MISTAKE]).exit_code


def _go_on_with_sweep(
    sweep: SweepFolder, words: Sequence[str], options: Options, one_run: Callable[..., int]
) -> int:
    names = [word.partition("=")[0] for word in words]
    refuse_own(names)
    run, trust = options.run, options.extra.trusted
    _, stored, before = from_yaml(sweep.config(), algorithms=ALGORITHMS, trust=trust)
    the_same_environment(stored, run, trust=trust)
    refuse_unfit(before, run, options.config, total_frames=sweep.total_frames)
    # The options were read before the folder was locked, and so perhaps an older plan.
    frames = run.total_frames if "total_frames" in names else None
    sweep.plan(seeds=options.extra.seeds, total_frames=frames)
    # A seed that an earlier resume did not come to knows of the older plan alone.
    kept = _without(words, "seeds", "jobs", "resume", "total_frames")
    kept.append(f"total_frames={sweep.total_frames}")
    end = partial(note_end, sweep.total_frames)
    tasks = {
        seed: partial(one_run, [*kept, f"resume={sweep.prepare(seed)}"], end=end)
        for seed in sweep.unfinished()
    }
    changed = {name.partition(".")[0] for name in names} - options_of(TrainOptions).keys()
    last = mistakes_of_all(changed)
    return run_seeds(sweep, tasks, jobs=options.extra.jobs, last_codes=last).exit_code


def _without(words: Sequence[str], *names: str) -> list[str]:
    return [word for word in words if word.partition("=")[0] not in names]


def parse_training(words: Sequence[str], *, default: str, program: str = "train") -> Options:
    """Read the words of a training script.

    >>> parse_training(["tuned=true", "env=CartPole-v1"], default="ppo").run.num_envs
    8
    """
    return parse(
        words,
        algorithms=ALGORITHMS,
        default=default,
        extra=TrainOptions,
        stored=_stored,
        preset=_preset,
        program=program,
    )


def _preset(options: TrainOptions, algorithm: str, env: str | None) -> dict[str, Any]:
    if options.resume is not None:
        return {}
    usual = {"env": ALGORITHMS[algorithm].example}
    try:
        env = env or usual["env"]
        wanted = is_tuned(algorithm, env) if options.tuned is None else options.tuned
        named = wanted if isinstance(wanted, str) else env
        return usual | (tuned_settings(algorithm, named) if wanted else {})
    except ValueError as error:
        raise UsageError(str(error)) from error


def _stored(options: TrainOptions) -> Stored | None:
    if options.resume is None:
        return None
    if is_sweep(options.resume):
        text = SweepFolder.open(Path(options.resume)).config()
        return from_yaml(text, algorithms=ALGORITHMS, trust=options.trusted)
    return stored_run(options.resume, trust=options.trusted)


def set_process(run: RunConfig, config: AlgorithmConfig) -> None:
    """Set allocator and threads of this process, which a command may and the library does not.

    Narrow networks get one thread: they lose more to waking others than they gain.
    """
    keep_freed_blocks()
    if run.threads == 0:
        narrow = max(config.num_cells) < _WIDE and config.batch_size <= 512
        torch.set_num_threads(1 if narrow else min(torch.get_num_threads(), 4))


# Width from which networks are given more than one thread.
_WIDE = 128
# Parameters of glibc's mallopt, and the largest threshold it takes.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_BYTES = 1 << 25


def keep_freed_blocks() -> bool:
    """Make this process keep freed blocks of up to 32 MiB instead of returning them at once.

    An update on the CPU allocates and frees the same activations again and again. Blocks beyond
    128 KiB, those of a 256 wide ensemble, otherwise go back to the kernel each time and are paged
    in anew: a tenth of the update. Returns whether the C library took the setting; others than
    glibc leave things as they are.

    >>> keep_freed_blocks() in (True, False)
    True
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_MMAP_THRESHOLD, _BYTES)) and bool(mallopt(_TRIM_THRESHOLD, 16 * _BYTES))
