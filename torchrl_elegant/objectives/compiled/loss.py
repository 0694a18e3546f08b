"""Loss whose gradients are one compiled function of plain tensors."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import torch
from tensordict import NestedKey, TensorDictBase, is_tensor_collection
from torch import Tensor, nn
from torchrl.envs.utils import exploration_type
from torchrl.objectives import LossModule

from torchrl_elegant.functional.gradients import add_gradients
from torchrl_elegant.objectives.common.update_loss import UpdateLoss
from torchrl_elegant.objectives.common.whole_loss import as_update_loss
from torchrl_elegant.objectives.compiled.compiler import compile_recording
from torchrl_elegant.objectives.compiled.parts import Parts
from torchrl_elegant.objectives.compiled.recording import CannotRecord, Recording, record

logger = logging.getLogger(__name__)

# Recordings of a loss, each of which is compiled for seconds.
_MOST = 8
# What records and compiles sets globals of the process.
_ONE_AT_A_TIME = threading.Lock()
_FORM = attrgetter("shape", "dtype", "device", "requires_grad")
# With the actor or without, modes of the process, batch size.
_About = tuple[bool, Any, bool, torch.Size]
_Entries = dict[Any, Any]


@dataclass(frozen=True, kw_only=True)
class _Kind:
    """A compiled update, for batches with the same entries and shapes.

    Without ``run`` it is one that the loss itself computes.
    """

    about: _About
    entries: frozenset[Any]
    keys: list[NestedKey]  # entries that are read
    forms: list[Any]  # of each, as `_forms` gives them
    run: Any = None
    holds: Callable[[], bool] = lambda: True  # False where it would be recorded otherwise
    ignored: frozenset[Any] = frozenset()  # entries that may lie in a batch besides
    names: Sequence[str] = ()  # of the terms
    written: Sequence[NestedKey] = ()  # entries that the update leaves in the batch
    learns: Sequence[nn.Parameter] = ()  # what it has gradients for

    def read(self, about: _About, entries: _Entries) -> list[Tensor] | None:
        """Give what is read of a batch; None if it is of another kind."""
        names = entries.keys()
        if about != self.about or (names != self.entries and names - self.ignored != self.entries):
            return None
        given = [entries[key] for key in self.keys]
        try:
            return given if _forms(given) == self.forms and self.holds() else None
        except RuntimeError:  # it has no strides
            return None


class BoundUpdate:
    """Compiled updates on batches of equal form; see ``CompiledLoss.bind``.

    ``learns`` are the parameters that have gradients. ``holds`` is False where an update would be
    recorded otherwise by now.
    """

    def __init__(self, kind: _Kind, parts: list[Sequence[Tensor]]) -> None:
        self.learns, self.holds = kind.learns, kind.holds
        self._kind, self._parts = kind, parts
        self._first = len(kind.names) + len(kind.written)

    def compute(self, index: int) -> tuple[dict[str, Tensor], list[Tensor]]:
        """Terms and gradients on a batch, which are written nowhere."""
        results = self._kind.run([part[index] for part in self._parts])
        return dict(zip(self._kind.names, results)), results[self._first :]  # noqa: B905


class CompiledLoss:
    """Any ``LossModule``, with terms and gradients of an update compiled into one function.

    ``backward_terms(batch)`` stands in the place of ``sum(losses).backward()``. Its function is
    recorded from one call of the loss: same equations, same random numbers, same results up to
    rounding. Parameters, targets and buffers are read where they are, so that optimizers, target
    updaters and checkpoints work as before. A loss that has changed otherwise, by a cast, an
    assignment or another mode, is recorded again.

    The first update of each kind of batch takes seconds; what was compiled is kept for other runs
    (``cache_folder``). Where a loss decides by numbers in its batch, under autocast, or without a
    C++ compiler, a warning says so once, and the loss computes as before. It does the same after
    eight recordings.

    Args:
        loss: one of this package, of TorchRL, or of a third party.

    >>> from torchrl_elegant.modules import QNetwork
    >>> from torchrl_elegant.objectives import DQNLoss
    >>> loss = DQNLoss(QNetwork(observation={"observation": (3,)}, choices=2))
    >>> compiled = CompiledLoss(loss)
    >>> compiled.metric_names == loss.metric_names
    True
    """

    def __init__(self, loss: LossModule) -> None:
        self._module, self._loss = loss, as_update_loss(loss)
        self._kinds: list[_Kind] = []
        self._recordings = 0
        self._parts: Parts | None = None  # of the module when it was recorded

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy has parameters of its own, which what was compiled here does not read.
        return type(self), (self._module,)

    @property
    def splits_actor(self) -> bool:
        return self._loss.splits_actor

    @property
    def observes(self) -> bool:
        return self._loss.observes

    @property
    def metric_names(self) -> Sequence[str]:
        return self._loss.metric_names

    @property
    def priority_key(self) -> NestedKey | None:
        return self._loss.priority_key

    def observe(self, tensordict: TensorDictBase) -> None:
        self._loss.observe(tensordict)

    def update_terms(self, tensordict: TensorDictBase, *, actor: bool = True) -> dict[str, Tensor]:
        return self._loss.update_terms(tensordict, actor=actor)

    def backward_terms(
        self, tensordict: TensorDictBase, *, actor: bool = True
    ) -> dict[str, Tensor]:
        """See ``UpdateLoss``."""
        kind, given = self._kind_of(tensordict, actor)
        if kind is None or kind.run is None:
            return self._loss.backward_terms(tensordict, actor=actor)
        return _results(kind, given, tensordict)

    def bind(
        self, rows: TensorDictBase, batch_size: int, *, actor: bool = True
    ) -> BoundUpdate | None:
        """Updates on each whole ``batch_size`` of ``rows``, checked once for all of them.

        Until the last of them nothing of the loss may change but numbers in its tensors. None where
        the loss itself must compute them.
        """
        kind, _ = self._kind_of(rows[:batch_size], actor)
        if kind is None or kind.run is None:
            return None
        entries = _entries(rows)
        return BoundUpdate(kind, [entries[key].split(batch_size) for key in kind.keys])

    def _kind_of(self, batch: TensorDictBase, actor: bool) -> tuple[_Kind | None, list[Tensor]]:
        """Kind of a batch, and what is read of it; no kind beyond the most recordings."""
        if self._parts is not None and not self._parts.are_the_same():
            self._kinds, self._parts = [], None
        about = actor, exploration_type(), _casts(), batch.batch_size
        entries = _entries(batch)
        for kind in self._kinds:
            given = kind.read(about, entries)
            if given is not None:
                return kind, given
        if self._recordings == _MOST:
            return None, []
        self._recordings += 1
        kind = self._compile(batch, about, entries)
        self._kinds.append(kind)
        if self._recordings == _MOST:
            logger.warning("recorded %d forms of the loss and its batches, and no more", _MOST)
        return kind, [entries[key] for key in kind.keys]

    def _compile(self, batch: TensorDictBase, about: _About, entries: _Entries) -> _Kind:
        try:
            with _ONE_AT_A_TIME:
                kind = self._record(batch, about, entries)
        except Exception as error:
            reason = str(error).strip().splitlines() or [type(error).__name__]
            logger.warning("not compiled, and slower for it: %s", reason[0])
            keys = [k for k, v in entries.items() if isinstance(v, Tensor) and _has_strides(v)]
            forms = _forms([entries[key] for key in keys])
            return _Kind(about=about, entries=frozenset(entries), keys=keys, forms=forms)
        self._parts = Parts(self._module)
        return kind

    def _record(self, batch: TensorDictBase, about: _About, entries: _Entries) -> _Kind:
        if _casts():
            raise CannotRecord("autocast is on")
        update = Update(self._loss, self._module, batch, about[0])
        recording = record_update(update)
        keys = [key for key, used in zip(update.leaves, recording.used, strict=True) if used]
        given = [update.leaves[key] for key in keys]
        with untouched(self._module, ()):  # a compiler draws random numbers, too
            ignored = self._ignored(update, batch, recording)
            run = compile_recording(recording, given)  # it rewrites the recording
        return _Kind(
            about=about,
            entries=frozenset(entries),
            keys=keys,
            forms=_forms(given),
            run=run,
            holds=recording.holds,
            ignored=ignored - entries.keys(),
            names=update.names,
            written=list(update.written),
            learns=update.learns,
        )

    def _ignored(self, update: Update, batch: TensorDictBase, first: Recording) -> frozenset[Any]:
        """Entries of a batch that the update has left, if it does the same with such a batch."""
        late = {k: v.detach() for k, v in update.written.items() if k not in update.leaves}
        if not late:
            return frozenset()
        shown = batch.copy()
        for key, value in late.items():
            shown.set(key, value.clone())
        again = Update(self._loss, self._module, shown, update.actor)
        values = list(again.leaves.values())
        with untouched(self._module, values):
            second = record(again, values)
        used = {key for key, used in zip(again.leaves, second.used, strict=True) if used}
        same = _operations(first) == _operations(second)
        return frozenset() if used & late.keys() or not same else frozenset(_entries(shown))


def _operations(recording: Recording) -> list[Any]:
    return [node.target for node in recording.graph.graph.nodes if node.op != "placeholder"]


class Update:
    """One call of a loss as a function of the tensors in its batch; gradients are results."""

    def __init__(
        self, loss: UpdateLoss, module: nn.Module, batch: TensorDictBase, actor: bool
    ) -> None:
        self.loss, self.module, self.actor = loss, module, actor
        entries = dict(batch.items(True))
        self.leaves = {k: value for k, value in entries.items() if isinstance(value, Tensor)}
        # Without text and other entries that a graph could not follow.
        known = Tensor | TensorDictBase
        self.batch = batch.exclude(*(k for k, v in entries.items() if not isinstance(v, known)))
        self.names: list[str] = []
        self.written: dict[NestedKey, Tensor] = {}
        self.learns: list[nn.Parameter] = []

    def __call__(self, *values: Tensor) -> list[Tensor]:
        shown = self.batch.copy()
        before = dict(zip(self.leaves, values, strict=True))
        for key, value in before.items():
            shown.set(key, value)
        terms = self.loss.backward_terms(shown, actor=self.actor)
        self.names = list(terms)
        after = shown.items(True, True)
        self.written = {key: value for key, value in after if value is not before.get(key)}
        self.learns = [p for p in self.module.parameters() if p.grad is not None]
        grads: list[Any] = [p.grad for p in self.learns]
        return [*terms.values(), *self.written.values(), *grads]


def record_update(update: Update) -> Recording:
    """Record one call of a loss; the loss, its batch and the random state stay as they are."""
    module, values = update.module, list(update.leaves.values())
    if any(value.requires_grad for value in values):
        raise CannotRecord("an entry of its batch requires gradients")
    with untouched(module, values):
        update(*values)  # what a loss makes at its first call is there from now on
    parts = Parts(module)
    with untouched(module, values):
        recording = record(update, values)
    changed = parts.bring_back()
    if changed:
        raise CannotRecord(f"it replaces `{changed[0]}`; write into a buffer instead")
    if not recording.holds():
        raise CannotRecord("it decides by a number that it changes")
    return recording


def _results(kind: _Kind, given: list[Tensor], batch: TensorDictBase) -> dict[str, Tensor]:
    """Terms of an update, with its gradients added."""
    results = iter(kind.run(given))
    terms = dict(zip(kind.names, results))  # noqa: B905
    for key in kind.written:
        batch.set(key, next(results))
    add_gradients(kind.learns, list(results))
    return terms


def _entries(batch: TensorDictBase, *above: str) -> _Entries:
    """Entries by their keys; what is no tensor has a None at the end of its key."""
    entries: _Entries = {}
    for name, value in batch.items():
        if isinstance(value, Tensor):
            entries[(*above, name) if above else name] = value
        else:
            entries[(*above, name, None)] = value
            if is_tensor_collection(value):
                entries |= _entries(value, *above, name)
    return entries


def _forms(tensors: list[Tensor]) -> list[Any]:
    """All that a compiled function takes for granted of ``tensors``, but for their numbers."""
    return [*map(_FORM, tensors), *map(Tensor.stride, tensors)]


def _has_strides(tensor: Tensor) -> bool:
    return tensor.layout is torch.strided


def _casts() -> bool:
    return torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")


@contextmanager
def untouched(module: nn.Module, values: Sequence[Tensor]) -> Iterator[None]:
    """Bring back ``values``, all tensors of ``module``, its gradients and the random state."""
    tensors = [*module.parameters(), *module.buffers(), *values]
    params = list(module.parameters())
    kept, grads = [tensor.detach().clone() for tensor in tensors], [p.grad for p in params]
    devices = sorted({tensor.device.index for tensor in tensors if tensor.is_cuda})
    try:
        for param in params:
            param.grad = None
        with torch.random.fork_rng(devices), torch.enable_grad():
            yield
    finally:
        with torch.no_grad():
            for tensor, value in zip(tensors, kept, strict=True):
                if not torch.equal(tensor, value):
                    tensor.copy_(value)
        for param, grad in zip(params, grads, strict=True):
            param.grad = grad
