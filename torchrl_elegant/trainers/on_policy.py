"""On-policy family: learn from each rollout of the present policy once."""

from __future__ import annotations

from torchrl.data import ReplayBuffer

from torchrl_elegant.algorithms import OnPolicyConfig
from torchrl_elegant.collectors import ParallelCollector
from torchrl_elegant.config.options import check_unused
from torchrl_elegant.config.rates import ends_of, rate_text
from torchrl_elegant.config.text import UsageError
from torchrl_elegant.data import shuffled
from torchrl_elegant.envs import Outcome
from torchrl_elegant.functional import junk_keys
from torchrl_elegant.trainers.environments import TRAIN, Environments, seed_of
from torchrl_elegant.trainers.episode_returns import EpisodeReturns
from torchrl_elegant.trainers.family import Family, family
from torchrl_elegant.trainers.learner import Learner
from torchrl_elegant.trainers.ledger import Ledger
from torchrl_elegant.trainers.rollout_learner import RolloutLearner
from torchrl_elegant.trainers.sources import RolloutSource, Source, WorkerRollouts
from torchrl_elegant.trainers.watcher import Watcher


def train_on_policy(
    source: RolloutSource,
    learner: RolloutLearner,
    watcher: Watcher,
    *,
    epochs: int,
    batch_size: int,
) -> None:
    """Run until all frames are collected and learned from, or the watcher says stop."""
    clock = watcher.clock
    for rollout in clock.over(source, source.activity):  # env -> collector -> rollout
        with clock.during("learn"):
            rows = learner.rows(rollout)  # values -> advantages -> rows
        for _ in range(epochs):
            with clock.during("sample"):
                epoch = shuffled(rows)
            # rows -> batches -> loss -> optimizer
            for terms in clock.over(learner.learn(epoch, batch_size), "learn"):
                watcher.note(terms)
            with clock.during("learn"):
                if learner.is_far(rows):
                    break
        with clock.during("learn"):
            watcher.note(learner.report(rows))
        source.push(epochs)  # policy weights
        if not watcher.after(source):  # evaluator, metrics, checkpoints
            break
    watcher.finish(source)


@family("on_policy")
class OnPolicy(Family[OnPolicyConfig]):
    """Algorithms that learn from rollouts; workers make each rollout together."""

    shares_batches = True
    worth_compiling = 60_000
    learner_class = RolloutLearner

    def check(self) -> None:
        run, config = self.run, self.config
        other = "an off-policy algorithm"
        mode = f"{config.name}, whose policy is pushed once a rollout"
        check_unused(run, "push_interval", mode=mode, other=other)
        check_unused(run, "save_buffer", mode=f"{config.name}, which keeps none", other=other)
        first, last = ends_of(config.lr)
        if last == 0.0 and self._frames_per_batch() >= run.total_frames:
            raise UsageError(
                f"`lr` must not end at 0 in a run of one rollout, got {rate_text(config.lr)}: "
                "nothing would be learned from it; set frames_per_batch below total_frames "
                f"({run.total_frames}), or lr={first}"
            )

    def ledger(self) -> Ledger:
        return Ledger(total_frames=self.run.total_frames)

    @property
    def planned_updates(self) -> float:
        config = self.config
        return config.epochs * self.run.total_frames / config.batch_size

    def store(self) -> None:
        return None

    def source(
        self, environments: Environments, learner: Learner, store: ReplayBuffer | None
    ) -> Source:
        run = self.run
        outcome = Outcome.of(environments.specs())
        returns = EpisodeReturns(outcome=outcome, each=run.episode_log)
        if self.has_workers:
            workers = self._workers(environments, learner)
            return WorkerRollouts(workers, learner, returns=returns)
        # Each rank makes its share of a rollout, in whole steps of its environments.
        step = self.ranks.count * run.num_envs
        frames = -(-(run.frames_per_batch or step) // step) * run.num_envs
        if frames == run.num_envs and junk_keys(environments.specs()):
            raise UsageError(
                f"`frames_per_batch` must be at least {2 * step} with {run.env}, got "
                f"{run.frames_per_batch}: after an end one step of each environment is junk, and "
                "a rollout must hold another"
            )
        collector = self.collector(environments, learner, frames)
        return RolloutSource(collector, learner, ranks=self.ranks.count, returns=returns)

    def _workers(self, environments: Environments, learner: Learner) -> ParallelCollector:
        """Workers that make a rollout together, one ahead of the learner if asynchronous."""
        run = self.run
        assert run.frames_per_batch is not None
        return ParallelCollector(
            environments.for_workers(),
            learner.policy,
            num_workers=run.num_workers,
            frames_per_batch=run.frames_per_batch,
            total_frames=run.total_frames,
            seed=seed_of(run, TRAIN),
            frames_done=learner.ledger.frames,
            ahead=run.collector == "async",
            auto_register_policy_transforms=False,
        )

    def train(
        self, source: Source, learner: Learner, store: ReplayBuffer | None, watcher: Watcher
    ) -> None:
        assert isinstance(source, RolloutSource)
        assert isinstance(learner, RolloutLearner)
        config = self.share
        train_on_policy(
            source, learner, watcher, epochs=config.epochs, batch_size=config.rows_per_batch
        )

    def go_on(self, ledger: Ledger, store: ReplayBuffer | None) -> None:
        """Change nothing: nothing is stored or owed between two rollouts."""
