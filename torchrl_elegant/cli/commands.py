"""What the scripts do: words in, a run or its evaluation out, an exit code back."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from torchrl_elegant.algorithms import ALGORITHMS
from torchrl_elegant.algorithms.base import check, check_fields, option
from torchrl_elegant.algorithms.tuned import tuned_settings
from torchrl_elegant.cli.command_line import Options, parse, parse_one, run_main
from torchrl_elegant.config.text import UsageError
from torchrl_elegant.runs.config_file import Stored
from torchrl_elegant.runs.evaluate import evaluate_run
from torchrl_elegant.runs.files import write_file
from torchrl_elegant.runs.train import run_with, stored_run


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """Words of the training scripts beside the configurations."""

    resume: str | None = option(None, "run folder to go on with; other words change its run")
    tuned: bool = option(False, "start from the settings that are kept for this environment")

    def __post_init__(self) -> None:
        alone = self.resume is None or not self.tuned
        check(alone, "tuned", "be false when a run goes on", self.tuned)


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions:
    """Words of the evaluation script."""

    run: str = option("", "run folder; may be given as a bare word")
    episodes: int = option(20, "episodes to play, deterministically")
    policy: Literal["final", "best"] = option("final", "policy.pt or policy_best.pt")
    seed: int = option(1_000, "seed of the environment")
    video: bool = option(False, "write a GIF of one episode into the run folder")

    def __post_init__(self) -> None:
        check_fields(self)
        check(self.episodes >= 1, "episodes", "be at least 1", self.episodes)
        check(self.seed >= 0, "seed", "be 0 or more", self.seed)


def train_command(argv: Sequence[str], *, program: str, default: str) -> int:
    """Train, or go on with a run, as the words say; 2 for a mistake in them."""

    def main(words: Sequence[str]) -> None:
        _look_here_too()
        options = parse_training(words, default=default, program=program)
        folder = options.extra.resume
        run_with(options.run, options.config, None if folder is None else Path(folder))

    return run_main(main, argv)


def parse_training(words: Sequence[str], *, default: str, program: str = "train") -> Options:
    """What the words of a training script ask for.

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
    """Evaluate a run's policy; the report goes to stdout and into ``evaluation.json``, its episodes
    into ``evaluation.csv`` as well."""

    def main(words: Sequence[str]) -> None:
        _look_here_too()
        named = [f"run={word}" if _is_folder_word(word) else word for word in words]
        options = parse_one(named, EvaluateOptions, program=program)
        if not options.run:
            raise UsageError(f"`run` must be a run folder; write {program} <run folder>")
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


def _look_here_too() -> None:
    """Let ``env`` and ``algorithm`` name modules of the folder that the command is run from."""
    # A script's own folder stands first on the path, and the current one not at all.
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
        return usual | (tuned_settings(algorithm, env or usual["env"]) if options.tuned else {})
    except ValueError as error:
        raise UsageError(str(error)) from error


def _stored(options: TrainOptions) -> Stored | None:
    return None if options.resume is None else stored_run(options.resume)
