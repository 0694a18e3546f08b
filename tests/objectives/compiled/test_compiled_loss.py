"""A compiled update does what the plain one does, with the same random numbers."""

from __future__ import annotations

import subprocess
import threading
import time
from copy import deepcopy
from functools import partial

import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import NormalParamExtractor, TensorDictModule
from torch import nn
from torchrl import objectives
from torchrl.envs.utils import exploration_type
from torchrl.modules import MLP, ProbabilisticActor, QValueActor, TanhNormal, ValueOperator
from torchrl.objectives import LossModule

from torchrl_elegant.algorithms import ALGORITHMS, HTermConfig, SACConfig
from torchrl_elegant.data.multi_step import AHEAD
from torchrl_elegant.envs import make_env
from torchrl_elegant.objectives.common.whole_loss import as_update_loss
from torchrl_elegant.objectives.compiled import compiler
from torchrl_elegant.objectives.compiled import loss as module
from torchrl_elegant.objectives.compiled.kernels import kernels
from torchrl_elegant.objectives.compiled.loss import CompiledLoss
from torchrl_elegant.trainers.learner import Learner
from torchrl_elegant.trainers.off_policy import row_keys
from torchrl_elegant.trainers.rollout_learner import RolloutLearner

ROWS, UPDATES = 8, 100
OFF = {"batch_size": ROWS, "num_cells": (8, 8)}
CASES = {
    "sac": ("sac", {}),
    "sac fixed temperature": ("sac", {"temperature": "fixed"}),
    "sac clipped": ("sac", {"max_grad_norm": 0.1}),
    "sac several steps": ("sac", {"n_steps": 3}),
    "sac priorities": ("sac", {"priority_alpha": 0.6}),
    "sac smooth": ("sac", {"loss_function": "smooth_l1", "layer_norm": "all"}),
    "sac scaled": ("sac", {"normalize_observation": True, "normalize_value": True}),
    "sac long returns": ("sac", {"long_return_weight": 0.1}),
    "sac own critic": ("sac", {"networks": {"critic": MLP(in_features=4, out_features=1)}}),
    "sac own actor": ("sac", {"networks": {"actor": MLP(in_features=3, out_features=2)}}),
    "td3 own actor": ("td3", {"networks": {"actor": MLP(in_features=3, out_features=1)}}),
    "ppo own actor": ("ppo", {"networks": {"actor": MLP(in_features=3, out_features=2)}}),
    "modsac": ("modsac", {}),
    "redq": ("redq", {"num_critics": 4}),
    "redq weighted": ("redq", {"num_critics": 4, "target": "weighted", "target_members": None}),
    "td3": ("td3", {}),
    "ddpg": ("ddpg", {"actor_period": 2}),
    "dqn": ("dqn", {}),
    "double dqn": ("double_dqn", {}),
    "d3qn": ("d3qn", {"priority_alpha": 0.6}),
    "discrete sac": ("discrete_sac", {}),
    "ppo": ("ppo", {}),
    "ppo clipped values": ("ppo", {"clip_value": 0.2, "entropy_coeff": 0.01, "target_kl": 1.0}),
    "a2c": ("a2c", {"entropy_coeff": (0.1, 0.0)}),
}


def config_of(name, options):
    return ALGORITHMS[name](**(OFF | options))


def data_of(config, env, learner):
    """Four batches such as the learner is given."""
    torch.manual_seed(5)
    if config.family == "on_policy":
        rows = learner.rows(env.rollout(40, learner.policy).detach().reshape(1, -1))
        return [rows[i : i + ROWS] for i in range(0, 4 * ROWS, ROWS)]
    rollout = env.rollout(60, break_when_any_done=False)
    learner.observe(rollout)
    fold = config.fold
    rows = rollout if fold is None else fold()(rollout)
    rows = rows.reshape(-1).select(*row_keys(learner), "steps_to_next_obs", AHEAD, strict=False)
    if config.priority() is not None:
        rows.set("priority_weight", torch.rand(rows.shape))
    return [rows[i : i + ROWS].contiguous() for i in range(0, 4 * ROWS, ROWS)]


