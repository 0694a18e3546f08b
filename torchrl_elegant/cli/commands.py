"""Commands over runs: words in, a run, its evaluation or its policy out, an exit code back."""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from torchrl_elegant.algorithms import ALGORITHMS, AlgorithmConfig
from torchrl_elegant.algorithms.tuned import is_tuned, tuned_settings
from torchrl_elegant.cli.command_line import Options, parse, parse_one, run_main
from torchrl_elegant.config.options import check, check_options, option
from torchrl_elegant.config.text import UsageError
from torchrl_elegant.runs.config_file import Stored
from torchrl_elegant.runs.evaluate import evaluate_run, policy_path
from torchrl_elegant.runs.files import write_file
from torchrl_elegant.runs.policy import Policy
from torchrl_elegant.runs.train import run_with, stored_run
from torchrl_elegant.trainers.run_config import RunConfig


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """Options of `train` itself."""

    resume: str | None = option(None, "run folder to continue; other words change its options")
    tuned: bool | None = option(
        None,
        "start from the tuned settings for this environment; none: for this package's own "
        "environments, whose thousands of rows suit no other defaults",
    )

    def __post_init__(self) -> None:
        alone = self.resume is None or not self.tuned
        check(alone, "tuned", "be false with resume", self.tuned, "set the options by name")


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions:
    """Options of `evaluate`."""

    run: str = option("", "run folder; may be given as a bare word")
    episodes: int = option(20, "episodes to play, deterministically", low=1)
    policy: Literal["final", "best"] = option("final", "policy.pt or policy_best.pt")
    seed: int = option(1_000, "seed of the environment", low=0)
    video: bool = option(False, "write a GIF of one episode into the run folder")

    def __post_init__(self) -> None:
        check_options(self)


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """Options of `export`."""

    run: str = option("", "run folder; may be given as a bare word")
    to: str = option("policy.onnx", "new file; its suffix is the format, .onnx or .pt2")
    policy: Literal["final", "best"] = option("final", "policy.pt or policy_best.pt")

    def __post_init__(self) -> None:
        check_options(self)
        known = Path(self.to).suffix in (".onnx", ".pt2")
        check(known, "to", "be a file that ends in .onnx or .pt2", self.to)


def train_command(argv: Sequence[str], *, program: str, default: str) -> int:
    """Train or continue a run; returns the exit code, 2 for a mistake in the words."""

    def main(words: Sequence[str]) -> None:
        _look_here_too()
        options = parse_training(words, default=default, program=program)
        folder = options.extra.resume
        set_process(options.run, options.config)
        run_with(options.run, options.config, None if folder is None else Path(folder))

    return run_main(main, argv)


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


def evaluate_command(argv: Sequence[str], *, program: str) -> int:
    """Evaluate a run's policy; writes a summary to stdout, and ``evaluation.json`` and
    ``evaluation.csv`` to the run folder."""

    def main(words: Sequence[str]) -> None:
        _look_here_too()
        options = _parse_with_run(words, EvaluateOptions, program)
        folder = Path(options.run)
        result, video = evaluate_run(
            folder,
            episodes=options.episodes,
            policy=options.policy,
            seed=options.seed,
            video=options.video,
        )
        report = {
            "episodes": len(result.returns),
            "return_mean": result.return_mean,
            "return_std": result.return_std,
            "return_ci95": result.return_ci95,
            "length_mean": result.length_mean,
            "policy": options.policy,
            "seed": options.seed,
            **asdict(result),
        }
        write_file(folder / "evaluation.json", json.dumps(report, indent=1).encode())
        rows = zip(range(len(result.returns)), result.returns, result.lengths, strict=True)
        table = "".join(f"{number},{value},{length}\n" for number, value, length in rows)
        write_file(folder / "evaluation.csv", f"episode,return,length\n{table}".encode())
        sys.stdout.write(
            f"{len(result.returns)} episodes: return {result.return_mean:.2f} ± "
            f"{result.return_std:.2f} (std), 95 % confidence of the mean ± "
            f"{result.return_ci95:.2f}, length {result.length_mean:.1f}\n"
        )
        if video is not None:
            sys.stdout.write(f"video: {video}\n")

    return run_main(main, argv)


def export_command(argv: Sequence[str], *, program: str) -> int:
    """Export a run's policy; returns the exit code, 2 for a mistake in the words."""

    def main(words: Sequence[str]) -> None:
        options = _parse_with_run(words, ExportOptions, program)
        source, target = policy_path(options.run, options.policy), Path(options.to)
        # Before the policy is read: tracing it takes seconds.
        if target.exists():
            raise UsageError(f"`to` must be a new file, got {options.to!r}, which exists already")
        if not target.parent.is_dir():
            raise UsageError(
                f"`to` must lie in a folder that exists, got {options.to!r}; make "
                f"{str(target.parent)!r} first"
            )
        Policy.load(source).export(target)
        sys.stdout.write(f"exported {source} to {target}\n")

    return run_main(main, argv)


def _parse_with_run(words: Sequence[str], cls: type, program: str) -> Any:
    """Options of a command that takes one run folder, as a bare word or as `run=`."""
    named = [f"run={word}" if _is_folder_word(word) else word for word in words]
    options = parse_one(named, cls, program=program, takes="RUN key=value ...")
    if not options.run:
        raise UsageError(f"`run` must be a run folder; write {program} <run folder>")
    return options


def _look_here_too() -> None:
    """Let ``env`` and ``algorithm`` name modules in the current folder."""
    # Python puts the folder of the script on its path, not the current one.
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)


def _is_folder_word(word: str) -> bool:
    return "=" not in word and not word.startswith("-")


def _preset(options: TrainOptions, algorithm: str, env: str | None) -> dict[str, Any]:
    if options.resume is not None:
        return {}
    usual = {"env": ALGORITHMS[algorithm].example}
    try:
        env = env or usual["env"]
        wanted = is_tuned(algorithm, env) if options.tuned is None else options.tuned
        return usual | (tuned_settings(algorithm, env) if wanted else {})
    except ValueError as error:
        raise UsageError(str(error)) from error


def _stored(options: TrainOptions) -> Stored | None:
    return None if options.resume is None else stored_run(options.resume)


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
