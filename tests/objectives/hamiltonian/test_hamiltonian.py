"""The H-term as a loss: by hand, exact on a small chain, for every actor, whatever the keys."""

from __future__ import annotations

import math
import pickle
from copy import deepcopy

import deterministic_cases
import pytest
import sac_cases
import torch
import value_cases
from hamiltonian_cases import (
    F64,
    GAMMA,
    K,
    after_steps,
    every_trajectory,
    hamiltonian_loss,
    k_step_return,
    make_slices,
)
from ppo_cases import make_actor, torchrl_nets
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torchrl.modules import Delta, NormalParamExtractor, ProbabilisticActor, TanhDelta

from torchrl_elegant.modules import (
    CategoricalActor,
    DeterministicActor,
    GaussianActor,
    SquashedGaussianActor,
)
from torchrl_elegant.objectives.hamiltonian.loss import RunningScale
from torchrl_elegant.objectives.hamiltonian.stored_actions import stored_log_prob
from torchrl_elegant.objectives.hamiltonian.term import add_bounded

OBS, NAME = {"observation": (1,)}, "loss_hamiltonian"
LOG_2PI = math.log(2 * math.pi)
FORMS = ("ratio", "log", "imitate")


def silent(actor, bias):
    """The actor with outputs that are the same at every observation."""
    layer = actor.net.layers[-1]
    with torch.no_grad():
        layer.weight.zero_()
        layer.bias.copy_(torch.tensor(bias))
    return actor, layer.bias


def slices_of(
    actions, *, log_prob=None, mask=None, value=None, next_value=None, **after
) -> TensorDict:
    """Slices ``[L, K]`` from nested lists, of one observation."""
    actions = torch.tensor(actions)
    data = {
        "observation": torch.ones(*actions.shape[:2], 1),
        "action": actions,
        "next": after_steps(**after),
    }
    for holder, values in ((data, value), (data["next"], next_value)):
        if values is not None:
            holder["state_value"] = torch.tensor(values).unsqueeze(-1)
    for name, value in (("action_log_prob", log_prob), ("mask", mask)):
        if value is not None:
            data[name] = torch.tensor(value)
    return TensorDict(data, actions.shape[:2])


def normalised(loss, mean, spread):
    """The loss, its rewards measured by these."""
    loss.scale.mean.fill_(mean)
    loss.scale.variance.fill_(spread**2)
    return loss


# ---- by hand ------------------------------------------------------------------------------------

QUARTER = [0.0, math.log(3.0)]  # logits of the probabilities 1/4 and 3/4
LOW, HIGH = math.log(0.25), math.log(0.75)


def coin(**options):
    actor, bias = silent(CategoricalActor(observation=OBS, choices=2, form="categorical"), QUARTER)
    options = {"weight": 1.0, "gamma": 0.5, **options}
    return hamiltonian_loss(actor, **options), bias


