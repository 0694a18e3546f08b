"""`tournament` and `resume_tournament`: configurations in, the best policy and its history out."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from torchrl_elegant.algorithms import ALGORITHMS, AlgorithmConfig
from torchrl_elegant.config.blame import mistakes_are_told
from torchrl_elegant.config.changes import build
from torchrl_elegant.config.options import check, check_unused, options_of, require_known
from torchrl_elegant.config.text import UsageError
from torchrl_elegant.runs.config_file import from_yaml, to_yaml
from torchrl_elegant.runs.files import sole_use
from torchrl_elegant.runs.folder import refused_by_the_system, run_path
from torchrl_elegant.runs.policy import Policy, describe
from torchrl_elegant.runs.trial import Env, Trial, run_config
from torchrl_elegant.runs.trust import Trust, know_environment
from torchrl_elegant.tournament.executors import cores_of_pod, executor_of, require_gpus
from torchrl_elegant.tournament.executors.vectorized import check_alone
from torchrl_elegant.tournament.generator import Generator
from torchrl_elegant.tournament.leaderboard import FILE, Leaderboard, Pod
from torchrl_elegant.tournament.options import TournamentConfig
from torchrl_elegant.tournament.orchestrator import Orchestrator
from torchrl_elegant.tournament.resources import Room
from torchrl_elegant.tournament.space import plain_space, spaces_of
from torchrl_elegant.tournament.store import Store
from torchrl_elegant.tournament.training import Training
from torchrl_elegant.tournament.updater import Updater
from torchrl_elegant.tournament.views import watching
from torchrl_elegant.tournament.winner import crown
from torchrl_elegant.trainers.run_config import RunConfig

logger = logging.getLogger(__name__)

#: Options that may change, besides those of the machine, when a tournament goes on.
WATCHING = ("logger", "progress")
#: Options of a run that a pod does not use.
UNUSED = (
    *("eval_interval", "checkpoint_interval", "keep_last", "save_buffer", "episode_log"),
    "target_return",
)
# Folders that are made before the leaderboard is, and what a kill may leave of that.
_BEGUN = ("checkpoints", "results")
_HALF_MADE = re.compile(rf"\.{re.escape(FILE)}\.[0-9a-f]{{32}}(-journal)?")


@dataclass(frozen=True, kw_only=True)
class TournamentResult:
    """Result of a tournament.

    ``leaders`` are the best pods of the members, the best member first. ``stopped_by`` says why it
    ended early: ``"SIGINT"``, ``"SIGTERM"`` or ``"stop file"``; None where it came to its end.
    """

    folder: Path
    leaders: tuple[Pod, ...]
    stopped_by: str | None = None

    @property
    def best(self) -> Path:
        """Run folder of the winner, as ``evaluate`` and ``export`` take it."""
        return self.folder / "best"

    @property
    def ensemble(self) -> Path:
        """Run folder of the best of each lineage as one policy; absent if only one is left."""
        return self.folder / "ensemble"

    def policy(self) -> Policy:
        """The winner's policy."""
        return Policy.load(self.best / "policy.pt")


def tournament(
    configs: AlgorithmConfig | Sequence[AlgorithmConfig],
    env: Env = None,
    *,
    slots: int | Callable[[], int] | None = None,
    **options: Any,
) -> TournamentResult:
    """Train a population whose members go on from one another's checkpoints.

    Args:
        configs: configurations of one or several algorithms, which the members have by turns.
        env: as in ``train``.
        slots: pods at a time; None for one for each core, or a callable that is asked again and
            again.
        options: fields of ``TournamentConfig`` and of ``RunConfig``.

    >>> import tempfile
    >>> from torchrl_elegant.algorithms import A2CConfig
    >>> small = A2CConfig(num_cells=(8,), batch_size=16)
    >>> short = {"budget": 64, "quantum": 16, "population": 2, "final_episodes": 1}
    >>> run = {"frames_per_batch": 16, "eval_episodes": 1, "folder": tempfile.mkdtemp()}
    >>> result = tournament(small, "CartPole-v1", executor="inline", **short, **run)
    >>> len(result.leaders), result.policy().metadata["env"]
    (2, 'CartPole-v1')
    """
    configs = (configs,) if isinstance(configs, AlgorithmConfig) else tuple(configs)
    with mistakes_are_told():
        config, run = _options(configs, env, slots, options)
        # Each pod would compile again, for seconds: that is for those who ask for it.
        configs = tuple(replace(one, compile=one.compile is True) for one in configs)
        know_environment(run.env, run.env_kwargs)
        env = run.env if env is None else env
        _check_each(configs, env, run, config)
        path = _create(run, configs, config)
    return _go(path, config, configs, run, env, slots)


