"""The learner: one update of everything that learns."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from tensordict import TensorDictBase
from torch import Tensor

from torchrl_elegant.algorithms import Parts
from torchrl_elegant.algorithms.adam import LeanAdam
from torchrl_elegant.algorithms.scaling import check_stored, hand_back_priority
from torchrl_elegant.data.running_statistics import Gather, alone
from torchrl_elegant.functional.gradients import clip_gradients
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


class LossCall(Protocol):
    """How a loss is evaluated: whole, or one of its methods by name."""

    def __call__(self, batch: TensorDictBase, method: str | None = None) -> Any: ...


class Learner:
    """Holds loss, optimiser, target updater and actor schedule; ``update`` is all it does.

    Args:
        parts: what an algorithm's ``assemble`` made.
        ranks: processes to average gradients with, none by default.

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
        ranks: Ranks | None = None,
    ) -> None:
        self.policy = parts.policy
        self.loss = parts.loss
        self.optimizer = parts.optimizer
        self.target_updater = parts.target_updater
        self.schedule = parts.schedule
        self.ramps = parts.ramps
        self.prepare, self.return_fit, self.hterm = parts.prepare, parts.return_fit, parts.hterm
        self.max_grad_norm = parts.max_grad_norm
        if isinstance(self.optimizer, LeanAdam) and self.max_grad_norm is not None:
            # It clips while it steps.
            self.optimizer.max_grad_norm, self.max_grad_norm = self.max_grad_norm, None
        self.ranks = ranks
        self._gather: Gather = alone if ranks is None else ranks.gather
        self.updates = 0
        self._params = [p for group in self.optimizer.param_groups for p in group["params"]]
        self.at(0.0)

    def update(self, batch: TensorDictBase, call: LossCall | None = None) -> dict[str, Tensor]:
        """Learn from one batch; ``call`` stands in for the loss where a trainer wraps it."""
        terms = self._differentiate(batch, call)
        self._add_hamiltonian(terms)
        if self.ranks is not None:
            self._average_over(self.ranks, terms)
        if self.max_grad_norm is not None:
            clip_gradients([p.grad for p in self._params if p.grad is not None], self.max_grad_norm)
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self.target_updater is not None:
            self.target_updater.step()
        self.schedule.observe(terms)
        self.updates += 1
        return {name: value.detach() for name, value in terms.items()}

    def at(self, progress: float) -> None:
        """Set what changes over a run of which ``progress``, from 0 to 1, is done."""
        for ramp in self.ramps:
            ramp.at(progress)

    @property
    def metric_names(self) -> list[str]:
        """Names of all that updates report."""
        loss = self.loss
        more = [term.name for term in (self.return_fit, self.hterm) if term is not None]
        # Out keys of a loss made of terms may be more than what an update reports.
        names = loss.terms if hasattr(loss, "critic_terms") else loss.out_keys
        return [*map(str, names), *more]

    @property
    def observes(self) -> bool:
        """Whether anything here wants to see newly collected data."""
        return hasattr(self.loss, "observe") or self.sees_every_row

    @property
    def sees_every_row(self) -> bool:
        """Whether that must be all of it."""
        return self.hterm is not None or (self.prepare is not None and self.prepare.observes)

    def observe(self, batch: TensorDictBase, *, stream: int = 0) -> None:
        """Show newly collected data ``[*envs, time]``, of one of several groups of environments
        that step on their own, to whatever ``observes``."""
        if not batch.shape.numel():
            return
        if self.hterm is not None:
            # By the scales it was acted by; beside random actions stands a log-prob that is none.
            self.hterm.extend(batch.exclude(self.hterm.log_prob_key), stream=stream)
        if self.prepare is not None:
            self.prepare.observe(batch, stream=stream, gather=self._gather)
        if hasattr(self.loss, "observe"):
            device = next(self.policy.parameters()).device
            self.loss.observe(self._prepared(batch.to(device)))

    def raise_if_diverged(self, terms: Mapping[str, Tensor]) -> None:
        """Name the first term that is not finite; on a GPU call it where waiting is cheap."""
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
            "prepare": self.prepare and self.prepare.state_dict(),
            "hterm": self.hterm and self.hterm.state_dict(),
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        # Runs of before there was anything to prepare have stored nothing of it.
        check_stored(self.prepare, state_dict.get("prepare"))
        self.loss.load_state_dict(state_dict["loss"])
        self.optimizer.load_state_dict(state_dict["optimizer"])
        if self.target_updater is not None:
            self.target_updater.load_state_dict(state_dict["target_updater"])
        self.schedule.load_state_dict(state_dict["schedule"])
        self.updates = state_dict["updates"]
        if self.prepare is not None and state_dict.get("prepare") is not None:
            self.prepare.load_state_dict(state_dict["prepare"])
        if self.hterm is not None and state_dict.get("hterm") is not None:
            self.hterm.load_state_dict(state_dict["hterm"])

    def _prepared(self, batch: TensorDictBase) -> TensorDictBase:
        return batch if self.prepare is None else self.prepare(batch)

    def _average_over(self, ranks: Ranks, terms: dict[str, Tensor]) -> None:
        ranks.average_gradients(self._params)
        if "critic_error" in terms:
            # The actor schedule reads it, and must decide the same on every rank.
            terms["critic_error"] = ranks.average_(terms["critic_error"].detach().clone())

    def _differentiate(self, batch: TensorDictBase, call: LossCall | None) -> dict[str, Tensor]:
        """The terms of the loss, whose gradients are then in the parameters."""
        prepared = self._prepared(batch)
        terms = self._terms(prepared, call or self._call)
        self._total(terms).backward()
        if prepared is not batch:
            hand_back_priority(prepared, batch, self.loss)
        return terms

    def _add_hamiltonian(self, terms: dict[str, Tensor]) -> None:
        """The H-term joins updates in which the actor learns."""
        if self.hterm is not None and not self.hterm.actor_rests:
            term = self.hterm.backward()
            if term is not None:
                terms[self.hterm.name] = term
                self._total({self.hterm.name: term})

    def _total(self, terms: Mapping[str, Tensor]) -> Tensor:
        losses = [value for name, value in terms.items() if name.startswith("loss")]
        total = sum(losses[1:], start=losses[0])
        if total.device.type == "cpu" and not math.isfinite(total.item()):
            self.raise_if_diverged(terms)
        return total

    def _terms(self, batch: TensorDictBase, call: LossCall) -> dict[str, Tensor]:
        if not hasattr(self.loss, "critic_terms"):
            # Some of TorchRL's report more than they announce, and some of it row by row.
            terms, known = call(batch).items(), self.loss.out_keys
            return {k: v.mean() for k, v in terms if k in known or k.startswith("loss")}
        terms = dict(call(batch, "critic_terms"))
        if self.return_fit is not None:
            terms[self.return_fit.name] = self.return_fit(batch)
        if hasattr(self.loss, "actor_terms") and self.schedule.due():
            terms.update(call(batch, "actor_terms"))
        return terms

    def _call(self, batch: TensorDictBase, method: str | None = None) -> Any:
        return self.loss(batch) if method is None else getattr(self.loss, method)(batch)