# Options, slices, the loss, and its derivatives by log pi of each step.
CATEGORICAL = {
    "log": (
        {"form": "log", "weight": 0.25},
        {"actions": [[0, 1]], "reward": [[1.0, 2.0]]},
        -0.25 * (2 * LOW + HIGH),
        (-0.5, -0.25),
    ),
    "ratio": (
        {"form": "ratio"},
        {"actions": [[0, 1]], "reward": [[1.0, 2.0]], "log_prob": [[math.log(0.5)] * 2]},
        -(0.5 + 0.75),  # both ratios, of 0.5 and 0.5 * 1.5, may rise to 1.2
        (-1.25, -0.75),
    ),
    "ratio, clipped": (
        {"form": "ratio", "clip_epsilon": 0.3},
        {"actions": [[0, 1]], "reward": [[-1.0, 2.0]], "log_prob": [[math.log(0.5)] * 2]},
        0.7 - 0.75,
        (-0.75, -0.75),
    ),
    "log where nobody wrote a log-probability": (
        {},
        {"actions": [[0, 1]], "reward": [[1.0, 2.0]]},
        -(2 * LOW + HIGH),
        (-2.0, -1.0),
    ),
    "terminated after the first": (
        # What is left of the slice is paid 0, which is 1 below the mean.
        {"form": "log", "mean": 1.0, "spread": 2.0},
        {"actions": [[0, 1]], "reward": [[3.0, 9.0]], "terminated": [[True, True]]},
        -(2.0 - 0.5) / 2.0 * LOW,
        (-0.75, 0.0),
    ),
    "padded after a termination": (
        {"form": "log", "mean": 1.0, "spread": 2.0},
        {
            "actions": [[0, 0]],
            "reward": [[3.0, 3.0]],
            "terminated": [[True, True]],
            "mask": [[True, False]],
        },
        -(2.0 - 0.5) / 2.0 * LOW,
        (-0.75, 0.0),
    ),
    "truncated after the first": (
        {"form": "log", "mean": 1.0, "spread": 2.0},
        {"actions": [[0, 1]], "reward": [[3.0, 9.0]], "done": [[True, True]]},
        -2.0 / 2.0 * LOW,
        (-1.0, 0.0),
    ),
    "no baseline": (
        {"form": "log", "mean": 1.0, "spread": 2.0, "baseline": "zero"},
        {"actions": [[0, 1]], "reward": [[3.0, 9.0]], "terminated": [[True, True]]},
        -1.5 * LOW,
        (-1.5, 0.0),
    ),
    "one step": (
        {"form": "log"},
        {"actions": [[1]], "reward": [[3.0]]},
        -3.0 * HIGH,
        (-3.0, 0.0),
    ),
    "imitate": (
        {"form": "imitate", "weight": 0.25},
        {"actions": [[0, 1]], "reward": [[1.0, 2.0]], "log_prob": [[-9.0, -9.0]]},
        -0.25 * (2 * LOW + HIGH),
        (-0.5, -0.25),
    ),
    "imitate, what ended badly": (
        {"form": "imitate", "mean": 1.0, "spread": 2.0},
        {"actions": [[0, 1]], "reward": [[4.0, -1.0]]},  # gains of 3/2 and -1/2
        -1.0 * LOW,
        (-1.0, 0.0),
    ),
    "imitate, what ended well": (
        {"form": "imitate"},
        {"actions": [[0, 1]], "reward": [[-3.0, 4.0]]},
        -2.0 * HIGH,
        (0.0, -2.0),
    ),
    "imitate, terminated after the first": (
        {"form": "imitate", "mean": -1.0, "spread": 2.0},
        # To have 0 from there on is 1 above the mean, and no action of this slice after it.
        {"actions": [[0, 1]], "reward": [[3.0, 9.0]], "terminated": [[True, True]]},
        -(4.0 + 0.5) / 2.0 * LOW,
        (-2.25, 0.0),
    ),
    "imitate, truncated after the first": (
        {"form": "imitate", "mean": -1.0, "spread": 2.0},
        {"actions": [[0, 1]], "reward": [[3.0, 9.0]], "done": [[True, True]]},
        -4.0 / 2.0 * LOW,
        (-2.0, 0.0),
    ),
    # gamma = 1/2; rewards are compared with V(s) - V(s') / 2, of the mean nothing is taken away
    "value": (
        {"form": "log", "baseline": "value", "mean": 0.5, "spread": 2.0},
        {
            "actions": [[0, 1]],
            "reward": [[1.0, 2.0]],
            "value": [[3.0, 4.0]],
            "next_value": [[4.0, 6.0]],
        },  # TD errors of 0 and 1
        0.5 / 2.0 * LOW - 0.25 / 2.0 * (LOW + HIGH),
        (0.125, -0.125),
    ),
    "value, terminated after the first": (
        {"form": "log", "baseline": "value", "mean": 0.5, "spread": 2.0},
        {
            "actions": [[0, 1]],
            "reward": [[5.0, 9.0]],
            "value": [[3.0, 99.0]],
            "next_value": [[40.0, 99.0]],
            "terminated": [[True, True]],
        },
        -(1.5 - 0.25) / 2.0 * LOW,
        (-0.625, 0.0),
    ),
    "value, truncated after the first": (
        {"form": "log", "baseline": "value", "mean": 0.5, "spread": 2.0},
        {
            "actions": [[0, 1]],
            "reward": [[5.0, 9.0]],
            "value": [[3.0, 99.0]],
            "next_value": [[40.0, 99.0]],
            "done": [[True, True]],
        },
        -21.5 / 2.0 * LOW,
        (-10.75, 0.0),
    ),
    "value, no number where nothing comes": (
        {"form": "ratio", "baseline": "value"},
        {
            "actions": [[0, 0]],
            "reward": [[5.0, math.nan]],
            "value": [[3.0, math.nan]],
            "next_value": [[math.nan, math.nan]],
            "terminated": [[True, True]],
            "mask": [[True, False]],
            "log_prob": [[LOW, math.nan]],
        },
        -2.0,
        (-2.0, 0.0),
    ),
    "value, imitated": (
        {"form": "imitate", "baseline": "value"},
        {
            "actions": [[0, 1]],
            "reward": [[1.0, 2.0]],
            "value": [[4.0, 4.0]],
            "next_value": [[4.0, 8.0]],
        },  # TD errors of -1 and 2, the one outweighed by half the other
        -1.0 * HIGH,
        (0.0, -1.0),
    ),
}


@pytest.mark.parametrize("case", CATEGORICAL)
def test_a_categorical_actor_by_hand(case):
    options, given, expected, (first, second) = CATEGORICAL[case]
    options = dict(options)
    mean, spread = options.pop("mean", 0.0), options.pop("spread", 1.0)
    loss, bias = coin(**options)
    out = normalised(loss, mean, spread)(slices_of(**given))
    assert list(out.keys()) == [NAME]
    assert out[NAME].shape == ()
    assert out[NAME].item() == pytest.approx(expected, rel=1e-5)
    out[NAME].backward()
    # d log pi(a) / d logits = onehot(a) - pi
    actions = given["actions"][0]
    by_hand = [0.0, 0.0]
    for slope, action in zip((first, second), actions, strict=False):
        for i, probability in enumerate((0.25, 0.75)):
            by_hand[i] += slope * ((i == action) - probability)
    assert bias.grad.tolist() == pytest.approx(by_hand, abs=1e-5)