def resume_tournament(
    folder: str | Path,
    *,
    trust: bool | Trust = False,
    env_factory: Env = None,
    slots: int | Callable[[], int] | None = None,
    **changes: Any,
) -> TournamentResult:
    """Go on with a tournament that was stopped or killed.

    Args:
        folder: that of the tournament.
        trust: whether stored names such as ``env: module:factory`` may run code (see ``resume``).
        env_factory: callable or name to make environments with, in place of the stored name.
        slots: as in ``tournament``.
        changes: options of the machine: ``executor``, ``cpus``, ``gpus``, ``lease``, ``retries``,
            ``store_mb``; and ``logger`` and ``progress``.
    """
    path, trust = Path(folder), Trust.of(trust)
    seen = {name: changes.pop(name) for name in WATCHING if name in changes}
    require_known(changes, TournamentConfig)
    with mistakes_are_told():
        for name in changes:
            machine = options_of(TournamentConfig)[name].topic == "machine"
            way_out = "leave it out, or begin a new tournament"
            check(machine, name, "not be given when a tournament goes on", changes[name], way_out)
        config, configs, run = _stored(path, trust)
        way_out = "make it writable, or go on with a copy of the folder"
        check(os.access(path, os.W_OK), "resume", "be a folder that can be written", path, way_out)
        if isinstance(slots, int):
            changes["slots"] = slots
        config = build(TournamentConfig, changes, config)
        run = build(RunConfig, seen, run)
        run.logger_name()
        env = env_factory or trust.environment(run.env, run.env_kwargs)
    return _go(path, config, configs, run, env, slots)


def _options(
    configs: Sequence[AlgorithmConfig],
    env: Env,
    slots: int | Callable[[], int] | None,
    options: Mapping[str, Any],
) -> tuple[TournamentConfig, RunConfig]:
    """Both configurations, from the keywords of ``tournament``."""
    check(len(configs) > 0, "configs", "hold one configuration or more", configs)
    own = {name: options[name] for name in options_of(TournamentConfig) if name in options}
    if isinstance(slots, int):
        own["slots"] = slots
    own["space"] = plain_space(own.get("space") or {})
    config = TournamentConfig(**own)
    rest = {name: value for name, value in options.items() if name not in own}
    for name in UNUSED:
        if name in rest:
            raise UsageError(f"`{name}` must not be given to a tournament: its pods do not use it")
    if config.unit == "frames":
        if "total_frames" in rest:
            raise UsageError(
                "`total_frames` must not be given to a tournament with unit=frames: budget, "
                "population and quantum give it"
            )
        rest["total_frames"] = config.quanta * config.pod_budget
    if config.executor == "processes":
        require_gpus(config.gpus)
    run = run_config(configs[0], env, **rest)
    run.logger_name()
    if config.executor in ("inline", "vectorized"):
        mode = f"executor={config.executor}"
        check_unused(run, "threads", mode=mode, other="executor=processes")
    for one in configs:
        check(
            not one.networks,
            "networks",
            "be None in a tournament",
            sorted(one.networks or ()),
            "override build_actor and build_critic in a registered subclass",
        )
    return config, run


def _check_each(
    configs: Sequence[AlgorithmConfig], env: Env, run: RunConfig, config: TournamentConfig
) -> None:
    """Refuse, before anything is made, what an algorithm or the environment refuses."""
    spaces = spaces_of(configs, config.space)
    if config.explore == "pb2":
        some = any(space.numbers() for space in spaces)
        way_out = "add one to space, or set explore=perturb"
        check(some, "explore", "be perturb where no number is searched", config.explore, way_out)
    before = (config.quanta - 1) * config.pod_budget
    for one in configs:
        with _budget_is_told(one, run, config), Trial(one, env, run=run) as trial:
            describe(trial.learner.policy, trial.about())
            if config.executor == "vectorized":
                check_alone(one, env, run)
            if config.unit != "frames":
                continue
            batch = trial.run.frames_per_batch or 0
            check(
                config.pod_budget >= batch,
                "quantum",
                f"be at least {batch}, the frames that {one.name} collects at a time",
                config.pod_budget,
                "set budget or quantum higher, or frames_per_batch lower",
            )
            if before:
                _check_refill(trial, before, config.pod_budget)


