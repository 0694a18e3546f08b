"""The commands `evaluate`, `export` and `compare`: words in, files and an exit code out."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from torchrl_elegant.cli.command_line import import_named, parse_one, run_main
from torchrl_elegant.config.options import check, check_options, option
from torchrl_elegant.config.text import UsageError
from torchrl_elegant.modules.multiagent.selfplay import SelfPlayActors
from torchrl_elegant.runs.evaluate import at_play, evaluate, film, policy_path, write_into
from torchrl_elegant.runs.policy import Policy, new_file
from torchrl_elegant.runs.sweeps.folder import is_sweep
from torchrl_elegant.runs.trust import Trust
from torchrl_elegant.tournament.leaderboard import FILE
from torchrl_elegant.trainers.evaluation import Evaluation
from torchrl_elegant.trainers.run_config import check_episodes

_RUN = "run folder, or that of a tournament; may be given as a bare word"
_POLICY = (
    "final: policy.pt; best: policy_best.pt; of a tournament both are the winner's, ensemble is "
    "that of its lineages"
)


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions:
    """Options of `evaluate`."""

    run: str = option("", _RUN)
    episodes: int = option(20, "episodes to play, deterministically", low=1)
    max_eval_steps: int | None = option(
        None, "steps after which an episode counts, and a film ends; none: as the run", low=1
    )
    policy: Literal["final", "best", "ensemble"] = option("final", _POLICY)
    seed: int = option(1_000, "seed of the environment", low=0)
    video: bool = option(False, "write a GIF of one episode into the run folder")
    ratings: bool = option(
        False, "rate the earlier selves of a run with selfplay against each other, into ratings.csv"
    )
    env: str | None = option(
        None, "environment to play in: one that fits the policy; none: the run's own"
    )
    trust: bool = option(False, "let the name of the environment in the run folder run code")
    module: str | None = option(
        None, "module to import first: one that defines the environment or builds the policy"
    )

    def __post_init__(self) -> None:
        check_options(self)
        check_episodes("episodes", self.episodes)


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """Options of `export`."""

    run: str = option("", _RUN)
    to: str = option("policy.onnx", "new file; its suffix is the format, .onnx or .pt2")
    policy: Literal["final", "best", "ensemble"] = option("final", _POLICY)
    module: str | None = option(None, "module to import first: one that builds the policy")

    def __post_init__(self) -> None:
        check_options(self)
        known = Path(self.to).suffix in (".onnx", ".pt2")
        check(known, "to", "be a file that ends in .onnx or .pt2", self.to)


@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """Options of `compare`; run folders, and folders that hold some, are bare words."""

    out: str | None = option(
        None, "new or empty folder for the page; none: comparison, comparison-2, ..."
    )
    at: int | None = option(
        None, "frame to compare returns at; none: the last that every group reaches", low=1
    )
    marl_eval: str | None = option(
        None, "new JSON file with the runs in the form that the package marl-eval reads"
    )

    def __post_init__(self) -> None:
        check_options(self)


def evaluate_command(argv: Sequence[str], *, program: str) -> int:
    """Evaluate a run's policy; writes a summary to stdout, and ``evaluation.json`` and
    ``evaluation.csv`` to the run folder."""

    def main(words: Sequence[str]) -> None:
        words = import_named(words)
        options = _parse_with_run(words, EvaluateOptions, program)
        folder = Path(options.run)
        about: dict[str, Any] = {
            "policy": options.policy,
            "seed": options.seed,
            "trust": Trust(everything=options.trust, module=options.module),
            "env_factory": options.env,
            "max_eval_steps": options.max_eval_steps,
        }
        # First, because what cannot be filmed should not cost an evaluation to find out.
        video = film(folder, **about) if options.video else None
        result = evaluate(folder, episodes=options.episodes, **about)
        report = {
            "episodes": len(result.returns),
            "return_mean": result.return_mean,
            "return_std": result.return_std,
            # JSON knows no infinity, and one episode says nothing of the spread.
            "return_ci95": result.return_ci95 if len(result.returns) > 1 else None,
            "length_mean": result.length_mean,
            "policy": options.policy,
            "seed": options.seed,
            **asdict(result),
        }
        sys.stdout.write(f"{_summary(result)}\n")
        write_into(folder, "evaluation.json", json.dumps(report, indent=1).encode())
        rows = zip(range(len(result.returns)), result.returns, result.lengths, strict=True)
        table = "".join(f"{number},{value},{length}\n" for number, value, length in rows)
        write_into(folder, "evaluation.csv", f"episode,return,length\n{table}".encode())
        if video is not None:
            sys.stdout.write(f"video: {video}\n")
        if options.ratings:
            sys.stdout.write(_rated(folder, options.episodes, about))

    return run_main(main, argv)


def _rated(folder: Path, episodes: int, about: dict[str, Any]) -> str:
    """Ratings of a run's earlier selves, as lines; they are written into its folder as well."""
    # Here, because its package brings matplotlib, which takes long to import.
    from torchrl_elegant.reports.ratings import rate

    most = about.pop("max_eval_steps")
    with at_play(folder, episodes=episodes, **about) as (policy, env, run):
        if not isinstance(policy.actor, SelfPlayActors):
            raise UsageError(
                f"`ratings` must be false for {str(folder)!r}, whose policy has no earlier selves; "
                "train with selfplay=0.5"
            )
        most = most or run.max_eval_steps
        rated = rate(policy.actor, env, episodes=episodes, max_steps=most)
    rows = [(one.group, one.snapshot, one.rating, one.mean_return) for one in rated]
    named = [(group, "now" if of is None else of, *rest) for group, of, *rest in rows]
    table = "".join(f"{group},{of},{points},{mean}\n" for group, of, points, mean in named)
    write_into(folder, "ratings.csv", f"group,snapshot,rating,return_mean\n{table}".encode())
    return "".join(
        f"{group} {of}: rating {points:.0f}, return {mean:.2f}\n"
        for group, of, points, mean in named
    )