def test_a_gaussian_actor_by_hand():
    actor, bias = silent(
        GaussianActor(observation=OBS, action_shape=(1,), log_std=math.log(2.0)), [0.5]
    )
    loss = hamiltonian_loss(actor, weight=1.0, gamma=1.0, form="log")
    out = loss(slices_of([[[1.5], [-0.5]]], reward=[[1.0, 1.0]]))[NAME]
    each = -0.5 * 0.25 - math.log(2.0) - 0.5 * LOG_2PI  # z = 1/2 and -1/2
    assert out.item() == pytest.approx(-3 * each, rel=1e-5)
    out.backward()
    # d log pi / d mu = z / sigma, d log pi / d log sigma = z^2 - 1
    assert bias.grad.item() == pytest.approx(-2 * 0.25 + 0.25, rel=1e-5)
    assert actor.log_std.grad.item() == pytest.approx(3 * 0.75, rel=1e-5)


def test_a_deterministic_actor_by_hand():
    actor, bias = silent(DeterministicActor(observation=OBS, low=[-1.0], high=[3.0]), [0.0])
    loss = hamiltonian_loss(actor, weight=1.0, form="log", sigma=0.25)
    out = loss(slices_of([[[2.0]]], reward=[[1.0]]))[NAME]
    # mu = 1 in the middle, sigma = 0.25 of half the range, 2
    assert out.item() == pytest.approx(2.0 - math.log(2.0) + 0.5 * LOG_2PI, rel=1e-5)
    out.backward()
    assert bias.grad.item() == pytest.approx(-2.0 / 0.5 * 2.0, rel=1e-5)  # dmu / du = 2 at u = 0


def test_reductions():
    given = slices_of([[0, 1], [1, 1], [0, 0]], reward=[[1.0, 2.0], [3.0, 1.0], [-1.0, 0.0]])
    each = [-(2 * LOW + HIGH), -(3 * HIGH + 0.5 * 2 * HIGH), LOW]
    for reduction, expected in (("none", each), ("sum", sum(each)), ("mean", sum(each) / 3)):
        out = coin(form="log", reduction=reduction)[0](given)
        assert out[NAME].tolist() == pytest.approx(expected, rel=1e-5)
        assert out.batch_size == out[NAME].shape
    assert coin(reduction=None)[0].reduction == "mean"


# ---- exact where every trajectory is known ------------------------------------------------------


def chain(form, mean, *, last=0.0, **options):
    """Gradients, by parameter, of the expected loss and of the K-step return.

    States have values that are right nowhere, but for the last step's next one, of ``last``.
    """
    actor = CategoricalActor(
        observation={"observation": (2,)}, choices=2, form="categorical", num_cells=(4,)
    ).to(F64)
    nn.init.normal_(actor.net.layers[-1].weight)
    every, states = every_trajectory(), torch.eye(2, dtype=F64)
    slices = TensorDict({"observation": states[every.state], "action": every.action}, [212, K])
    slices["mask"] = every.mask
    over = every.done.unsqueeze(-1)
    slices["next"] = {"reward": every.reward.unsqueeze(-1), "done": over, "terminated": over}
    values = torch.tensor([3.0, -5.0], dtype=F64)[every.state].unsqueeze(-1)
    slices["state_value"] = values
    slices["next", "state_value"] = torch.cat([values[:, 1:], values[:, :1] * 0.0 + last], 1)
    log_probs = actor.head_of(actor.output([states])).log_probs
    chosen = log_probs[every.state, every.action]
    if form == "ratio":
        slices["action_log_prob"] = chosen.detach()
    loss = hamiltonian_loss(
        actor, weight=0.5, gamma=GAMMA, form=form, reduction="none", **options
    ).to(F64)
    energy = normalised(loss, mean, 2.0)(slices)[NAME]
    chance = every.moves * (chosen * every.mask).sum(1).exp().detach()
    params = list(loss.parameters())
    found = torch.autograd.grad((chance * energy).sum(), params)
    return found, torch.autograd.grad(k_step_return(log_probs), params)


@pytest.mark.parametrize("baseline", ["mean", "value", "zero"])
@pytest.mark.parametrize("form", ["log", "ratio"])
def test_its_expectation_is_the_gradient_of_the_k_step_return(form, baseline):
    found, exact = chain(form, mean=0.9, baseline=baseline)
    for left, right in zip(found, exact, strict=True):
        assert right.abs().max() > 1e-3
        torch.testing.assert_close(left, -0.5 / 2.0 * right, atol=1e-12, rtol=1e-10)


@pytest.mark.parametrize("form", ["log", "ratio"])
def test_what_the_last_state_is_worth_is_part_of_the_return(form):
    """All that a critic has to say: were it wrong there, so would the gradient be."""
    found, exact = chain(form, mean=0.9, baseline="value", last=2.0)
    apart = [(left + 0.25 * right).abs().max() for left, right in zip(found, exact, strict=True)]
    assert max(apart) > 1e-3


def test_what_went_well_alone_has_another_expectation_than_all_of_it():
    found, exact = chain("imitate", mean=0.9)
    assert any(
        (left + 0.25 * right).abs().max() > 1e-3 for left, right in zip(found, exact, strict=True)
    )
    # Where nothing went badly they are one.
    for left, right in zip(*chain("imitate", mean=-3.0), strict=True):
        torch.testing.assert_close(left, -0.25 * right, atol=1e-12, rtol=1e-10)


# ---- every actor --------------------------------------------------------------------------------

LOWS, HIGHS = [-2.0, -1.0], [1.0, 3.0]