@contextmanager
def _budget_is_told(
    algorithm: AlgorithmConfig, run: RunConfig, config: TournamentConfig
) -> Iterator[None]:
    """Name the option of the tournament that gives a member's frames, where they do not suit."""
    try:
        yield
    except ValueError as error:
        if config.unit != "frames" or not str(error).startswith("`total_frames`"):
            raise
        raise UsageError(
            f"`budget` must suffice for {algorithm.name}, got {config.budget}, which gives each "
            f"member total_frames={run.total_frames}: {error}"
        ) from error


def _check_refill(trial: Trial, before: int, quantum: int) -> None:
    trial.ledger.load_state_dict({"frames": before, "updates": 1, "owed": 0.0})
    try:
        trial.go_on()
    except UsageError as error:
        raise UsageError(
            f"`quantum` must leave frames to learn from after those that fill the replay buffer of "
            f"{trial.config.name} anew, got {quantum}; set budget or quantum higher, or warmup and "
            "batch_size lower"
        ) from error


def _create(run: RunConfig, configs: Sequence[AlgorithmConfig], config: TournamentConfig) -> Path:
    """Make the folder of a new tournament; its leaderboard comes last and makes it one."""
    path = run_path(run, "tournament")
    with refused_by_the_system(path, "folder", "choose another folder=..."):
        if path.exists() and not _is_free(path):
            way_out = "choose another folder=..."
            if (path / FILE).exists():
                way_out = f"go on with the tournament in it by resume={path}, or {way_out}"
            raise UsageError(f"`folder` must be new or empty, got {str(path)!r}; {way_out}")
        for name in _BEGUN:
            (path / name).mkdir(parents=True, exist_ok=True)
        for one in path.iterdir():
            if one.name not in _BEGUN:
                one.unlink()
        plain = replace(run, folder=None)
        meta = {
            "config": asdict(config),
            "runs": [to_yaml(one.name, plain, one) for one in configs],
        }
        Leaderboard.create(path / FILE, meta, population=config.population).close()
    logger.info("tournament folder: %s", path)
    return path


def _is_free(path: Path) -> bool:
    """True for a folder that holds nothing but what a kill has left of a beginning."""
    return path.is_dir() and all(
        one.name in _BEGUN or _HALF_MADE.fullmatch(one.name) for one in path.iterdir()
    )


def _stored(
    path: Path, trust: Trust
) -> tuple[TournamentConfig, tuple[AlgorithmConfig, ...], RunConfig]:
    with open_leaderboard(path) as board:
        config, texts = board.meta("config"), board.meta("runs")
    stored = [from_yaml(text, algorithms=ALGORITHMS, trust=trust) for text in texts]
    return build(TournamentConfig, config), tuple(one[2] for one in stored), stored[0][1]


def open_leaderboard(path: str | Path, *, option: str = "resume") -> Leaderboard:
    """The leaderboard in a folder, for a reader; UsageError where there is none."""
    path = Path(path)
    if not (path / FILE).is_file():
        raise UsageError(
            f"`{option}` must be the folder of a tournament, got {str(path)!r} without {FILE}"
        )
    return Leaderboard(path / FILE, read_only=True)


def _go(
    path: Path,
    config: TournamentConfig,
    configs: tuple[AlgorithmConfig, ...],
    run: RunConfig,
    env: Env,
    slots: int | Callable[[], int] | None,
) -> TournamentResult:
    # Pods on other machines have other working directories.
    store = Store(path.absolute() / "checkpoints")
    work = Training(store, configs, replace(run, folder=None), env)
    if config.executor == "vectorized" and config.slots is None:
        # Evaluations of leaders take no member's place: all members train together.
        config = replace(config, slots=min(2 * config.population, 10_000))
    with (
        sole_use(path),
        Leaderboard(path / FILE) as board,
        watching(path, board, run) as watchers,
    ):
        generator = Generator(board, config, spaces_of(configs, config.space), run.seed)
        orchestrator = Orchestrator(
            path,
            board=board,
            store=store,
            config=config,
            generator=generator,
            updater=Updater(board, store, config),
            executor=executor_of(config, run, work, path / "results"),
            slots=slots if callable(slots) else None,
            episodes=run.eval_episodes,
            room=Room(path, cpus=cores_of_pod(config, run), peaks=board.peaks()),
            watchers=watchers,
        )
        orchestrator.run()
        if orchestrator.stopped_by is None:
            crown(path, board, work)
        else:
            logger.info("to go on: resume=%s", path)
        leaders = tuple(board.best_of_members())
    return TournamentResult(folder=path, leaders=leaders, stopped_by=orchestrator.stopped_by)
