"""Networks of others: called as this package's, and refused where they do not fit."""

from __future__ import annotations

import foreign_cases as cases
import masked_toys
import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule, TensorDictSequential
from torch import nn
from torchrl.modules import (
    MaskedOneHotCategorical,
    OneHotCategorical,
    ProbabilisticActor,
    QValueActor,
    ValueOperator,
)

from torchrl_elegant.algorithms import DQNConfig
from torchrl_elegant.envs import make_env
from torchrl_elegant.modules import (
    EpsilonGreedyActor,
    ForeignActor,
    NoSpecification,
    build_actor,
    build_deterministic_actor,
    fit_actor,
    fit_critic,
    fit_q_network,
    fit_value,
    trained,
)

VALUES = ["action_value"]
PENDULUM, CART = make_env("Pendulum-v1"), make_env("CartPole-v1")


def module(net, reads=("observation",), writes=("action",)):
    return TensorDictModule(net, list(reads), list(writes))


@pytest.mark.parametrize("kind", ["sampling", "rollout", "deterministic"])
def test_calls_on_tensors_are_calls_on_tensordicts(kind):
    actor = fit_actor(nn.Linear(3, 1 if kind == "deterministic" else 2), PENDULUM, kind=kind)
    data = TensorDict({"observation": torch.randn(2, 5, 3)}, [2, 5])
    torch.manual_seed(3)
    called = actor(data.copy())
    torch.manual_seed(3)
    acted = actor.act(data["observation"])
    acted = acted if isinstance(acted, tuple) else (acted,)
    assert len(actor.out_keys) == (2 if kind == "rollout" else 1)
    for key, value in zip(actor.out_keys, acted, strict=True):
        torch.testing.assert_close(called[key], value)
    bounded = acted[0].abs().max() <= 1
    assert bounded or kind == "rollout"


def test_own_actors_stay_as_they_are():
    actor = build_actor(PENDULUM, num_cells=(8,))
    assert fit_actor(actor, PENDULUM, kind="sampling") is actor
    assert trained(actor) is actor
    with pytest.raises(ValueError, match="`actor` must give a distribution, got `DeterministicA"):
        fit_actor(build_deterministic_actor(PENDULUM), PENDULUM, kind="sampling")


def test_the_loss_trains_the_network_itself():
    network = cases.stochastic()
    actor = fit_actor(network, PENDULUM, kind="sampling")
    assert isinstance(actor, ForeignActor)
    assert trained(actor) is network
    with pytest.raises(NoSpecification):
        actor.spec_dict()


def test_a_lazy_network_is_filled_in():
    actor = fit_actor(nn.LazyLinear(2), PENDULUM, kind="sampling")
    assert [tuple(p.shape) for p in actor.parameters()] == [(2, 3), (2,)]


def test_a_check_leaves_modes_and_statistics_alone():
    net = nn.Sequential(nn.Linear(4, 1), nn.BatchNorm1d(1))
    net[0].eval()
    reads = nn.Sequential(nn.Identity(), net)
    reads.forward = lambda seen, action: net(torch.cat([seen, action], -1))
    fit_critic(reads, PENDULUM)
    assert [part.training for part in net] == [False, True]
    assert net[1].num_batches_tracked == 0


@pytest.mark.parametrize(
    "fit",
    [
        lambda net, env: fit_actor(net, env, kind="rollout"),
        lambda net, env: fit_value(nn.Sequential(net, nn.Linear(2, 1)), env),
        lambda net, env: DQNConfig(networks={"critic": net}).build(env),
    ],
    ids=["actor", "value", "dqn"],
)
def test_batch_normalization_is_refused_where_single_rows_are_seen(fit):
    net = nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2))
    with pytest.raises(ValueError, match=r"must not normalize over a batch, .* use nn\.LayerNorm"):
        fit(net, CART)
    fit(net.eval(), CART)


NO_ENTRY = (
    r"must read entries .* \['observation'.*\(reads \['state'\], writes \['action'\]\); `state`"
)
WRONG = [
    (fit_actor, module(nn.Linear(3, 1), ["state"]), {"kind": "deterministic"}, NO_ENTRY),
    (
        fit_actor,
        module(nn.Linear(3, 2)),
        {"kind": "deterministic"},
        r"`actor` must write `action` of shape \(1,\), got shape \(2,\) from `TensorDictModule`",
    ),
    (
        fit_actor,
        module(nn.Linear(3, 1), writes=["move"]),
        {"kind": "deterministic"},
        r"must write `action` of shape \(1,\), got nothing from .*writes \['move'\]",
    ),
    (
        fit_actor,
        nn.Linear(4, 2),
        {"kind": "sampling"},
        r"must run on the environment's entries, observation \(3,\), got .* failed: mat1 and mat2",
    ),
    (
        fit_actor,
        module(nn.Linear(3, 1)),
        {"kind": "sampling"},
        "`actor` must give a distribution, got `TensorDictModule`.*ProbabilisticActor",
    ),
    (fit_actor, cases.stochastic(), {"kind": "rollout"}, "pass return_log_prob=True"),
    (
        fit_actor,
        cases.stochastic(),
        {"kind": "sampling", "in_keys": ["observation"]},
        "`actor_keys` must be none where the actor names its own keys",
    ),
    (fit_actor, lambda x: x, {"kind": "sampling"}, "`actor` must be an nn.Module, got `function`"),
    (
        fit_actor,
        nn.Linear(3, 1),
        {"kind": "sampling"},
        r"`actor` \(Linear\) must give 2 numbers for 1 action \(mean and raw spread\), got 1$",
    ),
    (
        fit_critic,
        nn.Linear(3, 1),
        {},
        r"`critic` must run on .* got `Linear`, which failed: .* but 3 were given; it is called "
        "with `observation` and `action`, and gives one value",
    ),
    (
        fit_critic,
        nn.Bilinear(3, 1, 2),
        {},
        r"`critic` \(Bilinear\) must give one value, got 2$",
    ),
    (fit_critic, cases.value(None), {}, "`critic` must read the action `action`"),
    (
        fit_critic,
        ValueOperator(nn.Linear(3, 1), ["action"]),
        {},
        r"`critic` must run on .* action \(1,\)",
    ),
    (fit_value, nn.Linear(3, 2), {}, r"must write `state_value` of shape \(1,\), got shape \(2,\)"),
    (
        fit_q_network,
        nn.Linear(3, 2),
        {},
        "`critic` must value one choice among several, got `Bounded",
    ),
]