def pair(config):
    """A plain and a compiled learner of equal networks, and data."""
    env = make_env("CartPole-v1" if config.actions == ("discrete",) else "Pendulum-v1")
    kind = RolloutLearner if config.family == "on_policy" else Learner
    learners = []
    for compile in (False, True):
        torch.manual_seed(1)
        env.set_seed(1)
        learners.append(kind(config.assemble(env), compile=compile))
        batches = data_of(config, env, learners[-1])
    return *learners, batches


def run(learner, batches, updates=UPDATES):
    """Terms of every update, what was left in the last batch, all numbers that were learned."""
    torch.manual_seed(2)
    seen = []
    for number in range(updates):
        learner.at(number / updates)
        batch = batches[number % 4].clone()
        seen.append(learner.update(batch))
    return seen, batch, learner.loss.state_dict(), learner.optimizer.state_dict()["state"]


def warned(caplog):
    return [record.message for record in caplog.records if record.levelname == "WARNING"]


def assert_same(plain, compiled, batches, **close):
    expected, found = run(plain, batches), run(compiled, batches)
    assert [sorted(terms) for terms in found[0]] == [sorted(terms) for terms in expected[0]]
    torch.testing.assert_close(found[0], expected[0], **close)
    assert set(found[1].keys(True, True)) == set(expected[1].keys(True, True))
    for key, value in expected[1].items(True, True):
        torch.testing.assert_close(found[1].get(key), value, **close)
    torch.testing.assert_close(found[2], expected[2], **close)
    torch.testing.assert_close(found[3], expected[3], **close)


@pytest.mark.usefixtures("graphs")
@pytest.mark.parametrize("case", CASES)
def test_recorded_updates_are_the_plain_ones(case, caplog):
    name, options = CASES[case]
    plain, compiled, batches = pair(config_of(name, options))
    assert_same(plain, compiled, batches, rtol=1e-5, atol=1e-6)
    assert not warned(caplog)


@pytest.mark.parametrize("case", ["sac", "td3", "ppo"])
def test_compiled_updates_are_the_plain_ones(case, caplog):
    name, options = CASES[case]
    plain, compiled, batches = pair(config_of(name, options))
    assert_same(plain, compiled, batches, rtol=1e-4, atol=1e-5)
    assert not warned(caplog)
    # The same again takes no compiler.
    kinds = compiled._update_loss._kinds
    twin = pair(config_of(name, options))[1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess, "run", None)
        patch.setattr(subprocess, "Popen", None)
        run(twin, batches, 2)
    assert len(kinds) == (2 if case == "td3" else 1)
    assert not warned(caplog)


@pytest.mark.usefixtures("graphs")
def test_the_hamiltonian_term_adds_its_gradients(caplog):
    config = SACConfig(hterm=HTermConfig(), **OFF)
    plain, compiled, batches = pair(config)
    first, second = run(plain, batches, 20), run(compiled, batches, 20)
    assert "loss_hamiltonian" in {name for terms in first[0] for name in terms}
    torch.testing.assert_close(second[2], first[2], rtol=1e-5, atol=1e-6)
    assert not warned(caplog)


