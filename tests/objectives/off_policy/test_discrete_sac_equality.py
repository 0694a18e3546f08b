"""Our DiscreteSACLoss gives TorchRL's numbers: terms, priorities and gradients."""

from __future__ import annotations

import pytest
import torch
from tensordict import unravel_key
from torchrl.objectives import DiscreteSACLoss as TorchRLDiscreteSACLoss
from torchrl.objectives import ValueEstimators
from value_cases import (
    ACTS,
    assert_equal_losses,
    categorical_actor,
    gradients,
    make_batch,
    move_targets,
    q_network,
    torchrl_networks,
    twins,
)

from torchrl_elegant.objectives import DiscreteSACLoss

pytestmark = pytest.mark.filterwarnings("ignore:No target network updater")
FORM = pytest.mark.parametrize("form", ["one_hot", "categorical"])


def pair(form="one_hot", **options):
    options = {"action_space": form, "num_actions": ACTS, **options}
    return twins(TorchRLDiscreteSACLoss, DiscreteSACLoss, lambda: torchrl_networks(form), **options)


OPTIONS = {
    "defaults": {},
    "one critic": {"num_qvalue_nets": 1},
    "four critics": {"num_qvalue_nets": 4},
    "l2": {"loss_function": "l2"},
    "l1": {"loss_function": "l1"},
    "alpha": {"alpha_init": 0.3},
    "fixed": {"fixed_alpha": True, "alpha_init": 0.2},
    "bounds": {"min_alpha": 0.01, "max_alpha": 0.5},
    "min": {"min_alpha": 2.0},
    "weight": {"target_entropy_weight": 0.3},
    "target": {"target_entropy": 0.7},
    "target, no number": {"target_entropy": 0.7, "num_actions": None},
    "no target network": {"delay_qvalue": False},
    "sum": {"reduction": "sum"},
    "none": {"reduction": "none", "scalar_output_mode": "exclude"},
    "separate": {"separate_losses": True},
    "no vmap": {"deactivate_vmap": True},
    "no weights": {"use_prioritized_weights": False},
}


@FORM
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_options(form, options):
    theirs, ours = pair(form, **options)
    assert theirs.state_dict().keys() == ours.state_dict().keys()
    batch = make_batch(form=form)
    batch["priority_weight"] = torch.rand(24)
    assert_equal_losses(theirs, ours, batch)


@FORM
@pytest.mark.parametrize("kind", ["TD0", "TD1", "TDLambda"])
def test_value_estimators(form, kind):
    theirs, ours = pair(form)
    for loss in (theirs, ours):
        loss.make_value_estimator(ValueEstimators[kind], gamma=0.9)
    batch = make_batch(4, 5, form=form)
    batch["collector", "mask"] = torch.rand(4, 5, 1) < 0.6
    assert_equal_losses(theirs, ours, batch)


@FORM
def test_skip_done_states(form):
    theirs, ours = pair(form, skip_done_states=True)
    batch = make_batch(form=form)
    batch["next", "done"] = batch["next", "terminated"].clone()
    assert batch["next", "done"].any()
    assert_equal_losses(theirs, ours, batch)
    batch["next", "terminated"].fill_(True)
    torch.testing.assert_close(ours.qvalue_loss(batch)[1]["target"], batch["next", "reward"][:, 0])


@FORM
def test_truncated_states_that_were_not_observed_are_skipped(form):
    theirs, ours = pair(form, skip_done_states=True)
    batch = make_batch(form=form)
    after = batch["next"]
    cut = ~after["terminated"] & (torch.arange(24).unsqueeze(-1) % 2 == 0)
    assert cut.any()
    after["done"] = after["terminated"] | cut
    after["observation"][cut.squeeze(-1)] = float("nan")
    assert_equal_losses(theirs, ours, batch)


@pytest.mark.parametrize("keys_first", [True, False])
def test_nested_and_renamed_keys(keys_first):
    state, move = ("agent", "state"), ("agent", "move")
    theirs, ours = twins(
        TorchRLDiscreteSACLoss,
        DiscreteSACLoss,
        lambda: torchrl_networks("one_hot", state, move, "q"),
        action_space="one_hot",
        num_actions=ACTS,
    )
    keys = {
        "reward": ("game", "gain"),
        "done": ("flags", "over"),
        "terminated": ("flags", "dead"),
        "priority": ("buffer", "priority"),
        "priority_weight": "weight",
        "value": "v",
        "action_value": "q",
        "action": move,
    }
    for loss in (theirs, ours):
        if keys_first:
            loss.set_keys(**keys)
        loss.make_value_estimator(gamma=0.9)
        if not keys_first:
            loss.set_keys(**keys)
    batch = make_batch()
    batch.rename_key_("observation", state)
    batch.rename_key_("action", move)
    batch["next"].rename_key_("observation", state)
    for name in ("reward", "done", "terminated"):
        batch["next"].rename_key_(name, keys[name])
    batch["weight"] = torch.rand(24)
    assert_equal_losses(theirs, ours, batch)
    assert {unravel_key(key) for key in theirs.in_keys} == set(ours.in_keys)


def test_call_by_keyword():
    theirs, ours = pair()
    batch = make_batch()
    named = {
        "_".join((key,) if isinstance(key, str) else key): value
        for key, value in batch.exclude(("next", "truncated")).items(True, True)
    }
    torch.testing.assert_close(ours(**named), theirs(**named))


# ---- our networks against TorchRL's loss --------------------------------------------------------

LEAN = {
    "one": (1, {}),
    "two": (2, {}),
    "three": (3, {}),
    "l2": (2, {"loss_function": "l2"}),
    "fixed": (2, {"fixed_alpha": True, "alpha_init": 0.3}),
    "no target network": (2, {"delay_qvalue": False}),
    "sum": (2, {"reduction": "sum"}),
    "skip": (2, {"skip_done_states": True}),
}


@FORM
@pytest.mark.parametrize("dueling", [False, True])
@pytest.mark.parametrize(("members", "options"), LEAN.values(), ids=LEAN)
def test_lean_networks(form, dueling, members, options):
    ours = DiscreteSACLoss(
        categorical_actor(form), q_network(form, members, dueling=dueling), **options
    )
    move_targets(ours)
    theirs = TorchRLDiscreteSACLoss(
        categorical_actor(form),
        q_network(form, dueling=dueling),
        action_space=form,
        num_actions=ACTS,
        num_qvalue_nets=members,
        **options,
    )
    critics = ("qvalue_network_params", "target_qvalue_network_params")
    theirs.actor_network_params.data.copy_(ours.actor_network_params.data)
    for name in critics:
        if name in theirs._modules:
            stacked = getattr(ours, name).data.apply(lambda x: x.unsqueeze(1))
            getattr(theirs, name).data.copy_(stacked)
    batch = make_batch(form=form)
    batch["priority_weight"] = torch.rand(24)
    batch["next", "done"] = batch["next", "terminated"].clone()
    batch_a, batch_b = batch.clone(), batch.clone()
    expected, actual = theirs(batch_a), ours(batch_b)
    close = {"atol": 1e-5, "rtol": 1e-4}
    torch.testing.assert_close(actual.to_dict(), expected.to_dict(), **close)
    torch.testing.assert_close(batch_b["td_error"], batch_a["td_error"], **close)
    wanted, found = gradients(theirs, expected), gradients(ours, actual)
    for name, grad in wanted.items():
        grad = grad.squeeze(1) if name.startswith("qvalue") else grad
        torch.testing.assert_close(found[name], grad, msg=name, **close)