@pytest.mark.parametrize(("fit", "network", "options", "message"), WRONG)
def test_what_does_not_fit_is_named(fit, network, options, message):
    with pytest.raises(ValueError, match=message):
        fit(network, PENDULUM, **options)


def test_values_of_another_number_of_choices_are_named():
    with pytest.raises(ValueError, match=r"must write `action_value` of shape \(2,\), got shape"):
        fit_q_network(nn.Linear(4, 3), CART)


def test_noise_keeps_to_the_bounds():
    actor = fit_actor(nn.Linear(3, 1), PENDULUM, kind="deterministic")
    assert actor.clip(torch.tensor([[3.0], [-0.5]])).tolist() == [[1.0], [-0.5]]


def test_a_plain_actor_is_refused_where_actions_are_masked():
    env = make_env(masked_toys.Doors)
    with pytest.raises(ValueError, match=r"among the actions that 'action_mask' allows"):
        fit_actor(nn.Linear(2, 4), env, kind="rollout")


class Prefers(nn.Module):
    """Values the actions 3, 2, 1, 0 in this order, or the other way round what the mask allows."""

    def forward(self, seen, mask=None):
        order = torch.arange(4.0).expand(*seen.shape[:-1], 4)
        return order if mask is None else -order


@pytest.mark.parametrize(
    ("network", "best"),
    [
        (Prefers(), [2, 3]),
        (module(Prefers(), ["seen"], ["action_value"]), [2, 3]),
        (QValueActor(Prefers(), in_keys=["seen"], action_space="one_hot"), [2, 3]),
        (module(Prefers(), ["seen", "action_mask"], ["action_value"]), [0, 0]),
    ],
    ids=["plain", "keyed", "QValueActor", "reads the mask"],
)
def test_values_of_forbidden_actions_are_replaced(network, best):
    fitted = fit_q_network(network, make_env(masked_toys.Doors))
    # Where none is allowed, as at the end of a game, all are.
    mask = torch.tensor([[1, 0, 1, 0], [0, 0, 0, 0]])
    rows = {"seen": torch.zeros(2, 2), "action_mask": mask}
    values = fitted.mean_values([rows[key] for key in fitted.in_keys])
    assert values.argmax(-1).tolist() == best
    assert values.isfinite().all()
    assert (values < -1e6).tolist() == [[False, True, False, True], [False] * 4]
    greedy = fitted.network(TensorDict(rows, [2]))
    assert greedy["action"].argmax(-1).tolist() == best
    torch.testing.assert_close(greedy["chosen_action_value"][:, 0], values.amax(-1))


def test_random_actions_of_a_masked_network_are_allowed_wherever_it_reads_the_mask():
    network = TensorDictModule(lambda mask, seen: Prefers()(seen), ["action_mask", "seen"], VALUES)
    actor = EpsilonGreedyActor(fit_q_network(network, make_env(masked_toys.Doors)), epsilon=1.0)
    assert actor.in_keys == ["action_mask", "seen"]
    mask = torch.tensor([0, 1, 0, 1]).expand(200, 4)
    drawn = actor.act(mask, torch.zeros(200, 2)).sum(0)
    assert drawn[[0, 2]].tolist() == [0, 0]
    assert drawn[[1, 3]].min() > 50


def masked_actor(reads):
    """A law that reads the mask, or one that leaves it out."""
    return ProbabilisticActor(
        TensorDictSequential(
            module(nn.Linear(2, 4), ["seen"], ["logits"]),
            *(module(torch.Tensor.bool, [entry], ["allowed"]) for entry in reads),
        ),
        in_keys={"logits": "logits", "mask": "allowed"} if reads else ["logits"],
        distribution_class=MaskedOneHotCategorical if reads else OneHotCategorical,
        return_log_prob=True,
    )


def test_a_module_with_keys_must_read_the_mask():
    env = make_env(masked_toys.Doors)
    with pytest.raises(ValueError, match=r"among the actions that 'action_mask' allows"):
        fit_actor(masked_actor([]), env, kind="rollout")
    actor = fit_actor(masked_actor(["action_mask"]), env, kind="rollout")
    only = torch.eye(4, dtype=torch.bool)
    data = actor(TensorDict({"seen": torch.zeros(4, 2), "action_mask": only}, [4]))
    assert torch.equal(data["action"].bool(), only)
