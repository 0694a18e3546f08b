"""Loss whose gradients are one compiled function of plain tensors."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, is_dataclass
from operator import attrgetter, is_, itemgetter
from typing import Any

import torch
from tensordict import NestedKey, TensorDictBase, TensorDictParams
from torch import Tensor, nn
from torchrl.envs.utils import exploration_type
from torchrl.objectives import LossModule

from torchrl_elegant.functional.gradients import add_gradients
from torchrl_elegant.objectives.common.update_loss import UpdateLoss
from torchrl_elegant.objectives.common.whole_loss import as_update_loss
from torchrl_elegant.objectives.compiled.compiler import compile_recording
from torchrl_elegant.objectives.compiled.recording import CannotRecord, Recording, record

logger = logging.getLogger(__name__)

# Recordings of a loss, each of which is compiled for seconds.
_MOST = 8
# What records and compiles sets globals of the process.
_ONE_AT_A_TIME = threading.Lock()


@dataclass(frozen=True, kw_only=True)
class _Kind:
    """A compiled update, for batches with the same entries and shapes."""

    run: Any
    holds: Callable[[], bool]  # False once it would be recorded otherwise
    keys: list[NestedKey]  # entries that are read
    forms: list[Any]  # shape, strides and type of each
    names: list[str]  # of the terms
    written: list[NestedKey]  # entries that the update leaves in the batch
    learns: list[nn.Parameter]  # what it has gradients for


class CompiledLoss:
    """Any ``LossModule``, with terms and gradients of an update compiled into one function.

    ``backward_terms(batch)`` stands in the place of ``sum(losses).backward()``. Its function is
    recorded from one call of the loss: same equations, same random numbers, same results up to
    rounding. Parameters, targets and buffers are read where they are, so that optimizers, target
    updaters and checkpoints work as before. A loss that has changed otherwise, by a cast, an
    assignment or another mode, is recorded again.

    The first update of each kind of batch takes seconds; what was compiled is kept for other runs
    (``cache_folder``). Where a loss decides by numbers in its batch, under autocast, or without a
    C++ compiler, a warning says so once, and the loss computes as before. After eight recordings,
    too.

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
        self._kinds: dict[Any, _Kind | None] = {}
        self._recordings = 0
        self._left: set[NestedKey] = set()  # entries that updates leave in their batch and no more
        self._parts: _Parts | None = None  # of the module when it was recorded

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
        found = self._compiled_terms(tensordict, actor)
        return self._loss.backward_terms(tensordict, actor=actor) if found is None else found

    def _compiled_terms(self, batch: TensorDictBase, actor: bool) -> dict[str, Tensor] | None:
        """Terms, with gradients added; None where the loss itself must compute them."""
        if self._parts is not None and not self._parts.are_the_same():
            self._kinds, self._parts = {}, None
        modes = exploration_type(), _casts()
        label = (actor, *modes, batch.batch_size, self._names(batch))
        kind = self._kinds.get(label)
        if label not in self._kinds or not (kind is None or kind.holds()):
            if self._recordings == _MOST:
                return None
            self._recordings += 1
            kind = self._kinds[label] = self._compile(batch, actor)
            if self._recordings == _MOST:
                logger.warning("recorded %d forms of the loss and its batches, and no more", _MOST)
        if kind is None:
            return None
        given = [batch.get(key, None) for key in kind.keys]
        if [_form(each) for each in given] != kind.forms:
            return None
        results = iter(kind.run(given))
        terms = dict(zip(kind.names, results))  # noqa: B905
        for key in kind.written:
            batch.set(key, next(results))
        add_gradients(kind.learns, list(results))
        return terms

    def _names(self, batch: TensorDictBase, *above: str) -> frozenset[Any]:
        """Names of the entries, but for those that updates leave."""
        names: list[Any] = []
        for name, value in batch.items():
            if isinstance(value, TensorDictBase):
                names.append((name, self._names(value, *above, name)))
            elif ((*above, name) if above else name) not in self._left:
                names.append(name)
        return frozenset(names)

    def _compile(self, batch: TensorDictBase, actor: bool) -> _Kind | None:
        try:
            with _ONE_AT_A_TIME:
                kind = self._record(batch, actor)
        except Exception as error:
            reason = str(error).strip().splitlines() or [type(error).__name__]
            logger.warning("not compiled, and slower for it: %s", reason[0])
            return None
        self._parts = _Parts(self._module)
        return kind

    def _record(self, batch: TensorDictBase, actor: bool) -> _Kind:
        if _casts():
            raise CannotRecord("autocast is on")
        update = _Update(self._loss, self._module, batch, actor)
        values = list(update.leaves.values())
        if any(value.requires_grad for value in values):
            raise CannotRecord("an entry of its batch requires gradients")
        with _untouched(self._module, values):
            update(*values)  # what a loss makes at its first call is there from now on
        parts = _Parts(self._module)
        with _untouched(self._module, values):
            recording = record(update, values)
        changed = parts.bring_back()
        if changed:
            raise CannotRecord(f"it replaces `{changed[0]}`; write into a buffer instead")
        if not recording.holds():
            raise CannotRecord("it decides by a number that it changes")
        keys = [key for key, used in zip(update.leaves, recording.used, strict=True) if used]
        given = [update.leaves[key] for key in keys]
        with _untouched(self._module, ()):  # a compiler draws random numbers, too
            run = compile_recording(recording, given)
            self._left |= self._ignored(update, batch, recording)
        return _Kind(
            run=run,
            holds=recording.holds,
            keys=keys,
            forms=[_form(each) for each in given],
            names=update.names,
            written=list(update.written),
            learns=update.learns,
        )

    def _ignored(self, update: _Update, batch: TensorDictBase, first: Recording) -> set[NestedKey]:
        """Entries that the update has left, if it does the same with a batch that has them."""
        late = {k: v.detach() for k, v in update.written.items() if k not in update.leaves}
        if not late:
            return set()
        shown = batch.copy()
        for key, value in late.items():
            shown.set(key, value.clone())
        again = _Update(self._loss, self._module, shown, update.actor)
        values = list(again.leaves.values())
        with _untouched(self._module, values):
            second = record(again, values)
        used = {key for key, used in zip(again.leaves, second.used, strict=True) if used}
        same = _operations(first) == _operations(second)
        return set() if used & late.keys() or not same else set(late)


