"""The learner: one update of everything that learns."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tensordict import TensorDictBase
from torch import Tensor

from torchrl_elegant.algorithms import Parts
from torchrl_elegant.algorithms.adam import HandedStep, LeanAdam
from torchrl_elegant.data import without_junk
from torchrl_elegant.data.running_statistics import alone
from torchrl_elegant.functional import devices
from torchrl_elegant.functional.gradients import add_gradients, clip_gradients
from torchrl_elegant.objectives.common.update_loss import UpdateLoss, minimized
from torchrl_elegant.objectives.common.whole_loss import as_update_loss
from torchrl_elegant.objectives.compiled.loss import BoundUpdate, CompiledLoss
from torchrl_elegant.trainers.ledger import Ledger
from torchrl_elegant.trainers.ranks import Ranks


class DivergedError(FloatingPointError):
    """A term of the loss, or a parameter, is not a finite number."""


def require_finite(named: Iterable[tuple[str, Tensor]], when: str) -> None:
    """Name the first tensor that is not finite, by its value if it is a number.

    >>> import torch
    >>> require_finite([("loss_actor", torch.zeros(()))], "at update 1")
    """
    for name, value in named:
        if not bool(value.isfinite().all()):
            found = "not finite" if value.ndim else value.item()
            raise DivergedError(
                f"`{name}` is {found} {when}; lower the learning rate, set max_grad_norm, or look "
                "for extreme rewards or observations"
            )


class Learner:
    """Loss, optimizer, target updater, actor schedule and add-ons; ``update`` uses them all.

    On the CPU a term that is not finite ends the update before the optimizer's step. On another
    device nothing waits for it: call ``raise_if_diverged`` where waiting is cheap.

    Args:
        parts: made by an algorithm's ``assemble``.
        ledger: counts the updates; by default one of its own.
        ranks: processes to average gradients with; none by default.
        compile: compute terms and gradients by one compiled function (``CompiledLoss``).

    >>> from torchrl_elegant.algorithms import SACConfig
    >>> from torchrl_elegant.envs import make_env
    >>> env = make_env("Pendulum-v1", num_envs=8)
    >>> learner = Learner(SACConfig(num_cells=(8,)).assemble(env))
    >>> metrics = learner.update(env.rollout(1).reshape(-1))
    >>> learner.updates, "loss_qvalue" in metrics
    (1, True)
    """

    def __init__(
        self,
        parts: Parts,
        *,
        ledger: Ledger | None = None,
        ranks: Ranks | None = None,
        compile: bool = False,
    ) -> None:
        self.policy, self.loss = parts.policy, parts.loss
        self.optimizer, self.target_updater = parts.optimizer, parts.target_updater
        self.schedule, self.ramps = parts.schedule, parts.ramps
        self.add_ons = {add_on.name: add_on for add_on in parts.add_ons}
        self.ledger = Ledger(total_frames=1) if ledger is None else ledger
        self.ranks = ranks
        self._update_loss = CompiledLoss(parts.loss) if compile else as_update_loss(parts.loss)
        self.max_grad_norm = parts.max_grad_norm
        if isinstance(self.optimizer, LeanAdam) and self.max_grad_norm is not None:
            # It clips while it steps.
            self.optimizer.max_grad_norm, self.max_grad_norm = self.max_grad_norm, None
        if compile and isinstance(self.optimizer, LeanAdam):
            self.optimizer.compile()
        #: True where somebody hears of each update, and may change the learner between two.
        self.is_watched = False
        self._params = [p for group in self.optimizer.param_groups for p in group["params"]]
        self._checks_each_update = devices.reads_at_once(self.device)
        for add_on in self.add_ons.values():
            add_on.connect(alone if ranks is None else ranks.gather)
        self.at(0.0)

    def update(self, batch: TensorDictBase, loss: UpdateLoss | None = None) -> dict[str, Tensor]:
        """Learn from one batch; ``loss`` stands in for the learner's where a trainer wraps it."""
        return self._update(batch, loss or self._update_loss, actor=self.schedule.due())

    def learn(self, rows: TensorDictBase, batch_size: int) -> Iterator[dict[str, Tensor]]:
        """Learn from each ``batch_size`` of ``rows`` in turn; the last batch may be smaller.

        Yields the terms of each update, which are those of ``update``, and so are all numbers.
        Compiled updates are checked once for all batches, and hand their gradients to the optimizer
        directly.
        """
        loss, optimizer = self._update_loss, self.optimizer
        if rows.shape[0] <= batch_size:
            yield self.update(rows)
            return
        others = self.ranks is not None or self.add_ons or self.max_grad_norm is not None
        if (
            self.is_watched
            or others
            or not isinstance(loss, CompiledLoss)
            or not isinstance(optimizer, LeanAdam)
        ):
            for batch in rows.split(batch_size):
                yield self.update(batch)
            return
        yield from self._learn_bound(rows, batch_size, loss, optimizer)

    def _learn_bound(
        self, rows: TensorDictBase, batch_size: int, loss: CompiledLoss, optimizer: LeanAdam
    ) -> Iterator[dict[str, Tensor]]:
        ways: dict[bool, tuple[BoundUpdate | None, HandedStep | None]] = {}
        for index, start in enumerate(range(0, rows.shape[0], batch_size)):
            end, actor = start + batch_size, self.schedule.due()
            if actor not in ways:
                bound = loss.bind(rows, batch_size, actor=actor)
                ways[actor] = bound, None if bound is None else optimizer.step_of(bound.learns)
            bound, step = ways[actor]
            is_ready = bound is not None and bound.holds() and end <= rows.shape[0]
            if bound is None or step is None or not is_ready:
                yield self._update(rows[start:end], loss, actor=actor)
                continue
            terms, grads = bound.compute(index)
            self._require_finite(terms)
            if not step(grads):
                add_gradients(bound.learns, grads)
                optimizer.step()
                optimizer.zero_grad()
            yield self._finished(terms)

    def _update(self, batch: TensorDictBase, loss: UpdateLoss, *, actor: bool) -> dict[str, Tensor]:
        terms = self._add_gradients(batch, loss, actor=actor)
        if self.ranks is not None:
            self._average_over(self.ranks, terms)
        if self.max_grad_norm is not None:
            self._clip(self.max_grad_norm)
        if isinstance(self.optimizer, LeanAdam):
            self.optimizer.step_alone()
        else:
            self.optimizer.step()
        self.optimizer.zero_grad()
        return self._finished({name: value.detach() for name, value in terms.items()})

    def _finished(self, terms: dict[str, Tensor]) -> dict[str, Tensor]:
        if self.target_updater is not None:
            self.target_updater.step()
        self.schedule.observe(terms)
        self.ledger.updates += 1
        return terms

    def at(self, progress: float) -> None:
        """Set what changes over a run of which ``progress``, from 0 to 1, is done."""
        for ramp in self.ramps:
            ramp.at(progress)

    @property
    def updates(self) -> int:
        """Updates made, as the ledger has them."""
        return self.ledger.updates

    @property
    def device(self) -> Any:
        """Device of the policy that learns."""
        return next(self.policy.parameters()).device

    @property
    def compiles(self) -> bool:
        """True if updates are computed by a compiled function."""
        return isinstance(self._update_loss, CompiledLoss)

    @property
    def metric_names(self) -> list[str]:
        """Names of all that updates report."""
        more = (name for add_on in self.add_ons.values() for name in add_on.metric_names)
        return [*self._update_loss.metric_names, *more]

    @property
    def observes(self) -> bool:
        """True if anything here wants to see newly collected data."""
        return self._update_loss.observes or self.sees_every_row

    @property
    def sees_every_row(self) -> bool:
        """True if an add-on must be shown every newly collected step."""
        return any(add_on.observes for add_on in self.add_ons.values())

    def observe(self, batch: TensorDictBase, *, stream: int = 0) -> None:
        """Show newly collected data ``[*envs, time]`` to the add-ons and the loss.

        ``stream`` numbers groups of environments that step on their own.
        """
        if not batch.shape.numel():
            return
        for add_on in self.add_ons.values():
            add_on.observe(batch, stream=stream)
        if not self._update_loss.observes:
            return
        rows = without_junk(batch)
        if rows.shape.numel():
            self._update_loss.observe(self.shown(rows.to(self.device)))

    def raise_if_diverged(self, terms: Mapping[str, Tensor]) -> None:
        """Name the first term that is not finite."""
        require_finite(terms.items(), f"at update {self.updates}")

    def raise_if_broken(self) -> None:
        """Name the first parameter that is not finite: a finite loss can have other gradients."""
        if not all(bool(param.isfinite().all()) for param in self._params):
            require_finite(self.loss.named_parameters(), f"after update {self.updates}")

    def state_dict(self) -> dict[str, Any]:
        return {
            "loss": self.loss.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "target_updater": self.target_updater and self.target_updater.state_dict(),
            "schedule": self.schedule.state_dict(),
            "updates": self.updates,
            "add_ons": {name: add_on.state_dict() for name, add_on in self.add_ons.items()},
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        stored = state_dict["add_ons"]
        for name in stored.keys() - self.add_ons.keys():
            for option in stored[name].get("cannot_be_dropped", ()):
                raise ValueError(f"`{option}` must stay True when a run goes on, got `False`")
        # First, because an add-on may refuse what another configuration has left.
        for name, add_on in self.add_ons.items():
            add_on.load_state_dict(stored.get(name, {}))
        self.loss.load_state_dict(state_dict["loss"])
        self.optimizer.load_state_dict(state_dict["optimizer"])
        if self.target_updater is not None:
            self.target_updater.load_state_dict(state_dict["target_updater"])
        self.schedule.load_state_dict(state_dict["schedule"])
        self.ledger.updates = state_dict["updates"]

    def shown(self, batch: TensorDictBase) -> TensorDictBase:
        """The batch as the loss sees it: with scaled observations and rewards."""
        for add_on in self.add_ons.values():
            batch = add_on.show(batch)
        return batch

    def _add_gradients(
        self, batch: TensorDictBase, loss: UpdateLoss, *, actor: bool
    ) -> dict[str, Tensor]:
        """Terms of the loss and of the add-ons, whose gradients are then in the parameters."""
        shown = self.shown(batch)
        terms = loss.backward_terms(shown, actor=actor)
        if shown is not batch and loss.priority_key is not None:
            _hand_back(shown, batch, loss.priority_key)
        for add_on in self.add_ons.values():
            terms |= add_on.backward(shown, actor_updated=actor or not loss.splits_actor)
        self._require_finite(terms)
        return terms

    def _require_finite(self, terms: dict[str, Tensor]) -> None:
        if self._checks_each_update and not math.isfinite(minimized(terms).item()):
            self.optimizer.zero_grad()
            self.raise_if_diverged(terms)
            raise DivergedError(f"the sum of the losses overflowed at update {self.updates}")

    def _average_over(self, ranks: Ranks, terms: dict[str, Tensor]) -> None:
        ranks.average_gradients(self._params)
        for name in self.schedule.reads:
            # The schedule must decide the same on every rank.
            if name in terms:
                terms[name] = ranks.average_(terms[name].detach().clone())

    def _clip(self, max_norm: float) -> None:
        for group in self.optimizer.param_groups:
            grads = [param.grad for param in group["params"] if param.grad is not None]
            if grads:
                clip_gradients(grads, max_norm)


def _hand_back(shown: TensorDictBase, batch: TensorDictBase, key: Any) -> None:
    """Leave in ``batch`` the priority that a loss wrote into what it was shown of it."""
    priority = shown.get(key, None)
    if priority is not None:
        batch.set(key, priority)
