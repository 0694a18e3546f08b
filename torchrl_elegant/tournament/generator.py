"""Generator: which pod a member trains next, with which options, from whose checkpoint."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from torchrl_elegant.tournament.exploration import exploration_of
from torchrl_elegant.tournament.leaderboard import Leaderboard, Pod
from torchrl_elegant.tournament.options import TournamentConfig
from torchrl_elegant.tournament.selection import Rival, selection_of
from torchrl_elegant.tournament.space import Space, Values, configured

# Rivals up to which a decision is stored with all of them.
_TOLD = 100
# Uses of the tournament's seed.
_DECISION, _POD, _FINAL = range(3)


class Generator:
    """Decides what is trained and evaluated next, and writes it into the leaderboard.

    Every decision draws from a random stream of its own, which follows from the tournament's seed
    and the number of the decision. So a tournament that was killed decides as it would have.

    Args:
        board: the leaderboard, inside a transaction whenever a method is called.
        config: rules of selection and exploration.
        spaces: search space of each algorithm.
        seed: of the tournament.
    """

    def __init__(
        self, board: Leaderboard, config: TournamentConfig, spaces: Sequence[Space], seed: int
    ) -> None:
        self.board, self.config, self.spaces, self.seed = board, config, spaces, seed
        self._architectures: dict[tuple[int, str], str] = {}
        self.selection = selection_of(config.selection, config.population)
        self.exploration = exploration_of(board, config)

    def next(self, member: int, newest: int | None) -> Pod:
        """The next pod of a member, whose newest one is over."""
        sequence = self.board.decisions()
        rng = self._rng(_DECISION, sequence)
        if newest is None:
            return self._begin(member, member % len(self.spaces), "initial", {}, rng, sequence)
        last = self.board.pod(newest)
        # One that failed has nothing to go on from: it starts beside its rivals, or behind them.
        rivals = self.board.rivals(last.depth)
        own = self.board.rival(last.id, last.depth)
        own = own if own is not None and own.there else None
        if not any(one.there for one in rivals):
            rivals = self.board.rivals(last.depth - 1)
        inputs = {"last": last.id, "state": last.state, "count": len(rivals)}
        if len(rivals) <= _TOLD:
            inputs["rivals"] = sorted(rivals)
        if not any(one.there for one in rivals):
            return self._begin(member, last.entry, "initial", inputs, rng, sequence)
        source = self._source(last, rivals)
        if source is not None and source.member == member:
            return self._child(member, source, "continue", source.options, inputs, sequence)
        if source is not None:
            return self._exploit(member, source, inputs, rng, sequence)
        winner = self.selection.choose(own, rivals, rng)
        if winner == own:
            return self._child(member, last, "continue", last.options, inputs, sequence)
        parent = self.board.pod(winner.pod)
        others = [entry for entry in range(len(self.spaces)) if entry != last.entry]
        if others and rng.random() < self.config.switch:
            entry = others[int(rng.integers(len(others)))]
            return self._begin(member, entry, "switch", inputs, rng, sequence)
        if self.config.fusion:
            # Side by side with the one that it is a copy of, so that both can be averaged.
            return self._child(member, parent, "twin", parent.options, inputs, sequence)
        return self._exploit(member, parent, inputs, rng, sequence)

    def _source(self, last: Pod, rivals: Sequence[Rival]) -> Pod | None:
        """The pod that both members of a pair go on from: their average, or else the better part.

        None for members of no pair, and where the checkpoint is not there.
        """
        if not self.config.fusion:
            return None
        source = last
        if last.operation != "fuse":
            fusions = self.board.pods("operation = 'fuse' AND depth = ?", last.depth)
            pair = next((one.parents for one in fusions if last.id in one.parents), None)
            if pair is None:
                return None
            source = self.board.pod(pair[0])
        there = any(one.pod == source.id and one.there for one in rivals)
        return source if there else None

    def fuse(self, better: Pod, other: Pod) -> Pod:
        """The average of two members, which stands where they stand."""
        seed = self._seed(_POD, self.board.next_pod())
        return self._evaluation(
            better, "fuse", seed, parents=[better.id, other.id], member=better.member
        )

    def recheck(self, target: Pod) -> Pod:
        """An evaluation of a leader on seeds that no pod has seen."""
        return self._evaluation(target, "recheck", self._seed(_POD, self.board.next_pod()))

    def finals(self) -> list[Pod]:
        """Evaluations of the best pod of each of the best members, all on the same new seeds."""
        finalists = self.board.best_of_members(self.config.finalists)
        return [self._evaluation(one, "final", self._seed(_FINAL, 0)) for one in finalists]

    def _begin(
        self,
        member: int,
        entry: int,
        operation: str,
        inputs: Any,
        rng: np.random.Generator,
        sequence: int,
    ) -> Pod:
        options = self.spaces[entry].sample(rng)
        pod = self.board.next_pod()
        row = {"member": member, "depth": 1, "parents": [], "lineage": pod, "entry": entry}
        return self._add(pod, operation, row, options, inputs, sequence)

    def _exploit(
        self, member: int, parent: Pod, inputs: Any, rng: np.random.Generator, sequence: int
    ) -> Pod:
        options = self.exploration.explored(self.spaces[parent.entry], parent, rng)
        return self._child(member, parent, "exploit", options, inputs, sequence)

    def _child(
        self, member: int, parent: Pod, operation: str, options: Values, inputs: Any, sequence: int
    ) -> Pod:
        row = {
            "member": member,
            "depth": parent.depth + 1,
            "parents": [parent.id],
            "lineage": parent.lineage,
            "entry": parent.entry,
        }
        return self._add(self.board.next_pod(), operation, row, options, inputs, sequence)

    def _add(
        self,
        pod: int,
        operation: str,
        row: dict[str, Any],
        options: Values,
        inputs: Any,
        sequence: int,
    ) -> Pod:
        added = self.board.add_pod(
            {
                **row,
                "id": pod,
                "state": "queued",
                "operation": operation,
                "algorithm": self.spaces[row["entry"]].config.name,
                "architecture": self._architecture(row["entry"], options),
                "options": options,
                "seed": self._seed(_POD, pod),
                "budget": float(self.config.pod_budget),
            }
        )
        self.board.set_member(row["member"], state="busy", pod=pod)
        choice = {"operation": operation, "parents": row["parents"], "options": options}
        self.board.add_decision(pod, inputs, choice, (self.seed, _DECISION, sequence))
        return added

    def _evaluation(self, target: Pod, operation: str, seed: int, **more: Any) -> Pod:
        same = ("depth", "lineage", "entry", "algorithm", "architecture", "options")
        return self.board.add_pod(
            {
                **{name: getattr(target, name) for name in same},
                "id": self.board.next_pod(),
                "state": "queued",
                "operation": operation,
                "parents": [target.id],
                "seed": seed,
                "budget": 0.0,
                **more,
            }
        )

    def _architecture(self, entry: int, options: Values) -> str:
        """Digest of the algorithm and of all options that form its networks."""
        config = self.spaces[entry].config
        formed = {
            word: value
            for word, value in options.items()
            if word.partition(".")[0] in config.settled
        }
        key = (entry, json.dumps(formed))
        if key not in self._architectures:
            made = configured(config, formed)
            form = [made.name, {name: str(getattr(made, name)) for name in made.settled}]
            digest = hashlib.sha256(json.dumps(form).encode()).hexdigest()
            self._architectures[key] = digest[:16]
        return self._architectures[key]

    def _rng(self, *key: int) -> np.random.Generator:
        return np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=key))

    def _seed(self, *key: int) -> int:
        # 31 bits, which every simulator takes.
        return int(np.random.SeedSequence(self.seed, spawn_key=key).generate_state(1)[0] >> 1)
