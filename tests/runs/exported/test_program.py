"""Programs as data: they compute what a network does, and can do nothing else."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
from torch import nn

from torchrl_elegant.modules import SquashedGaussianActor
from torchrl_elegant.runs.exported.policy_file import PolicyFileError, write_page
from torchrl_elegant.runs.exported.program import Captured, Program
from torchrl_elegant.runs.exported.program_actor import ProgramActor, program_actor
from torchrl_elegant.runs.policy import load_policy, save_policy


class Many(nn.Module):
    """Layers of many kinds."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(3, 16), nn.Linear(16, 2)
        self.norms = nn.ModuleList([nn.LayerNorm(16), nn.BatchNorm1d(16)])
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
        self.convolution, self.drop = nn.Conv1d(16, 16, 3, padding=1), nn.Dropout()
        self.memory = nn.GRU(16, 16, batch_first=True)
        self.register_buffer("shift", torch.ones(16), persistent=False)

    def forward(self, x):
        x = nn.functional.gelu(self.norms[1](self.norms[0](self.first(x)))).unsqueeze(1)
        x = self.memory(self.attention(x, x, x)[0])[0][:, -1]
        x = self.convolution(x.unsqueeze(-1)).squeeze(-1) + self.shift
        return self.last(self.drop(nn.functional.silu(x))).clamp(-1, 1)


def programmed(module, *inputs):
    captured = Captured(module, inputs)
    program = Program(**captured.page)
    program.load_state_dict(captured.state(module))
    return captured, program


@pytest.mark.parametrize("rows", [1, 3, 17])
def test_a_program_computes_what_the_network_does(rows):
    module = Many().eval()
    module.norms[1].running_mean.uniform_()
    _, program = programmed(module, torch.zeros(3, 3))
    x = torch.randn(rows, 3)
    torch.testing.assert_close(program(x)[0], module(x))


def test_a_capture_does_not_show_torchs_own_warnings(monkeypatch):
    export = torch.export.export

    def warns(*args, **kwargs):
        warnings.warn("it will differ one day", FutureWarning, stacklevel=1)
        return export(*args, **kwargs)

    monkeypatch.setattr(torch.export, "export", warns)
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)
        programmed(nn.Linear(3, 1).eval(), torch.zeros(2, 3))


def test_the_state_follows_the_weights():
    module = nn.Linear(3, 1).eval()
    captured, program = programmed(module, torch.zeros(2, 3))
    with torch.no_grad():
        module.weight.fill_(2.0)
        module.bias.zero_()
    program.load_state_dict(captured.state(module))
    assert program(torch.ones(1, 3))[0].item() == 6.0


class Counting(nn.Linear):
    def __init__(self):
        super().__init__(3, 1)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return super().forward(x)


class Special(nn.Linear):
    def forward(self, x):
        return torch.special.bessel_j0(super().forward(x))


@pytest.mark.parametrize(
    ("module", "reason"),
    [(Counting(), "changes `calls`"), (Special(3, 1), r"operation `aten\.special_bessel_j0")],
)
def test_what_a_program_cannot_hold_is_named(module, reason):
    with pytest.raises(ValueError, match=reason):
        Captured(module.eval(), [torch.zeros(2, 3)])


@pytest.fixture
def page(tmp_path):
    linear = nn.Linear(3, 1)
    actor = SquashedGaussianActor(observation={"observation": (3,)}, low=[-1.0], high=[1.0])
    del actor.net
    actor.net = nn.Sequential(linear, nn.Linear(1, 2))
    stored = program_actor(actor, {"observation": torch.zeros(2, 3)})
    save_policy(tmp_path / "p.pt", stored, {})
    page = torch.load(tmp_path / "p.pt", weights_only=True)
    assert isinstance(load_policy(tmp_path / "p.pt"), ProgramActor)
    return page


@pytest.mark.parametrize(
    "operation",
    [
        "torch.os.system",
        "aten.from_file.default",
        "aten.__class__.__init__",
        "aten.set_.source_Storage",
        "prims.add.default",
        "number.__import__",
        "number.attrgetter",
        "os.system",
        "",
    ],
)
def test_a_strangers_operation_is_refused(page, tmp_path, operation):
    page["spec"]["program"]["nodes"][0][1] = operation
    told = r"not one of PyTorch's core ones|entries that do not fit"
    with pytest.raises(PolicyFileError, match=told):
        _ = load_policy(written(page, tmp_path))


@pytest.mark.parametrize(
    "value", [("dtype", "os"), ("layout", "load"), ("module", "os"), ("dtype", "float32", 1)]
)
def test_a_strangers_argument_is_no_way_into_torch(page, tmp_path, value):
    nodes = page["spec"]["program"]["nodes"]
    nodes[0][2] = [value]
    actor = load_policy(written(page, tmp_path))
    with pytest.raises((ValueError, TypeError, RuntimeError)):
        actor.act(torch.zeros(2, 3))


def test_a_strangers_type_of_a_tensor_is_refused(page, tmp_path):
    page["spec"]["program"]["tensors"][0][2] = "nn"
    with pytest.raises(PolicyFileError, match="names `nn` as its dtype"):
        load_policy(written(page, tmp_path))


def written(page, folder):
    page = copy.deepcopy(page)
    # As a stranger would: with a digest that is right.
    write_page(folder / "bad.pt", page)
    return folder / "bad.pt"