def _summary(result: Evaluation) -> str:
    count, mean, length = len(result.returns), result.return_mean, result.length_mean
    if count == 1:
        return f"1 episode: return {mean:.2f}, length {length:.0f}"
    return (
        f"{count} episodes: return {mean:.2f} ± {result.return_std:.2f} (std), 95 % confidence of "
        f"the mean ± {result.return_ci95:.2f}, length {length:.1f}"
    )


def export_command(argv: Sequence[str], *, program: str) -> int:
    """Export a run's policy; returns the exit code, 2 for a mistake in the words."""

    def main(words: Sequence[str]) -> None:
        words = import_named(words)
        options = _parse_with_run(words, ExportOptions, program)
        source = policy_path(options.run, options.policy)
        # Before the policy is read: tracing it takes seconds.
        target = new_file(options.to, option="to")
        Policy.load(source).export(target)
        sys.stdout.write(f"exported {source} to {target}\n")

    return run_main(main, argv)


def compare_command(argv: Sequence[str], *, program: str) -> int:
    """Compare runs; writes the page into a folder, and names it and all that was left out."""

    def main(words: Sequence[str]) -> None:
        folders = [word for word in words if _is_folder_word(word)]
        rest = [word for word in words if not _is_folder_word(word)]
        options = parse_one(rest, CompareOptions, program=program, takes="RUN ... key=value ...")
        if not folders:
            raise UsageError(f"`runs` must be run folders or sweeps; write {program} <folder> ...")
        # Here, because matplotlib takes long to import, and no other command needs it.
        from torchrl_elegant.reports import compare

        comparison = compare(folders, at=options.at, marl_eval=options.marl_eval)
        page = comparison.write(options.out)
        sys.stdout.write("".join(f"note: {note}\n" for note in comparison.notes))
        sys.stdout.write(f"{comparison.summary()}\npage: {page}\n")

    return run_main(main, argv)


def _parse_with_run(words: Sequence[str], cls: type, program: str) -> Any:
    """Options of a command that takes one run folder, as a bare word or as `run=`."""
    named = [f"run={word}" if _is_folder_word(word) else word for word in words]
    options = parse_one(named, cls, program=program, takes="RUN key=value ...")
    if not options.run:
        raise UsageError(f"`run` must be a run folder; write {program} <run folder>")
    if is_sweep(options.run):
        first = next(Path(options.run).glob("seed-*"), "a run folder in it")
        raise UsageError(f"`run` must be one run, got the sweep {options.run!r}; choose {first}")
    return _of_tournament(options)


def _of_tournament(options: Any) -> Any:
    """The options with the run folder that a tournament has made, where its folder was given."""
    folder, wants_all = Path(options.run), options.policy == "ensemble"
    # Unlike `Path.is_file` it knows that there is no file with an impossible name.
    if not os.path.isfile(folder / FILE):
        if wants_all:
            raise UsageError(
                f"`policy` must be final or best for the run {options.run!r}, got `ensemble`; give "
                "the folder of a tournament"
            )
        return options
    if not (folder / "best").is_dir():
        raise UsageError(
            f"`run` must be a tournament that has come to its end, got {options.run!r}; go on with "
            f"it by torchrl-elegant tournament resume={folder}"
        )
    chosen = folder / ("ensemble" if wants_all else "best")
    if not chosen.is_dir():
        raise UsageError(
            f"`policy` must be final for {options.run!r}, got `ensemble`: its finalists are of one "
            "lineage, and the best of them is the winner"
        )
    return replace(options, run=str(chosen), policy="final")


def _is_folder_word(word: str) -> bool:
    return "=" not in word and not word.startswith("-")
