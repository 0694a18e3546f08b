"""Off-policy family: learn from a replay buffer, at a ratio of updates to frames."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from tensordict import NestedKey, TensorDictBase, unravel_key
from torchrl.data import PrioritizedSampler, ReplayBuffer

from torchrl_elegant.algorithms import OffPolicyConfig, Ramp
from torchrl_elegant.collectors import AsyncCollector
from torchrl_elegant.collectors.workers.buffer_writer import ROWS_KEPT
from torchrl_elegant.config.text import UsageError
from torchrl_elegant.data import SequenceFold, make_buffer
from torchrl_elegant.data.multi_step import AHEAD, STEPS
from torchrl_elegant.envs import EnvKeys, Outcome
from torchrl_elegant.functional import junk_keys
from torchrl_elegant.objectives.common.sequence_losses import SequenceLoss
from torchrl_elegant.trainers.environments import TRAIN, Environments, seed_of
from torchrl_elegant.trainers.episode_returns import EpisodeReturns
from torchrl_elegant.trainers.family import Family, family
from torchrl_elegant.trainers.learner import Learner
from torchrl_elegant.trainers.ledger import Ledger
from torchrl_elegant.trainers.sources import AsyncSource, Fold, Source, SyncSource
from torchrl_elegant.trainers.watcher import Watcher

# Memory of the rows of one draw: above it the batches of a round are drawn in several goes.
_BYTES = 1 << 26
# Batches that a buffer must hold again before a run that did not store it learns on.
_REFILL_BATCHES = 20


def train_off_policy(
    source: AsyncSource | SyncSource,
    buffer: ReplayBuffer,
    learner: Learner,
    watcher: Watcher,
    *,
    batch_size: int,
) -> None:
    """Run until all frames are collected and learned from, or the watcher says stop."""
    clock = watcher.clock
    for due in clock.over(source, source.activity):  # env -> collector -> replay buffer
        for rows in clock.over(draw(buffer, batch_size, due), "sample"):  # buffer -> rows
            # rows -> batches -> loss -> optimizer -> target nets
            for terms in clock.over(learner.learn(rows, batch_size), "learn"):
                watcher.note(terms)
        source.push(due)  # policy weights
        if not watcher.after(source):  # evaluator, metrics, checkpoints
            break
    watcher.finish(source)


def draw(buffer: ReplayBuffer, batch_size: int, count: int) -> Iterator[TensorDictBase]:
    """Draw the rows of ``count`` batches in one go, or in several where rows are large.

    With priorities each batch is drawn by itself, after the priorities that the last one was left
    with are filed.

    >>> import torch
    >>> from tensordict import TensorDict
    >>> from torchrl_elegant.data import MultiStepFold, make_buffer
    >>> buffer = make_buffer(size=8)
    >>> _ = buffer.extend(TensorDict({"x": torch.arange(8.0)}, [8]))
    >>> [rows.shape[0] for rows in draw(buffer, 4, 3)]
    [12]
    """
    if isinstance(buffer.sampler, PrioritizedSampler):
        for _ in range(count):
            batch = buffer.sample(batch_size)
            yield batch
            buffer.update_tensordict_priority(batch)
    elif count == 1:
        yield buffer.sample(batch_size)
    elif count:
        most = max(1, _BYTES // (batch_size * buffer[:1].bytes()))
        for start in range(0, count, most):
            batches = min(most, count - start)
            yield buffer.sample(batches * batch_size)


@family("off_policy")
class OffPolicy(Family[OffPolicyConfig]):
    """Algorithms that learn from a replay buffer; workers collect beside the learner."""

    worth_compiling = 30_000

    def check(self) -> None:
        if self.run.collector == "parallel":
            raise UsageError(
                f"`collector` must be sync or async with {self.config.name}, got 'parallel'; "
                "workers that wait for every few updates are slower than none"
            )

    def ledger(self) -> Ledger:
        config = self.config
        return Ledger(
            total_frames=self.run.total_frames,
            updates_per_frame=config.updates_per_frame,
            free_frames=config.warmup,
        )

    @property
    def planned_updates(self) -> float:
        config = self.config
        return config.updates_per_frame * (self.run.total_frames - config.warmup)

    def store(self) -> ReplayBuffer:
        share = self.share
        return make_buffer(
            size=share.buffer_rows, device=self.ranks.device, priority=share.priority()
        )

    def source(
        self, environments: Environments, learner: Learner, store: ReplayBuffer | None
    ) -> Source:
        assert store is not None
        ledger = learner.ledger
        if self.share.priority() is not None:
            correct = partial(setattr, store.sampler, "beta")
            learner.ramps += (Ramp(rate=self.share.priority_beta, apply=correct),)
        # Before the policy is copied: a run that goes on explores as far as it has come.
        learner.at(ledger.progress)
        if self.has_workers:
            workers = self._workers(environments, learner, store)
            return AsyncSource(
                workers,
                learner,
                push_interval=self.run.push_interval,
                each=self.run.episode_log,
            )
        assert self.run.frames_per_batch is not None
        collector = self.collector(environments, learner, self.run.frames_per_batch)
        # After construction, which warns about whole batches of random frames: these are meant.
        collector.init_random_frames = -(-self.share.warmup // self.ranks.count)
        outcome = Outcome.of(environments.specs())
        fold = self._fold(environments, learner)
        return SyncSource(
            collector,
            store,
            learner,
            keys=[*row_keys(learner), *junk_keys(environments.specs())],
            ranks=self.ranks.count,
            returns=EpisodeReturns(outcome=outcome, each=self.run.episode_log),
            fold=None if fold is None else fold(),
        )

    def _workers(
        self, environments: Environments, learner: Learner, store: ReplayBuffer
    ) -> AsyncCollector:
        run, config, ledger = self.run, self.share, learner.ledger
        # Updates are counted from here: with a new ratio the old ones would count otherwise.
        free = ledger.free_frames + ledger.updates / config.updates_per_frame
        frames = run.frames_per_batch or run.num_envs
        return AsyncCollector(
            environments.for_workers(),
            learner.policy,
            num_workers=run.num_workers,
            replay_buffer=store,
            total_frames=run.total_frames,
            frames_per_batch=frames,
            auto_register_policy_transforms=False,
            updates_per_frame=config.updates_per_frame,
            warmup_frames=round(free),
            init_random_frames=config.warmup,
            keys=[*row_keys(learner), *junk_keys(environments.specs())],
            seed=seed_of(run, TRAIN),
            frames_done=ledger.frames,
            # Workers may collect until the first row of several steps is complete.
            slack_batches=1 + -(-config.span * run.num_envs // frames),
            fold=self._fold(environments, learner),
            # Add-ons that count or keep every step must be shown all of them, once.
            rows_kept=None if learner.sees_every_row else ROWS_KEPT,
        )

    def _fold(self, environments: Environments, learner: Learner) -> Callable[[], Fold] | None:
        """Maker of the fold of this environment's steps; None where rows are stored as they are."""
        config = self.share
        if config.recurrent:
            assert isinstance(learner.loss, SequenceLoss)
            states, length = learner.loss.state_keys, config.sequence_length
            return partial(SequenceFold, length=length, burn_in=config.burn_in, state_keys=states)
        if config.fold is None:
            return None
        keys = EnvKeys.of(environments.specs())
        return partial(config.fold, reward_key=keys.reward, done_key=keys.done)

    def train(
        self, source: Source, learner: Learner, store: ReplayBuffer | None, watcher: Watcher
    ) -> None:
        assert isinstance(source, (AsyncSource, SyncSource))
        assert store is not None
        train_off_policy(source, store, learner, watcher, batch_size=self.share.rows_per_batch)

    def go_on(self, ledger: Ledger, store: ReplayBuffer | None) -> None:
        assert store is not None
        config, refill = self.config, 0
        if len(store):
            self._refuse_rows(store)
        elif not ledger.was_done:
            refill = self._refill(ledger.frames)
        ledger.go_on(warmup=config.warmup, refill=refill)

    def _refill(self, frames: int) -> int:
        """Frames that fill a buffer anew which was not stored, before anything is learned."""
        config, run = self.config, self.run
        refill = min(frames, max(config.warmup, _REFILL_BATCHES * config.batch_size))
        if (run.total_frames - frames - refill) * config.updates_per_frame < 1:
            raise UsageError(
                f"`total_frames` must leave frames to learn from after the {refill} that fill the "
                f"buffer anew, which was not stored, got {run.total_frames} with {frames} done; "
                "set total_frames higher"
            )
        return refill

    def _refuse_rows(self, buffer: ReplayBuffer) -> None:
        config, stored = self.config, buffer[:1].keys()
        # The longer returns first: they make longer rows too.
        for name, key, wanted in (
            ("long_return_weight", AHEAD, config.long_return_weight > 0),
            ("n_steps", STEPS, config.fold is not None),
        ):
            if (key in stored) != wanted:
                form = "have" if key in stored else "have no"
                raise UsageError(
                    f"`{name}` must suit the stored rows, which {form} entry {key!r}, got "
                    f"{getattr(config, name)}; start a new run instead"
                )


def row_keys(learner: Learner) -> list[NestedKey]:
    """Entries to keep of collected rows: all that the loss reads and somebody writes.

    Losses of TorchRL list the weights that a sampler adds, the next action, and log-probabilities
    that not every policy writes.
    """
    written, names = set(learner.policy.out_keys), vars(learner.loss.tensor_keys)
    acted = {names.get(name, name) for name in ("action", "sample_log_prob")} | written
    absent = (acted - written) | {unravel_key(("next", key)) for key in acted}
    absent.add(names.get("priority_weight", "priority_weight"))
    return [key for key in learner.loss.in_keys if unravel_key(key) not in absent]