def factorised():
    """TorchRL's actor over independent normals, which gives a log-probability for each."""
    net = nn.Sequential(nn.Linear(4, 6), NormalParamExtractor())
    return ProbabilisticActor(
        TensorDictModule(net, in_keys=["observation"], out_keys=["loc", "scale"]),
        in_keys=["loc", "scale"],
        distribution_class=torch.distributions.Normal,
    )


ACTORS = {
    **{kind: lambda kind=kind: make_actor(kind) for kind in ("gaussian", "one_hot", "categorical")},
    "gaussian matrix": lambda: make_actor("gaussian", action_shape=(2, 3)),
    "multi": lambda: make_actor("multi"),
    "multi categorical": lambda: make_actor("multi", form="categorical"),
    "squashed": sac_cases.lean_actor,
    "squashed bounds": lambda: sac_cases.lean_actor(LOWS, HIGHS),
    "torchrl tanh": lambda: torchrl_nets()[0],
    "torchrl tanh spec": sac_cases.torchrl_actor,
    "torchrl one_hot": lambda: value_cases.torchrl_networks()[0],
    "torchrl categorical": lambda: value_cases.torchrl_networks("categorical")[0],
    "torchrl shared": lambda: sac_cases.shared_encoder()[0],
}


def point(distribution):
    """TorchRL's deterministic actor as a distribution."""
    return ProbabilisticActor(
        TensorDictModule(nn.Linear(3, 2), in_keys=["observation"], out_keys=["param"]),
        in_keys=["param"],
        distribution_class=distribution,
    )


DETERMINISTIC = {
    "torchrl delta": lambda: point(Delta),
    "torchrl tanh delta": lambda: point(TanhDelta),
    "deterministic": lambda: deterministic_cases.lean_actor(LOWS, HIGHS),
    "torchrl actor": deterministic_cases.torchrl_actor,
    "torchrl sequence": lambda: deterministic_cases.shared_encoder()[0],
}
EVERY = {**ACTORS, **DETERMINISTIC, "torchrl factorised": factorised}
EACH = pytest.mark.parametrize("kind", EVERY)
DIRECT = [kind for kind in EVERY if not kind.startswith("torchrl")]


def size_of(kind):
    four = kind.startswith(("gaussian", "one_hot", "categorical", "multi"))
    return 4 if four or kind in ("torchrl tanh", "torchrl factorised") else 3


def case(kind, **options):
    """A loss over the actor, and slices that the actor has brought."""
    actor = EVERY[kind]()
    slices = make_slices(actor, size=size_of(kind))
    for name in ("loc", "scale", "logits", "hidden", "param"):
        slices.pop(name, None)
    if kind in DETERMINISTIC:  # or there is nothing to be said of the mean
        slices["action"] += 0.1 * torch.randn_like(slices["action"])
    elif kind.startswith("squashed"):  # single precision tells little of actions at their bounds
        low, high = actor.low, actor.high
        slices["action"] = slices["action"].clamp(low + 0.05 * (high - low), high - 0.05)
    for holder in (slices, slices["next"]):
        holder["state_value"] = torch.randn(6, 4, 1)
    return hamiltonian_loss(actor, gamma=0.9, **options), slices


@pytest.mark.parametrize("kind", ACTORS)
def test_stored_actions_are_as_likely_as_the_distribution_says(kind):
    loss, slices = case(kind)
    found = stored_log_prob(loss, slices, sigma=0.1)
    expected = loss.actor_network.get_dist(slices).log_prob(slices["action"])
    assert found.shape == (6, 4)
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-5)


def test_independent_dimensions_are_as_likely_as_all_of_them_together():
    loss, slices = case("torchrl factorised")
    each = loss.actor_network.get_dist(slices).log_prob(slices["action"])
    assert each.shape == (6, 4, 3)
    torch.testing.assert_close(stored_log_prob(loss, slices, sigma=0.1), each.sum(-1))
    # Written by whoever acted it may be in parts too.
    slices["action_log_prob"] = each.detach()
    whole = slices.copy().set("action_log_prob", each.detach().sum(-1))
    for each_slices in (slices, whole):
        assert normalised(loss, 0.0, 1.0)(each_slices)[NAME].isfinite()
    assert loss(slices)[NAME] == loss(whole)[NAME]


@pytest.mark.parametrize("kind", DETERMINISTIC)
def test_a_deterministic_actor_is_read_as_a_normal(kind):
    loss, slices = case(kind)
    spread = torch.full((2,), 0.3)
    if kind == "deterministic":  # it knows its bounds, which are 3 and 4 apart
        spread = 0.3 * torch.tensor([1.5, 2.0])
    mean = loss.actor_network(slices.copy())["action"]
    normal = torch.distributions.Normal(mean, spread)
    expected = normal.log_prob(slices["action"]).sum(-1)
    torch.testing.assert_close(stored_log_prob(loss, slices, sigma=0.3), expected)