def _operations(recording: Recording) -> list[Any]:
    return [node.target for node in recording.graph.graph.nodes if node.op != "placeholder"]


class _Update:
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


class _Parts:
    """State of a module that a recording rests on, beside the numbers in its tensors."""

    def __init__(self, module: nn.Module) -> None:
        parts = list(module.modules())
        tables: list[dict[str, Any]] = []
        for part in parts:
            tables += [part._parameters, part._buffers, part._modules]
        self._tables = [(table, dict(table)) for table in tables if table]
        # Another table stands in for a while, or for good: `to_module`, an entry that is set.
        swapped = [part for part in parts if isinstance(part, TensorDictParams)]
        names = ("_param_td", "_parameters", "_buffers")
        self._whole = [(vars(part), name, vars(part)[name]) for part in swapped for name in names]
        # Networks of TorchRL's losses are hidden from `modules`.
        hidden = [v for part in parts for v in vars(part).values() if isinstance(v, nn.Module)]
        parts += [inner for each in hidden for inner in each.modules()]
        # Tables of parameters note in themselves how they were last used.
        unique = {id(p): p for p in parts if not isinstance(p, TensorDictParams)}.values()
        self._plain = [pair for part in unique for pair in _plain_attributes(part)]
        tensors = [*module.parameters(), *module.buffers()]
        self._tensors, self._found = tensors, _state_of(tensors)
        # So that no other tensor is given their addresses.
        self._memory = [tensor.detach() for tensor in tensors]

    def are_the_same(self) -> bool:
        """True if nothing was assigned, cast, moved, frozen or switched since."""
        try:
            return (
                all(table.get(name) is value for table, name, value in self._whole)
                and all(
                    len(table) == len(held) and all(map(is_, table.values(), held.values()))
                    for table, held in self._tables
                )
                and all(get(table) == values for table, get, values, _ in self._plain)
                and _state_of(self._tensors) == self._found
            )
        except (KeyError, RuntimeError, ValueError):  # a number is gone, or is an array now
            return False

    def bring_back(self) -> list[str]:
        """Names of tensors and numbers that were replaced, and are put back."""
        replaced = []
        for table, held in self._tables:
            for name, value in held.items():
                if isinstance(value, Tensor) and table.get(name) is not value:
                    replaced.append(name)
                    table[name] = value
        for table, _, _, held in self._plain:
            for name, value in held.items():
                if table.get(name) != value:
                    replaced.append(name)
                    table[name] = value
        return replaced


def _plain_attributes(part: nn.Module) -> Iterator[tuple[dict[str, Any], Any, Any, Any]]:
    """Numbers and names among the attributes of ``part`` and its keys, and how to get them."""
    keys = [v for v in vars(part).values() if is_dataclass(v) and not isinstance(v, type)]
    for table in (vars(part), *(vars(each) for each in keys if type(each).__dictoffset__)):
        held = {name: v for name, v in table.items() if isinstance(v, (int, float, str, tuple))}
        if held:
            get = itemgetter(*held)
            yield table, get, get(table), held


def _state_of(tensors: list[Tensor]) -> list[Any]:
    return [*map(Tensor.data_ptr, tensors), *map(attrgetter("requires_grad"), tensors)]


def _form(tensor: Tensor | None) -> tuple[Any, ...] | None:
    if tensor is None:
        return None
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.requires_grad


def _casts() -> bool:
    return torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")


@contextmanager
def _untouched(module: nn.Module, values: Sequence[Tensor]) -> Iterator[None]:
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
