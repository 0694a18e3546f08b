"""Policies in formats of other programs: ONNX, and PyTorch's exported programs."""

from __future__ import annotations

import io
import json
import logging
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from tensordict import NestedKey, TensorDict
from torch import Tensor, nn
from torchrl.envs.utils import ExplorationType, set_exploration_type

from torchrl_elegant.config.text import UsageError
from torchrl_elegant.functional import path_of
from torchrl_elegant.modules import (
    CategoricalActor,
    GaussianActor,
    MultiCategoricalActor,
    NormalizedActor,
    RecurrentActor,
    SquashedGaussianActor,
)
from torchrl_elegant.runs.exported.program_actor import ProgramActor
from torchrl_elegant.runs.files import write_file

if TYPE_CHECKING:
    from torchrl_elegant.runs.policy import Policy

_OUTPUT = "action"
# Bytes of a file, from the policy, its example and its facts; and a run of those bytes.
_Write = Callable[[Any, dict[str, Tensor], dict[str, Any]], bytes]
_Run = Callable[[bytes, dict[str, np.ndarray]], np.ndarray]


def export_policy(policy: Policy, path: str | Path) -> Path:
    """Write ``policy`` for other programs, by the suffix of ``path``; UsageError where it cannot.

    ``.onnx`` is read by onnxruntime and by most inference servers, ``.pt2`` by
    ``torch.export.load(path).module()``, which runs code from the file: load only your own. Inside
    are the normalization of observations and the environment's own units. Inputs are the entries
    that the policy reads, by name (dots in nested ones), with any number of rows in front; the
    output ``action`` is the best action. The file's metadata hold ``env``, ``algorithm``,
    ``frames``, ``inputs`` and ``action`` with shapes and types, as JSON.

    In an ONNX file a stochastic policy has its distribution's parameters as further outputs:
    ``loc`` and ``scale``, or ``logits`` (of several choices a row for each, with minus infinity
    where one has fewer); ``distribution`` in the metadata names it. With x drawn
    from N(loc, scale^2), ``TanhNormal`` acts by tanh(x) and ``Normal`` by x cut to -1 to 1, both
    then stretched from -1 to 1 to ``low`` to ``high``; a choice is drawn by its logits and added
    to ``start``.

    Before it is kept, what was written is run on random observations and must act as the policy.
    """
    from torchrl_elegant.runs.policy import Policy, describe, new_file

    path = new_file(path)
    if path.suffix not in _FORMATS:
        raise UsageError(
            f"`path` must end in {' or '.join(_FORMATS)}, got {str(path)!r}; policy.save writes "
            "this package's own policy files"
        )
    if any(isinstance(part, RecurrentActor) for part in policy.actor.modules()):
        raise UsageError(
            f"`policy` must have no memory to be written as {path.suffix}, got one; policy.save "
            "writes this package's own policy files, which keep it"
        )
    write, run = _FORMATS[path.suffix]
    _, _, actor = describe(policy.actor, policy.metadata)
    here = Policy(deepcopy(actor).cpu().eval(), policy.metadata)
    example = _named(here.observed.example(3, torch.device("cpu")))
    try:
        with warnings.catch_warnings():
            # torch's own, on what it will do differently one day.
            warnings.simplefilter("ignore", FutureWarning)
            data = write(here, example, _facts(here, example))
    except UsageError:
        raise
    except Exception as error:
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise UsageError(
            f"`policy` must be one that PyTorch can export to {path.suffix}, got "
            f"{type(policy.actor).__name__}: {reason}"
        ) from error
    _compare(here, lambda inputs: run(data, inputs), example)
    write_file(path, data)
    return path


class _Served(nn.Module):
    """The best action in the environment's units, from tensors, with ``distribution`` beside it."""

    def __init__(self, policy: Policy, *, distribution: bool = False) -> None:
        super().__init__()
        if len(policy.action_keys) > 1:
            raise UsageError(
                f"`policy` must have one action to be exported, got {policy.action_keys}; load "
                "policy.pt with Policy"
            )
        self._distribution = distribution
        self.actor, self.units = policy.actor, policy.in_own_units
        self._policy = [policy]  # in a list, because it holds these modules, too

    def forward(self, *observation: Tensor) -> Tensor | tuple[Tensor, ...]:
        policy = self._policy[0]
        data = _seen(policy, observation)
        with set_exploration_type(ExplorationType.DETERMINISTIC):
            action = policy.action(data.copy())
        if not self._distribution:
            return action
        return action, *_parameters(self.actor, data)[1].values()


def _seen(policy: Policy, observation: Sequence[Tensor]) -> TensorDict:
    entries = zip(policy.observed.keys, observation, strict=True)
    return TensorDict(dict(entries), [observation[0].shape[0]])


def _parameters(actor: Any, data: TensorDict) -> tuple[str | None, dict[str, Tensor]]:
    """Name and parameters of the distribution of a stored actor; None for one without."""
    if isinstance(actor, NormalizedActor):
        seen = {key: actor.norm(key, data.get(key)) for key in actor.in_keys}
        return _parameters(actor.actor, TensorDict(seen, data.batch_size))
    observation = [data.get(key) for key in actor.in_keys]
    if isinstance(actor, ProgramActor) and actor.law is not None:
        values = dict(zip(actor.law.names, actor.program(*observation), strict=True))
        name = actor.law.name.removeprefix("Independent").removeprefix("OneHot")
        return (None, {}) if "param" in values else (name, values)
    if isinstance(actor, SquashedGaussianActor):
        loc, log_std = actor.parameters_of(observation)
        return "TanhNormal", {"loc": loc, "scale": log_std.exp()}
    if isinstance(actor, GaussianActor):
        head = actor.head_of(actor.output(observation))
        return "Normal", {"loc": head.loc, "scale": head.log_std.exp().expand_as(head.loc)}
    if isinstance(actor, CategoricalActor | MultiCategoricalActor):
        return "Categorical", {"logits": actor.head_of(actor.output(observation)).log_probs}
    return None, {}