@pytest.mark.parametrize("bounds", [((-1.0, -1.0), (1.0, 1.0)), (LOWS, HIGHS)])
@pytest.mark.parametrize("beyond", [0.0, 1e-6])
def test_actions_at_their_bounds(bounds, beyond):
    low, high = (torch.tensor(bound) for bound in bounds)
    loss = hamiltonian_loss(sac_cases.lean_actor(*bounds), form="log")
    ends = torch.stack([low - beyond, high + beyond, torch.stack([low[0], high[1]])])
    actions = ends.unsqueeze(0).tolist()
    slices = slices_of(actions, reward=[[1.0, -1.0, 2.0]])
    slices["observation"] = torch.randn(1, 3, 3)
    assert stored_log_prob(loss, slices, sigma=0.1).isfinite().all()
    loss(slices)[NAME].backward()
    assert all(param.grad.isfinite().all() for param in loss.parameters())
    assert any(param.grad.any() for param in loss.parameters())


def test_a_squashed_density_is_one_over_the_whole_range():
    """Its integral between bounds that are not units is 1: the change of scale is in it."""
    actor = SquashedGaussianActor(observation=OBS, low=[-3.0], high=[5.0]).to(F64)
    loss = hamiltonian_loss(actor)
    grid = torch.linspace(-3.0, 5.0, 20_003, dtype=F64)[1:-1].reshape(1, -1, 1)
    slices = TensorDict({"observation": torch.ones_like(grid), "action": grid}, grid.shape[:2])
    density = stored_log_prob(loss, slices, sigma=0.1).exp()
    assert torch.trapezoid(density, grid.squeeze(-1)).item() == pytest.approx(1.0, abs=1e-4)


@EACH
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("baseline", ["mean", "value"])
def test_it_reaches_the_actor_and_nothing_else(kind, form, baseline):
    loss, slices = case(kind, form=form, baseline=baseline)
    if form == "ratio":
        slices["action_log_prob"] = stored_log_prob(loss, slices, sigma=0.1).detach()
    slices = slices.apply(lambda x: x.requires_grad_() if x.is_floating_point() else x)
    normalised(loss, 0.1, 1.0)(slices)[NAME].backward()
    names = [name for name, _ in loss.named_parameters()]
    assert names
    assert all(name.startswith("actor_network_params.") for name in names)
    grads = [param.grad for param in loss.parameters()]
    assert all(grad is not None and grad.isfinite().all() for grad in grads)
    assert all(grad.any() for grad in grads)
    for key in (("next", "reward"), "state_value", ("next", "state_value")):
        assert slices[key].grad is None, key
    assert not loss.scale.mean.requires_grad


@EACH
def test_at_the_policy_that_collected_ratio_and_log_have_one_gradient(kind):
    grads = []
    loss, slices = case(kind)
    slices["action_log_prob"] = stored_log_prob(loss, slices, sigma=0.1).detach()
    for form in ("ratio", "log"):
        loss.form = form
        loss.zero_grad()
        loss(slices)[NAME].backward()
        grads.append([param.grad.clone() for param in loss.parameters()])
    torch.testing.assert_close(*grads, atol=1e-5, rtol=1e-4)


# ---- copies, casts, states ----------------------------------------------------------------------


def pickled(loss):
    return pickle.loads(pickle.dumps(loss))


def doubled(loss):
    return loss.to(F64)


def reloaded(loss):
    loss.load_state_dict(deepcopy(loss.state_dict()))
    return loss


CHANGES = [lambda loss: loss, deepcopy, pickled, doubled, reloaded]


@pytest.mark.parametrize("change", CHANGES)
@EACH
def test_it_reads_the_parameters_that_an_optimiser_writes(kind, change):
    loss, slices = case(kind, form="log")
    loss = change(loss)
    if change is doubled:
        # Flags stay flags, indices indices.
        slices = slices.apply(lambda x: x.to(F64) if x.is_floating_point() else x)
    before = loss(slices)[NAME]
    before.backward()
    assert all(param.grad is not None for param in loss.parameters())
    with torch.no_grad():
        for param in loss.parameters():
            param += 0.1
    after = loss(slices)[NAME]
    assert after.item() != before.item()
    assert after.dtype == (F64 if change is doubled else torch.float32)


@pytest.mark.parametrize("copy", [deepcopy, pickled])
@EACH
def test_a_copy_is_by_itself(kind, copy):
    loss, slices = case(kind, form="log")
    loss.observe(slices)
    other = copy(loss)
    assert other(slices)[NAME] == loss(slices)[NAME]
    before = loss(slices)[NAME].item()
    with torch.no_grad():
        for param in other.parameters():
            param += 0.1
    other.observe(slices)
    assert loss(slices)[NAME].item() == before != other(slices)[NAME].item()


def test_state_dict_round_trip():
    loss, slices = case("gaussian")
    loss.observe(slices)
    other = case("gaussian")[0]
    assert other(slices)[NAME] != loss(slices)[NAME]
    other.load_state_dict(loss.state_dict())
    assert other(slices)[NAME] == loss(slices)[NAME]
    assert other.scale.mean == loss.scale.mean != 0
    assert {"scale.mean", "scale.variance", "scale.count"} <= set(loss.state_dict())


@pytest.mark.parametrize("network", [torch.float32, F64])
@pytest.mark.parametrize("rewards", [torch.float32, F64])
def test_rewards_of_another_precision_than_the_actor(network, rewards):
    loss, slices = case("gaussian")
    slices = slices.apply(lambda x: x.to(network) if x.is_floating_point() else x)
    loss = loss.to(network)
    slices["next", "reward"] = slices["next", "reward"].to(rewards)
    loss.observe(slices)
    loss(slices)[NAME].backward()
    assert all(param.grad.dtype == network for param in loss.parameters())
    assert loss.scale.mean.dtype == network