@pytest.mark.usefixtures("graphs")
def test_rates_targets_and_thresholds_may_change():
    plain, compiled, batches = pair(config_of("ppo", {"clip_epsilon": 0.2}))
    for learner in (plain, compiled):
        run(learner, batches, 3)
        learner.loss.clip_epsilon.fill_(0.001)
        learner.optimizer.param_groups[0]["lr"] = 0.05
    first, second = run(plain, batches, 10), run(compiled, batches, 10)
    torch.testing.assert_close(second[2], first[2], rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("graphs")
def test_to_record_changes_nothing():
    _, compiled, batches = pair(config_of("sac", {"normalize_observation": True}))
    loss = compiled._update_loss
    parameter = next(compiled.loss.parameters())
    parameter.grad = torch.full_like(parameter, 2.0)
    before, state = torch.get_rng_state(), deepcopy(compiled.loss.state_dict())
    batch = batches[0].clone()
    about = True, exploration_type(), False, batch.batch_size
    loss._compile(batch, about, module._entries(batch))
    assert torch.equal(torch.get_rng_state(), before)
    torch.testing.assert_close(compiled.loss.state_dict(), state, rtol=0, atol=0)
    assert bool((parameter.grad == 2.0).all())
    assert set(batch.keys(True, True)) == set(batches[0].keys(True, True))


@pytest.mark.usefixtures("graphs")
def test_gradients_add_up():
    _, compiled, batches = pair(config_of("sac", {}))
    loss, parameter = compiled._update_loss, next(compiled.loss.parameters())
    found = []
    for times in (1, 2):
        compiled.optimizer.zero_grad()
        for _ in range(times):
            torch.manual_seed(3)
            loss.backward_terms(batches[0].clone())
        found.append(parameter.grad.clone())
    torch.testing.assert_close(found[1], 2.0 * found[0])


def set_entry(loss):
    params = loss.qvalue_network_params
    name = next(iter(params.keys(True, True)))
    params.set(name, nn.Parameter(2.0 * params.get(name).detach()))


CHANGES = {
    "number": lambda loss: setattr(loss, "loss_function", "l1"),
    "data": lambda loss: nn.utils.vector_to_parameters(
        torch.linspace(-1.0, 1.0, sum(p.numel() for p in loss.parameters())), loss.parameters()
    ),
    "entry": set_entry,
}


@pytest.mark.usefixtures("graphs")
@pytest.mark.parametrize("change", ["cast", "assigned", "number", "data", "entry"])
def test_a_loss_that_changed_is_recorded_again(change):
    plain, compiled, batches = pair(config_of("sac", {}))
    run(compiled, batches, 2)
    run(plain, batches, 2)
    if change == "cast":
        for learner in (plain, compiled):
            learner.loss.double()
        batches = [b.apply(lambda x: x.double() if x.is_floating_point() else x) for b in batches]
    elif change == "assigned":
        other = pair(config_of("sac", {}))[0].loss.qvalue_network_params
        for learner in (plain, compiled):
            learner.loss.qvalue_network_params = deepcopy(other)
    else:
        for learner in (plain, compiled):
            CHANGES[change](learner.loss)
    terms = []
    for learner in (plain, compiled):
        torch.manual_seed(4)
        terms.append(learner._update_loss.backward_terms(batches[0].clone()))
    torch.testing.assert_close(terms[1], terms[0])


@pytest.mark.usefixtures("graphs")
def test_eight_forms_of_batches_are_recorded_and_no_more(caplog):
    _, compiled, batches = pair(config_of("sac", {}))
    loss = compiled._update_loss
    for rows in (4, 8, 4):
        loss.backward_terms(batches[0][:rows].clone())
    assert len(loss._kinds) == 2
    wide = torch.cat(batches)
    for rows in range(1, 20):
        loss.backward_terms(wide[:rows].clone())
    assert len(loss._kinds) == module._MOST
    assert warned(caplog) == ["recorded 8 forms of the loss and its batches, and no more"]


def test_without_a_compiler_it_runs_as_it_is(monkeypatch, caplog, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CXX", "no-such-compiler")
    kernels.cache_clear()
    plain, compiled, batches = pair(config_of("ddpg", {"num_cells": (7,)}))
    expected, found = run(plain, batches, 3), run(compiled, batches, 3)
    kernels.cache_clear()
    torch.testing.assert_close(found[2], expected[2], rtol=0, atol=0)
    told = [text for text in warned(caplog) if "not compiled" in text]
    assert len(told) == 1
    assert "slower for it" in told[0]


class Draws(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(3, 1)

    def forward(self, observation):
        return self.net(observation * torch.bernoulli(observation.detach().abs().clamp(max=1.0)))


def test_what_cannot_be_recorded_is_told_and_computed_as_before(caplog):
    plain, compiled, batches = pair(config_of("ddpg", {"networks": {"actor": Draws()}}))
    expected, found = run(plain, batches, 3), run(compiled, batches, 3)
    # But for the optimizer, whose kernel has other roundings.
    torch.testing.assert_close(found[2], expected[2], rtol=1e-6, atol=1e-7)
    told = [text for text in warned(caplog) if "not compiled" in text]
    assert len(told) == 1
    assert "draws random numbers by" in told[0]


@pytest.mark.usefixtures("graphs")
def test_a_mistake_of_the_caller_is_raised_as_before():
    _, compiled, batches = pair(config_of("sac", {}))
    batch = batches[0].clone()
    del batch["action"]
    with pytest.raises(TypeError, match="got NoneType"):
        compiled._update_loss.backward_terms(batch)


def test_a_cache_that_takes_no_files_is_done_without(monkeypatch, tmp_path, caplog):
    (tmp_path / "torchrl_elegant").write_text("a file where a folder should be")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(compiler, "choose_products", lambda graph: None)
    kept = module.compile_recording(
        module.record(lambda x: [x + 1.0], [torch.ones(2)]), [torch.ones(2)]
    )
    assert kept([torch.ones(2)])[0].tolist() == [2.0, 2.0]


def of_torchrl(kind):
    """A loss of TorchRL over networks of TorchRL, and a batch."""
    torch.manual_seed(0)
    env = make_env("CartPole-v1" if kind is objectives.DQNLoss else "Pendulum-v1")
    net = partial(MLP, in_features=3, num_cells=(8,))
    if kind is objectives.DQNLoss:
        value = QValueActor(net(in_features=4, out_features=2), spec=env.action_spec)
        loss = kind(value, action_space="one_hot")
    else:
        parameters = nn.Sequential(net(out_features=2), NormalParamExtractor())
        actor = ProbabilisticActor(
            TensorDictModule(parameters, ["observation"], ["loc", "scale"]),
            in_keys=["loc", "scale"],
            distribution_class=TanhNormal,
            return_log_prob=kind is objectives.ClipPPOLoss,
        )
        if kind is objectives.ClipPPOLoss:
            loss = kind(actor, ValueOperator(net(out_features=1)))
        else:
            critic = ValueOperator(net(in_features=4, out_features=1), ["observation", "action"])
            loss = kind(actor, critic, action_spec=env.action_spec)
    with torch.no_grad():
        rows = env.rollout(12, None if kind is not objectives.ClipPPOLoss else actor)
    if kind is objectives.ClipPPOLoss:
        loss.make_value_estimator()
        loss.value_estimator(rows)
    return loss, rows.reshape(-1)[:8]


@pytest.mark.usefixtures("graphs")
@pytest.mark.parametrize("name", ["SACLoss", "DQNLoss", "ClipPPOLoss"])
def test_a_loss_of_torchrl_is_compiled_as_it_is(name, caplog):
    loss, batch = of_torchrl(getattr(objectives, name))
    found = []
    for backward in (as_update_loss(loss).backward_terms, CompiledLoss(loss).backward_terms) * 2:
        loss.zero_grad()
        torch.manual_seed(1)
        terms = backward(batch.clone())
        found.append((dict(terms), [p.grad.clone() for p in loss.parameters() if p.requires_grad]))
    torch.testing.assert_close(found[1], found[0], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(found[3], found[0], rtol=1e-5, atol=1e-6)
    assert any(bool(grad.abs().max() > 0) for grad in found[0][1])
    assert not warned(caplog)


@pytest.mark.usefixtures("graphs")
def test_what_an_update_leaves_in_a_batch_makes_no_other_kind(monkeypatch):
    compile_recording = module.compile_recording

    def rewrite(recording, given):  # as products are replaced in it
        graph = recording.graph.graph
        with graph.inserting_before(graph.output_node()):
            graph.call_function(torch.neg, (next(iter(graph.nodes)),))
        return compile_recording(recording, given)

    monkeypatch.setattr(module, "compile_recording", rewrite)
    _, compiled, batches = pair(config_of("sac", {}))
    for _ in range(3):
        compiled._update_loss.backward_terms(batches[0])
    assert len(compiled._update_loss._kinds) == 1
    assert "td_error" in batches[0]


def test_metrics_and_keys_are_those_of_the_loss():
    plain, compiled, _ = pair(config_of("modsac", {}))
    assert compiled.metric_names == plain.metric_names
    assert compiled._update_loss.priority_key == plain._update_loss.priority_key
    assert isinstance(compiled._update_loss, CompiledLoss)


class OwnLoss(LossModule):
    """A loss of a third party: ``says`` gives its term from its network and a batch."""

    def __init__(self, says):
        super().__init__()
        self.net, self.says, self.count = nn.Linear(3, 1), says, 1.0
        self.register_buffer("level", torch.ones(()))

    in_keys, out_keys = ("observation",), ("loss_own",)

    def forward(self, tensordict):
        return TensorDict({"loss_own": self.says(self, tensordict).square().mean()}, [])


def own(says):
    torch.manual_seed(0)
    loss = OwnLoss(says)
    return loss, CompiledLoss(loss), TensorDict({"observation": torch.randn(4, 3)}, [4])


def plain_says(loss, data):
    return loss.net(data["observation"])


def replaces(loss, data):
    loss.level = 0.5 * loss.level + data["observation"].mean()
    return plain_says(loss, data) * loss.level


def counts(loss, data):
    loss.count += 1.0
    return plain_says(loss, data) * loss.count


def counts_and_decides(loss, data):
    loss.level.add_(1.0)
    return plain_says(loss, data) * (2.0 if loss.level > 2.0 else 1.0)


def reads_text(loss, data):
    return plain_says(loss, data) * len(data["task"])


@pytest.mark.usefixtures("graphs")
@pytest.mark.parametrize(
    ("says", "told"),
    [
        (replaces, "replaces `level`"),
        (counts, "replaces `count`"),
        (counts_and_decides, "a number that it changes"),
        (reads_text, "task"),
    ],
)
def test_what_a_call_keeps_in_python_is_refused(says, told, caplog):
    _, compiled, batch = own(says)
    batch.set_non_tensor("task", "walk")
    compiled.backward_terms(batch)
    assert [kind.run for kind in compiled._kinds] == [None]
    assert told in warned(caplog)[0]


def test_decisions_by_a_buffer_are_made_again_and_kept(graphs):
    loss, compiled, batch = own(
        lambda loss, data: plain_says(loss, data) * (2.0 if loss.level > 2.0 else 1.0)
    )
    for level in (1.0, 3.0) * 5:
        loss.level.fill_(level)
        found = compiled.backward_terms(batch)["loss_own"]
        torch.testing.assert_close(found, loss(batch)["loss_own"].detach())
    assert len(graphs) == 2


def reads_any_number(loss, data):
    return loss.net.weight.sum() * data["observation"].float().sum(-1)


@pytest.mark.parametrize(
    "change",
    [lambda x: x.t().contiguous().t(), lambda x: x.double(), lambda x: x[:, :2], lambda x: x],
    ids=["strides", "type", "shape", "none"],
)
def test_batches_of_equal_names_and_other_forms_have_recordings_of_their_own(
    change, graphs, caplog
):
    loss, compiled, batch = own(reads_any_number)
    other = batch.clone().set("observation", change(batch["observation"].clone()))
    for _ in range(2):
        for each in (batch, other):
            loss.zero_grad()
            expected = loss(each)["loss_own"]
            (gradient,) = torch.autograd.grad(expected, loss.net.weight)
            found = compiled.backward_terms(each)["loss_own"]
            torch.testing.assert_close(found, expected.detach())
            torch.testing.assert_close(loss.net.weight.grad, gradient)
    forms = 1 if change(batch["observation"]) is batch["observation"] else 2
    assert len(graphs) == len(compiled._kinds) == forms
    assert not warned(caplog)


def test_a_batch_on_another_device_is_of_another_form():
    batch = torch.ones(2, 3)
    assert module._forms([batch]) == module._forms([batch.clone()])
    assert module._forms([batch]) != module._forms([batch.to("meta")])
    assert module._forms([batch]) != module._forms([batch.clone().requires_grad_()])


def test_a_mistaken_batch_does_not_spoil_the_right_ones(graphs, caplog):
    _, compiled, batch = own(plain_says)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="dtype"):
            compiled.backward_terms(batch.double())
    compiled.backward_terms(batch)
    assert [kind.run is None for kind in compiled._kinds] == [True, False]
    assert len(warned(caplog)) == len(graphs) == 1


@pytest.mark.usefixtures("graphs")
def test_a_batch_that_no_graph_can_read_is_computed_as_it_is(caplog):
    loss, compiled, batch = own(
        lambda loss, data: loss.net(data["observation"].to_dense().relu() + 0.0)
    )
    compiled.backward_terms(batch)
    sparse = batch.clone(False)
    sparse._tensordict["observation"] = batch["observation"].to_sparse_csr()
    for _ in range(2):
        found = compiled.backward_terms(sparse)["loss_own"]
        torch.testing.assert_close(found.detach(), loss(batch)["loss_own"].detach())
    assert len(warned(caplog)) == 1


def adds_what_it_leaves(loss, data):
    """With four rows it writes `noted`; with others it reads it, where it is there."""
    says = plain_says(loss, data)
    if len(data) == 4:
        data.set("noted", says.detach())
    elif "noted" in data:
        says = says + data["noted"]
    return says


@pytest.mark.usefixtures("graphs")
def test_what_one_kind_leaves_and_ignores_another_may_read():
    loss, compiled, batch = own(adds_what_it_leaves)
    for _ in range(2):
        compiled.backward_terms(batch)
    assert "noted" in batch
    assert len(compiled._kinds) == 1
    for each in (batch.exclude("noted")[:2], batch[:2]):
        found = compiled.backward_terms(each.clone())["loss_own"]
        torch.testing.assert_close(found, loss(each)["loss_own"].detach())


@pytest.mark.usefixtures("graphs")
def test_what_is_made_at_the_first_call_is_no_constant():
    def makes_late(loss, data):
        if "late" not in loss._buffers:
            loss.register_buffer("late", torch.tensor(2.0))
        return plain_says(loss, data) * loss.late

    loss, compiled, batch = own(makes_late)
    compiled.backward_terms(batch)
    loss.late.fill_(7.0)
    found = compiled.backward_terms(batch)["loss_own"]
    torch.testing.assert_close(found, loss(batch)["loss_own"].detach())


@pytest.mark.usefixtures("graphs")
def test_frozen_parameters_get_no_gradients():
    loss, compiled, batch = own(plain_says)
    compiled.backward_terms(batch)
    loss.zero_grad()
    loss.net.bias.requires_grad_(False)
    compiled.backward_terms(batch)
    assert loss.net.bias.grad is None
    assert loss.net.weight.grad is not None


@pytest.mark.usefixtures("graphs")
def test_a_copy_computes_with_its_own_parameters():
    loss, compiled, batch = own(plain_says)
    compiled.backward_terms(batch)
    twin_loss, twin = deepcopy((loss, compiled))
    with torch.no_grad():
        twin_loss.net.weight.mul_(3.0)
    found = twin.backward_terms(batch)["loss_own"]
    torch.testing.assert_close(found, twin_loss(batch)["loss_own"].detach())


@pytest.mark.usefixtures("graphs")
def test_autocast_is_left_to_the_loss(caplog):
    loss, compiled, batch = own(plain_says)
    compiled.backward_terms(batch)
    loss.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        compiled.backward_terms(batch)
    assert "autocast is on" in warned(caplog)[0]
    assert loss.net.weight.grad.dtype == torch.float32


@pytest.mark.usefixtures("graphs")
def test_a_nested_entry_that_is_missing_makes_another_kind():
    def adds(loss, data):
        return plain_says(loss, data) + (data["a", "b"] if ("a", "b") in data.keys(True) else 0.0)

    _, compiled, batch = own(adds)
    full = batch.clone().set(("a", "b"), torch.ones(4, 1)).set(("a", "c"), torch.ones(4, 1))
    compiled.backward_terms(full)
    compiled.backward_terms(full.exclude(("a", "b")))
    assert len(compiled._kinds) == 2


def test_one_thread_records_at_a_time(graphs, monkeypatch):
    losses = [own(plain_says) for _ in range(2)]
    inside, most, record = [], [], module.record

    def slow(*given):
        inside.append(threading.get_ident())
        time.sleep(0.1)  # for the other to come in, if it may
        most.append(len(inside))
        found = record(*given)
        inside.pop()
        return found

    monkeypatch.setattr(module, "record", slow)
    threads = [
        threading.Thread(target=compiled.backward_terms, args=(batch,))
        for _, compiled, batch in losses
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1, 1]
    assert len(graphs) == 2
    for loss, compiled, batch in losses:
        found = compiled.backward_terms(batch)["loss_own"]
        torch.testing.assert_close(found, loss(batch)["loss_own"].detach())