def _named(example: dict[NestedKey, Tensor]) -> dict[str, Tensor]:
    return {key if isinstance(key, str) else ".".join(key): x for key, x in example.items()}


def _facts(policy: Policy, example: dict[str, Tensor]) -> dict[str, Any]:
    """Facts that a server has to know, as plain data."""
    told = policy.metadata
    data = _seen(policy, list(example.values()))
    with torch.no_grad(), set_exploration_type(ExplorationType.DETERMINISTIC):
        action = policy.action(data.copy())
        law, values = _parameters(policy.actor, data)
    units = policy.in_own_units
    about = {"shape": list(action.shape[1:]), "dtype": str(action.dtype).removeprefix("torch.")}
    choice = bool(told.get("discrete_actions"))
    bounds = {"low": units.low, "high": units.high, "start": units.start if choice else None}
    return {
        "format": "torchrl_elegant.policy",
        **{name: told.get(name) for name in ("env", "algorithm", "frames", "return_mean")},
        "inputs": {
            name: {"shape": list(x.shape[1:]), "dtype": str(x.dtype).removeprefix("torch.")}
            for name, x in example.items()
        },
        "action": {
            "kind": "choice" if choice else "continuous",
            **about,
            **{name: x.tolist() for name, x in bounds.items() if x is not None},
        },
        "distribution": {"name": law, "parameters": list(values)},
    }


def _exported(served: nn.Module, example: dict[str, Tensor]) -> torch.export.ExportedProgram:
    rows = {0: torch.export.Dim("rows", min=1)}
    with torch.no_grad():
        return torch.export.export(
            served,
            tuple(example.values()),
            dynamic_shapes={"observation": (rows,) * len(example)},
            strict=False,
        )


def _onnx(policy: Policy, example: dict[str, Tensor], facts: dict[str, Any]) -> bytes:
    _import("onnx", "onnxscript", "onnxruntime")
    import onnx

    served = _Served(policy, distribution=True)
    with _quiet(), torch.no_grad():
        program = torch.onnx.export(
            _exported(served, example).run_decompositions(),
            input_names=list(example),
            output_names=[_OUTPUT, *facts["distribution"]["parameters"]],
            dynamo=True,
            verbose=False,
        )
    model: Any = program.model_proto  # type: ignore[union-attr]
    texts = {name: x if isinstance(x, str) else json.dumps(x) for name, x in facts.items()}
    onnx.helper.set_model_props(model, texts)
    return model.SerializeToString()


def _run_onnx(data: bytes, inputs: dict[str, np.ndarray]) -> np.ndarray:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    return session.run([_OUTPUT], inputs)[0]


def _pt2(policy: Policy, example: dict[str, Tensor], facts: dict[str, Any]) -> bytes:
    data = io.BytesIO()
    extra = {"metadata.json": json.dumps(facts)}
    torch.export.save(_exported(_Served(policy), example), data, extra_files=extra)
    return data.getvalue()


def _run_pt2(data: bytes, inputs: dict[str, np.ndarray]) -> np.ndarray:
    module = torch.export.load(io.BytesIO(data)).module()
    with torch.no_grad():
        return module(*(torch.from_numpy(x) for x in inputs.values())).numpy()


_FORMATS: dict[str, tuple[_Write, _Run]] = {
    ".onnx": (_onnx, _run_onnx),
    ".pt2": (_pt2, _run_pt2),
}


def _compare(
    policy: Policy, run: Callable[[dict[str, np.ndarray]], np.ndarray], example: dict[str, Tensor]
) -> None:
    """Refuse what acts otherwise than the policy, on a single row and on several."""
    draw = np.random.default_rng(0)
    for rows in (1, 32):
        inputs = {name: _random(draw, rows, x) for name, x in example.items()}
        ours: Any = {}
        for key, value in zip(policy.observed.keys, inputs.values(), strict=True):
            place = ours
            *outer, last = path_of(key)
            for name in outer:
                place = place.setdefault(name, {})
            place[last] = value
        expected, found = np.asarray(policy(ours)), run(inputs)
        same = found.shape == expected.shape and found.dtype == expected.dtype
        if not same or not np.allclose(found, expected, rtol=1e-4, atol=1e-4 * _size(expected)):
            gap = np.abs(found - expected).max() if same else math.inf
            raise UsageError(
                f"`policy` must act the same after its export, got actions that differ by {gap:g} "
                f"on {rows} random observations; it was not written"
            )


def _size(action: np.ndarray) -> float:
    return 0.0 if action.dtype.kind in "iu" else max(1.0, float(np.abs(action).max()))


def _random(draw: np.random.Generator, rows: int, like: Tensor) -> np.ndarray:
    shape = (rows, *like.shape[1:])
    kind = like.numpy().dtype
    if like.is_floating_point():
        return (2.0 * draw.standard_normal(shape)).astype(kind)
    return draw.integers(0, 256 if like.dtype == torch.uint8 else 2, shape).astype(kind)


def _import(*names: str) -> None:
    for name in names:
        try:
            __import__(name)
        except ImportError as error:
            raise UsageError(
                f"`path` cannot be .onnx without the package {name}: pip install "
                "torchrl_elegant[export]"
            ) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep back the exporter's remarks on operations of packages that are not installed."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)