# ---- where nothing can be learnt ----------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "given",
    [
        {"reward": [[3.0, 3.0]]},  # what is always so
        {"reward": [[0.0, 0.0]]},
        {"reward": [[5.0, 1.0]], "mask": [[False, False]]},  # no steps at all
        # What the critic had expected.
        {"reward": [[1.0, 4.0]], "value": [[3.0, 4.0]], "next_value": [[4.0, 0.0]]},
    ],
)
def test_nothing_to_learn_is_zero_and_no_nan(form, given):
    loss, bias = coin(form=form, baseline="value" if "value" in given else "mean")
    slices = slices_of([[0, 1]], log_prob=[[math.log(0.5)] * 2], **given)
    loss.observe(slices)
    out = loss(slices)[NAME]
    out.backward()
    assert out.item() == 0.0
    assert not bias.grad.any()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("baseline", ["mean", "value", "zero"])
def test_what_stands_in_padding_is_of_no_consequence(form, baseline):
    given = {"log_prob": [[-0.7, -0.7, -0.7]], "reward": [[1.0, 2.0, 3.0]]}
    given |= {"value": [[3.0, 1.0, 1.0]], "next_value": [[1.0, 5.0, 5.0]]}
    results = []
    for junk in (0.0, 1e6, math.inf, math.nan):
        loss, bias = coin(form=form, baseline=baseline)
        slices = slices_of([[0, 1, 0]], mask=[[True, True, False]], **given)
        after = [("next", name) for name in ("reward", "state_value")]
        for key in ("action_log_prob", "state_value", *after):
            slices[key][0, 2] = junk
        loss.observe(slices)
        out = loss(slices)[NAME]
        out.backward()
        results.append((out.item(), bias.grad.tolist(), loss.scale.mean.item()))
    assert results == [results[0]] * 4
    assert results[0][0] != 0.0


def test_a_ratio_needs_to_know_who_acted():
    loss = coin(form="ratio")[0]
    with pytest.raises(KeyError, match="slices must hold `action_log_prob` for form='ratio'"):
        loss(slices_of([[0]], reward=[[1.0]]))


@pytest.mark.parametrize("given", [{}, {"value": [[1.0]]}, {"next_value": [[1.0]]}])
def test_to_compare_with_values_takes_both_of_a_step(given):
    loss, slices = coin(baseline="value")[0], slices_of([[0]], reward=[[1.0]], **given)
    told = "slices must hold `state_value`, in `next` too, for baseline='value'; .*baseline='mean'"
    for read in (loss, loss.observe):
        with pytest.raises(KeyError, match=told):
            read(slices)
    # Nobody else asks for them.
    assert coin(baseline="mean")[0](slices)[NAME].isfinite()


@pytest.mark.parametrize("shape", [(6,), (2, 3, 1)])
def test_other_shapes_are_refused(shape):
    loss, slices = case("gaussian")
    rows = slices.reshape(-1)[:6].reshape(*shape)
    with pytest.raises(ValueError, match=r"must have the shape \[slices, steps\], got `\["):
        loss(rows)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("weight", -1.0),
        ("gamma", 1.5),
        ("form", "power"),
        ("clip_epsilon", 0.0),
        ("clip_epsilon", 1.0),
        ("baseline", "max"),
        ("baseline", "none"),
        ("window", 0),
        ("sigma", 0.0),
        ("reduction", "avg"),
    ],
)
def test_refusals(name, value):
    with pytest.raises(ValueError, match=f"`{name}` must .*, got `{value}`"):
        coin(**{name: value})


# ---- keys ---------------------------------------------------------------------------------------


def test_in_and_out_keys():
    loss = coin()[0]
    after = [("next", "reward"), ("next", "done"), ("next", "terminated")]
    assert loss.in_keys == ["observation", "action", *after]
    assert list(loss.out_keys) == [NAME]
    values = ["state_value", ("next", "state_value")]
    assert coin(baseline="value")[0].in_keys == [*loss.in_keys, *values]
    for form, drawn in [(None, 1), ("ratio", 1), ("log", 0), ("imitate", 0)]:
        own = ["observation", "action", *["action_log_prob"] * drawn]
        for baseline in ("mean", "zero"):
            assert coin(form=form, baseline=baseline)[0].store_keys == own
        assert coin(form=form, baseline="value")[0].store_keys == [*own, *values]


def test_nested_and_renamed_keys():
    plain, slices = case("gaussian")
    plain.observe(slices)
    actor = GaussianActor(
        observation={("team", "seen"): (4,)},
        action_shape=(3,),
        num_cells=(8,),
        action_key=("team", "act"),
    )
    loss = hamiltonian_loss(actor, gamma=0.9)
    # What the actor writes is known; what the environment writes is told.
    assert loss.tensor_keys.action == ("team", "act")
    assert loss.tensor_keys.sample_log_prob == ("team", "act_log_prob")
    loss.set_keys(reward=("team", "r"), done="over", terminated=("team", "dead"), mask="real")
    loss.load_state_dict(plain.state_dict())
    renamed = TensorDict(batch_size=slices.batch_size)
    for new, old in [
        (("team", "seen"), "observation"),
        (("team", "act"), "action"),
        (("team", "act_log_prob"), "action_log_prob"),
        (("next", "team", "r"), ("next", "reward")),
        (("next", "over"), ("next", "done")),
        (("next", "team", "dead"), ("next", "terminated")),
        ("real", "mask"),
    ]:
        renamed[new] = slices[old]
    assert loss(renamed)[NAME] == plain(slices)[NAME]
    loss.observe(renamed[:3])
    plain.observe(slices[:3])
    assert loss.scale.count == plain.scale.count
    assert loss.scale.mean == plain.scale.mean != 0
    assert set(loss.in_keys) <= set(renamed.keys(True, True)) | {("next", ("team", "r"))} | {
        ("next", ("team", "dead"))
    }
    with pytest.raises(ValueError, match="not an accepted tensordict key"):
        loss.set_keys(advantage="a")


