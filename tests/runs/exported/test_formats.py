"""Policies in other formats: they act the same, say what they are, and need no torch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from torchrl_elegant.config.text import UsageError
from torchrl_elegant.envs import make_env
from torchrl_elegant.modules import (
    CategoricalActor,
    DeterministicActor,
    EpsilonGreedyActor,
    GaussianActor,
    GaussianNoise,
    MultiCategoricalActor,
    NoisyActor,
    NormalizedActor,
    ObservationNorm,
    QNetwork,
    SquashedGaussianActor,
    fit_actor,
)
from torchrl_elegant.runs.exported import formats
from torchrl_elegant.runs.policy import Policy

ROOT = Path(__file__).resolve().parents[3]
PENDULUM = make_env("Pendulum-v1")
SEEN = {"observation": (3,)}
NESTED = {"camera": (3, 40, 40), ("arm", "angle"): (2,)}
WIDE = {"action_low": np.float32([-2.0]), "action_high": np.float32([3.0])}


def norm(shift):
    made = ObservationNorm(SEEN)
    made.fit("observation", torch.full((3,), shift), torch.full((3,), 4.0))
    return made


def about(observation=None, **facts):
    seen = observation or {"observation": [[3], "float32"]}
    return {"env": "Pendulum-v1", "algorithm": "sac", "observation": seen, **facts}


CASES = {
    "squashed": (SquashedGaussianActor(observation=SEEN, low=[-1.0], high=[1.0]), about(**WIDE)),
    "noisy": (
        NoisyActor(DeterministicActor(observation=SEEN, low=[-1.0], high=[1.0]), GaussianNoise()),
        about(**WIDE),
    ),
    "normalized": (
        NormalizedActor(CategoricalActor(observation=SEEN, choices=3), norm(5.0)),
        about(discrete_actions="one_hot", action_start=2),
    ),
    "several": (
        MultiCategoricalActor(observation=SEEN, choices=(3, 2)),
        about(discrete_actions="one_hot", action_start=[0, 2], action_sizes=[3, 2]),
    ),
    "pictures": (
        GaussianActor(observation=NESTED, action_shape=(1,)),
        about({"camera": [[3, 40, 40], "uint8"], ("arm", "angle"): [[2], "float32"]}, **WIDE),
    ),
    "greedy": (
        EpsilonGreedyActor(QNetwork(observation=SEEN, choices=3, dueling=True), epsilon=0.5),
        about(discrete_actions="one_hot"),
    ),
    "foreign": (fit_actor(nn.Linear(3, 2), PENDULUM, kind="sampling"), about(**WIDE)),
}


def observations(policy, rows):
    draw, found = np.random.default_rng(1), {}
    for key, shape in policy.observed.shapes.items():
        value = draw.normal(size=(rows, *shape)) * 4
        kind = np.uint8 if len(shape) == 3 else np.float32
        found[".".join((key,) if isinstance(key, str) else key)] = np.abs(value).astype(kind)
    return found


def as_seen(inputs):
    found = {}
    for name, value in inputs.items():
        *outer, last = name.split(".")
        (found.setdefault(outer[0], {}) if outer else found)[last] = value
    return found


@pytest.mark.parametrize("name", CASES)
def test_onnx_acts_as_the_policy_on_any_number_of_rows(name, tmp_path):
    import onnxruntime

    policy = Policy(*CASES[name])
    path = policy.export(tmp_path / "policy.onnx")
    session = onnxruntime.InferenceSession(path)
    for rows in (1, 9):
        inputs = observations(policy, rows)
        (action,) = session.run(["action"], inputs)
        np.testing.assert_allclose(action, policy(as_seen(inputs)), rtol=1e-4, atol=1e-4)
    facts = session.get_modelmeta().custom_metadata_map
    assert facts["env"] == "Pendulum-v1"
    assert set(json.loads(facts["inputs"])) == set(inputs)
    told = json.loads(facts["action"])
    assert told["shape"] == list(action.shape[1:])
    assert told["kind"] == ("choice" if action.dtype.kind == "i" else "continuous")


def test_onnx_has_the_distribution_of_a_stochastic_policy(tmp_path):
    import onnxruntime

    for name in ("squashed", "normalized", "foreign", "noisy"):
        policy = Policy(*CASES[name])
        session = onnxruntime.InferenceSession(policy.export(tmp_path / f"{name}.onnx"))
        facts = session.get_modelmeta().custom_metadata_map
        law = json.loads(facts["distribution"])
        outputs = [output.name for output in session.get_outputs()]
        assert outputs == ["action", *law["parameters"]]
        inputs = observations(policy, 5)
        action, *values = session.run(outputs, inputs)
        told = json.loads(facts["action"])
        if law["name"] == "TanhNormal":
            part = (np.tanh(values[0]) + 1) / 2
            found = np.array(told["low"]) * (1 - part) + np.array(told["high"]) * part
            np.testing.assert_allclose(found, action, rtol=1e-4, atol=1e-4)
            assert (values[1] > 0).all()
        elif law["name"] == "Categorical":
            np.testing.assert_array_equal(values[0].argmax(-1) + told["start"], action)
        else:
            assert name == "noisy"


@pytest.mark.parametrize("name", CASES)
def test_pt2_acts_as_the_policy_without_this_package(name, tmp_path):
    policy = Policy(*CASES[name])
    path = policy.export(tmp_path / "policy.pt2")
    extra = {"metadata.json": ""}
    module = torch.export.load(path, extra_files=extra).module()
    for rows in (1, 9):
        inputs = observations(policy, rows)
        action = module(*map(torch.from_numpy, inputs.values()))
        np.testing.assert_allclose(
            action.detach().numpy(), policy(as_seen(inputs)), rtol=1e-4, atol=1e-4
        )
    assert json.loads(extra["metadata.json"])["algorithm"] == "sac"


def test_the_example_serves_without_torch(tmp_path):
    Policy(*CASES["squashed"]).export(tmp_path / "policy.onnx")
    program = ROOT / "examples" / "serve_onnx.py"
    assert len([line for line in program.read_text().splitlines()[1:] if line]) <= 10
    # An import of a module that is None fails.
    proof = "import runpy, sys; sys.modules['torch'] = None; sys.modules['torchrl_elegant'] = None;"
    command = [sys.executable, "-c", f"{proof} runpy.run_path({str(program)!r})"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("return -")


@pytest.mark.parametrize("suffix", [".onnx", ".pt2"])
def test_a_file_that_acts_otherwise_is_not_written(suffix, tmp_path, monkeypatch):
    write, run = formats._FORMATS[suffix]
    faulty = {suffix: (write, lambda data, inputs: run(data, inputs) + np.float32(0.05))}
    monkeypatch.setattr(formats, "_FORMATS", faulty)
    with pytest.raises(UsageError, match=r"must act the same after its export.*differ by 0\.0"):
        Policy(*CASES["squashed"]).export(tmp_path / f"policy{suffix}")
    assert not list(tmp_path.iterdir())


def test_wrong_paths_are_refused(tmp_path):
    policy = Policy(*CASES["squashed"])
    with pytest.raises(UsageError, match=r"`path` must end in \.onnx or \.pt2, got '.*policy\.h5'"):
        policy.export(tmp_path / "policy.h5")
    with pytest.raises(UsageError, match="in a folder that exists"):
        policy.export(tmp_path / "none" / "policy.onnx")
    (tmp_path / "mine.onnx").write_text("mine")
    with pytest.raises(UsageError, match="`path` must be a new file"):
        policy.export(tmp_path / "mine.onnx")
    assert (tmp_path / "mine.onnx").read_text() == "mine"


def test_a_missing_package_names_its_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(UsageError, match=r"onnxscript: pip install torchrl_elegant\[export\]"):
        Policy(*CASES["squashed"]).export(tmp_path / "policy.onnx")


def test_a_policy_without_shapes_is_refused(tmp_path):
    policy = Policy(fit_actor(nn.Linear(3, 2), PENDULUM, kind="sampling"), {})
    with pytest.raises(UsageError, match="`metadata` must hold `observation`"):
        policy.export(tmp_path / "policy.pt2")