@pytest.mark.parametrize("key", ["v", ("team", "v")])
def test_values_under_another_name(key):
    plain, slices = case("gaussian", baseline="value")
    loss = hamiltonian_loss(plain.actor_network, gamma=0.9, baseline="value")
    loss.set_keys(value=key)
    assert loss.store_keys[-2:] == [key, ("next", key)]
    renamed = slices.copy()
    for holder in (renamed, renamed["next"]):
        holder[key] = holder.pop("state_value")
    for each, given in ((plain, slices), (loss, renamed)):
        each.observe(given)
    assert loss(renamed)[NAME] == plain(slices)[NAME]
    assert loss.scale.mean == plain.scale.mean != 0
    with pytest.raises(KeyError, match=r"slices must hold `.*v.*`, in `next` too"):
        loss(slices)


@pytest.mark.parametrize(
    "actor",
    [
        lambda: deterministic_cases.lean_actor(action_key="act"),
        lambda: deterministic_cases.torchrl_actor(action="act"),
        lambda: sac_cases.torchrl_actor(action="act"),
        lambda: make_actor("categorical", action_key="act"),
    ],
)
def test_where_an_actor_writes_its_action_is_known(actor):
    assert hamiltonian_loss(actor()).tensor_keys.action == "act"


@pytest.mark.parametrize("sizes", [(1, 1), (4, 3)])
def test_dispatch(sizes):
    """Slices of single tensors, with and without dimensions that look like those of a batch."""
    actor = GaussianActor(observation={"observation": sizes[:1]}, action_shape=sizes[1:])
    loss, slices = hamiltonian_loss(actor), make_slices(actor, size=sizes[0])
    slices = slices.exclude("mask", "action_log_prob")
    names = ("observation", "action")
    after = {f"next_{name}": slices["next", name] for name in ("reward", "done", "terminated")}
    found = loss(**{name: slices[name] for name in names}, **after)
    assert found == loss(slices)[NAME]


def test_dispatch_of_values():
    loss, slices = case("gaussian", form="log", baseline="value")
    slices = slices.exclude("mask")
    names = ("observation", "action", "state_value")
    after = ("reward", "done", "terminated", "state_value")
    found = loss(
        **{name: slices[name] for name in names},
        **{f"next_{name}": slices["next", name] for name in after},
    )
    assert found == loss(slices)[NAME]
    assert found != normalised(loss, 0.0, 2.0)(slices)[NAME]


def test_what_is_given_is_left_as_it_was():
    loss, slices = case("gaussian")
    kept = slices.clone()
    loss(slices)
    loss.observe(slices)
    assert set(slices.keys(True, True)) == set(kept.keys(True, True))
    assert (slices == kept).all()


# ---- nothing waits for a GPU --------------------------------------------------------------------


class NoWaiting(TorchDispatchMode):
    """Refuses what a GPU would have to be waited for."""

    WAIT = ("_local_scalar_dense", "nonzero", "is_nonzero", "masked_select", "equal")

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        index = name == "index" and any(x is not None and x.dtype == torch.bool for x in args[1])
        assert name not in self.WAIT, name
        assert not index
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("kind", DIRECT)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("baseline", ["mean", "value"])
def test_neither_loss_nor_gradient_nor_observing_waits(kind, form, baseline):
    loss, slices = case(kind, form=form, baseline=baseline)
    if form == "ratio":
        slices["action_log_prob"] = stored_log_prob(loss, slices, sigma=0.1).detach()
    with NoWaiting():
        loss.observe(slices)
        loss(slices)[NAME].backward()


@pytest.mark.parametrize("kind", DIRECT)
def test_neither_a_written_gradient_nor_its_bound_waits(kind):
    loss, slices = case(kind, form="log", weight=1.0)
    params = list(loss.parameters())
    own = [torch.full_like(param, 1e-3) for param in params]
    with NoWaiting():
        loss.backward_term(slices)
        add_bounded(params, own, 0.5)
    assert any(not torch.equal(param.grad, base) for param, base in zip(params, own, strict=True))


def test_the_check_for_waiting_finds_it():
    with NoWaiting(), pytest.raises(AssertionError):
        torch.ones(1).item()
    with NoWaiting(), pytest.raises(AssertionError):
        torch.ones(2)[torch.tensor([True, False])]


@pytest.mark.parametrize("kind", ["gaussian", "categorical", "one_hot"])
def test_shapes_alone_are_enough(kind):
    """On the meta device, where no value is ever there to be read."""
    slices = case(kind)[1].to("meta")
    with torch.device("meta"):
        loss = hamiltonian_loss(make_actor(kind), baseline="value")
    loss.observe(slices)
    out = loss(slices)[NAME]
    out.backward()
    assert out.device.type == "meta"
    assert all(param.grad is not None for param in loss.parameters())


# ---- the running scale --------------------------------------------------------------------------


def test_the_scale_is_exact_over_its_window():
    values, scale = 3 * torch.randn(500, dtype=F64) + 7, RunningScale(window=500).to(F64)
    for part in values.split(37):
        scale.observe(part, torch.ones_like(part, dtype=torch.bool))
    torch.testing.assert_close(scale.mean, values.mean())
    torch.testing.assert_close(scale.variance, values.var(correction=0))
    torch.testing.assert_close(scale.spread, values.std(correction=0))
    assert scale.count == 500


def test_the_scale_by_hand():
    scale, both = RunningScale(window=4), torch.tensor([True, True])
    assert (scale.mean.item(), scale.spread.item()) == (0.0, 1.0)
    scale.observe(torch.tensor([1.0, 3.0]), both)
    assert (scale.mean.item(), scale.variance.item(), scale.spread.item()) == (2.0, 1.0, 1.0)
    scale.observe(torch.tensor([6.0, 6.0]), both)  # 1, 3, 6, 6
    assert (scale.mean.item(), scale.variance.item()) == (4.0, 4.5)
    scale.observe(torch.tensor([0.0, 0.0]), both)  # the window is full: these have half
    assert scale.mean.item() == 2.0
    assert scale.variance.item() == 0.5 * (4.5 + 0.5 * 16.0)
    # More than the window is all there is.
    scale.observe(torch.arange(5.0), torch.ones(5, dtype=torch.bool))
    assert (scale.mean.item(), scale.variance.item()) == (2.0, 2.0)


def test_the_scale_takes_in_what_counts_alone():
    scale = RunningScale(window=100)
    scale.observe(torch.tensor([[1.0, 50.0], [3.0, -9.0]]), torch.tensor([[True, False]] * 2))
    assert (scale.mean.item(), scale.variance.item(), scale.count.item()) == (2.0, 1.0, 2.0)
    for nothing in (torch.ones(2), torch.ones(0)):
        scale.observe(nothing, torch.zeros_like(nothing, dtype=torch.bool))
        assert (scale.mean.item(), scale.variance.item(), scale.count.item()) == (2.0, 1.0, 2.0)


@pytest.mark.parametrize("value", [-5.0, 5.0, 0.0])
def test_numbers_that_are_all_one_are_measured_by_their_size(value):
    scale = RunningScale(window=100)
    scale.observe(torch.full((9,), value), torch.ones(9, dtype=torch.bool))
    assert scale.spread.item() == pytest.approx(max(0.1 * abs(value), 1e-8))


def test_rewards_after_a_termination_are_observed_and_those_that_are_not_there_are_not():
    loss = coin()[0]
    ended = slices_of([[0, 0, 0]], reward=[[3.0, 8.0, 8.0]], terminated=[[True, True, True]])
    loss.observe(ended)
    assert (loss.scale.mean.item(), loss.scale.count.item()) == (1.0, 3.0)
    loss = coin()[0]
    loss.observe(slices_of([[0, 0]], reward=[[3.0, 8.0]], done=[[True, True]]))
    assert (loss.scale.mean.item(), loss.scale.count.item()) == (3.0, 1.0)


def test_with_values_td_errors_are_what_is_observed():
    given = {
        "reward": [[3.0, 8.0, 8.0], [1.0, 2.0, 8.0]],
        "value": [[1.0, 9.0, 9.0], [2.0, 0.0, 9.0]],
        "next_value": [[9.0, 9.0, 9.0], [4.0, 6.0, 9.0]],
        "terminated": [[True, False, False], [False, False, False]],
        "done": [[True, False, False], [False, True, False]],
    }
    loss = coin(baseline="value")[0]  # gamma = 1/2
    loss.observe(slices_of([[0, 0, 0]] * 2, **given))
    # Of the first 2, and 0 twice after its termination; of the second 1 and 5, and no more.
    assert loss.scale.count == 5
    assert loss.scale.mean.item() == pytest.approx(8 / 5)
    assert loss.scale.variance.item() == pytest.approx((4 + 1 + 25) / 5 - (8 / 5) ** 2)


def test_an_old_scale_follows_what_changes():
    """After far more numbers than single precision counts by ones."""
    scale = RunningScale(window=10)
    scale.count.fill_(2.0**25)
    for _ in range(200):
        scale.observe(torch.tensor([4.0, 6.0]), torch.tensor([True, True]))
    assert scale.mean.item() == pytest.approx(5.0)
    assert scale.variance.item() == pytest.approx(1.0)


def test_a_clip_and_a_spread_are_asked_for_where_they_are_used():
    told = "`clip_epsilon` must lie in .* for a ratio, got `None`"
    for form in ("ratio", None):
        with pytest.raises(ValueError, match=told):
            coin(form=form, clip_epsilon=None)
    coin(form="log", clip_epsilon=None)
    loss, slices = case("deterministic", form="log", sigma=None)
    with pytest.raises(ValueError, match="`sigma` must be given for a deterministic actor"):
        loss(slices)
