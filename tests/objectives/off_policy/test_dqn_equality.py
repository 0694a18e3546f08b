"""Our DQNLoss gives TorchRL's numbers: loss, priorities and gradients."""

from __future__ import annotations

import pytest
import torch
from tensordict import unravel_key
from tensordict.nn import TensorDictModule, TensorDictSequential
from torch import nn
from torchrl.data.postprocs import MultiStep
from torchrl.modules import LSTMModule, QValueModule
from torchrl.objectives import DQNLoss as TorchRLDQNLoss
from torchrl.objectives import ValueEstimators
from torchrl.objectives.value import TD0Estimator
from value_cases import (
    ACTS,
    CELLS,
    OBS,
    assert_equal_losses,
    make_batch,
    move_targets,
    perceptron,
    q_network,
    q_value_actor,
    twins,
)

from torchrl_elegant.objectives import DQNLoss

pytestmark = pytest.mark.filterwarnings("ignore:No target network updater")

FORMS = ("one_hot", "categorical")
NETS = {
    **{f"lean {form}": (q_network, form) for form in FORMS},
    **{f"torchrl {form}": (q_value_actor, form) for form in (*FORMS, "mult_one_hot")},
}
NETWORKS = pytest.mark.parametrize(("make", "form"), NETS.values(), ids=NETS)
DOUBLE = pytest.mark.parametrize("double", [False, True], ids=["single", "double"])


def pair(make, form, **options):
    options.setdefault("action_space", form)
    return twins(TorchRLDQNLoss, DQNLoss, lambda: (make(form),), **options)


OPTIONS = {
    "defaults": {},
    "l1": {"loss_function": "l1"},
    "smooth_l1": {"loss_function": "smooth_l1"},
    "sum": {"reduction": "sum"},
    "none": {"reduction": "none"},
    "no weights": {"use_prioritized_weights": False},
}


@NETWORKS
@DOUBLE
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_options(make, form, double, options):
    theirs, ours = pair(make, form, double_dqn=double, **options)
    assert theirs.state_dict().keys() == ours.state_dict().keys()
    batch = make_batch(form=form)
    batch["priority_weight"] = torch.rand(24)
    assert_equal_losses(theirs, ours, batch)


@NETWORKS
def test_no_target_network(make, form):
    assert_equal_losses(*pair(make, form, delay_value=False), make_batch(form=form))


@NETWORKS
@DOUBLE
def test_weights_count(make, form, double):
    theirs, ours = pair(make, form, double_dqn=double)
    batch = make_batch(form=form)
    plain = ours(batch.clone())["loss"]
    batch["priority_weight"] = torch.rand(24)
    assert_equal_losses(theirs, ours, batch)
    assert not torch.allclose(ours(batch)["loss"], plain)


@NETWORKS
@DOUBLE
@pytest.mark.parametrize("kind", ["TD0", "TD1", "TDLambda"])
def test_value_estimators(make, form, double, kind):
    theirs, ours = pair(make, form, double_dqn=double)
    for loss in (theirs, ours):
        loss.make_value_estimator(ValueEstimators[kind], gamma=0.9)
    assert_equal_losses(theirs, ours, make_batch(4, 5, form=form))


@pytest.mark.parametrize("kind", ["GAE", "VTrace"])
def test_unsupported_value_estimators(kind):
    with pytest.raises(NotImplementedError):
        DQNLoss(q_network()).make_value_estimator(ValueEstimators[kind])


def test_value_estimator_as_class():
    theirs, ours = pair(q_value_actor, "one_hot", double_dqn=True)
    for loss in (theirs, ours):
        loss.make_value_estimator(TD0Estimator, gamma=0.8, value_network=None, average_rewards=True)
    assert_equal_losses(theirs, ours, make_batch())


@NETWORKS
@DOUBLE
@pytest.mark.parametrize("key", [("collector", "mask"), "shifted_valid"])
def test_masks(make, form, double, key):
    theirs, ours = pair(make, form, double_dqn=double)
    batch = make_batch(4, 5, form=form)
    batch[key] = torch.rand(4, 5, 1) < 0.6
    assert_equal_losses(theirs, ours, batch)


@DOUBLE
def test_n_step_returns(double):
    theirs, ours = pair(q_network, "one_hot", double_dqn=double)
    for loss in (theirs, ours):
        loss.make_value_estimator(gamma=0.9)
    batch = make_batch(4, 6)
    batch["collector", "mask"] = torch.ones(4, 6, dtype=torch.bool)
    batch = MultiStep(gamma=0.9, n_steps=3)(batch).reshape(-1)
    assert "steps_to_next_obs" in batch
    assert_equal_losses(theirs, ours, batch)


KEYS = {
    "reward": ("game", "gain"),
    "done": ("flags", "over"),
    "terminated": ("flags", "dead"),
    "priority": ("buffer", "priority"),
    "priority_weight": "weight",
}


@DOUBLE
@pytest.mark.parametrize("lean", [True, False])
@pytest.mark.parametrize("kind", ["TD0", "TDLambda"])
@pytest.mark.parametrize("keys_first", [True, False])
def test_nested_and_renamed_keys(double, lean, kind, keys_first):
    state, move = ("agent", "state"), ("agent", "action")
    if lean:
        theirs, ours = twins(
            TorchRLDQNLoss,
            DQNLoss,
            lambda: (q_network(observation={state: (OBS,)}, action_key=move),),
            double_dqn=double,
            action_space="one_hot",
        )
        keys = {**KEYS, "action": move}
    else:
        names = {"action_value": "q", "value": "best"}
        theirs, ours = twins(
            TorchRLDQNLoss,
            DQNLoss,
            lambda: (
                q_value_actor(
                    observation=state,
                    action_key=move,
                    action_value_key="q",
                    chosen_action_value_key="best",
                ),
            ),
            double_dqn=double,
            action_space="one_hot",
        )
        keys = {**KEYS, "action": move}
        for loss in (theirs, ours):  # TorchRL's estimator looks for them in the network
            loss.set_keys(**names)
    for loss in (theirs, ours):
        if keys_first:
            loss.set_keys(**keys)
        loss.make_value_estimator(ValueEstimators[kind], gamma=0.9)
        if not keys_first:
            loss.set_keys(**keys)
    batch = make_batch()
    batch.rename_key_("observation", state)
    batch.rename_key_("action", move)
    batch["next"].rename_key_("observation", state)
    for name in ("reward", "done", "terminated"):
        batch["next"].rename_key_(name, KEYS[name])
    batch["weight"] = torch.rand(24)
    assert_equal_losses(theirs, ours, batch)
    assert {unravel_key(key) for key in theirs.in_keys} == set(ours.in_keys)


@pytest.mark.parametrize("kind", ["TD0", "TD1", "TDLambda"])
def test_estimators_write_where_the_loss_says(kind):
    for loss in twins(TorchRLDQNLoss, DQNLoss, lambda: (q_value_actor(),)):
        loss.set_keys(advantage="gain", value_target=("value", "goal"))
        loss.make_value_estimator(ValueEstimators[kind])
        keys = loss.value_estimator.tensor_keys
        assert (keys.advantage, keys.value_target) == ("gain", ("value", "goal"))


def test_unknown_key():
    with pytest.raises(ValueError, match="not an accepted"):
        DQNLoss(q_network()).set_keys(rewrad="reward")


@NETWORKS
def test_call_by_keyword(make, form):
    theirs, ours = pair(make, form)
    batch = make_batch(form=form)
    named = {
        "_".join((key,) if isinstance(key, str) else key): value
        for key, value in batch.exclude(("next", "truncated")).items(True, True)
    }
    torch.testing.assert_close(ours(**named), theirs(**named))


@DOUBLE
def test_a_plain_module(double):
    """A plain module is made an actor, as in TorchRL."""
    theirs, ours = twins(
        TorchRLDQNLoss,
        DQNLoss,
        lambda: (perceptron(),),
        double_dqn=double,
        action_space="categorical",
    )
    assert_equal_losses(theirs, ours, make_batch(form="categorical"))


def test_indices_may_have_a_column():
    ours = pair(q_network, "categorical")[1]
    batch = make_batch(form="categorical")
    expected = ours(batch.clone())
    batch["action"] = batch["action"].unsqueeze(-1)
    torch.testing.assert_close(ours(batch)["loss"], expected["loss"])


@DOUBLE
@pytest.mark.parametrize("dueling", [False, True])
def test_state_dicts_go_both_ways(double, dueling):
    def make():
        return q_network(dueling=dueling)

    theirs = TorchRLDQNLoss(make(), double_dqn=double, action_space="one_hot")
    ours = DQNLoss(make(), double_dqn=double)
    move_targets(ours)
    _ = ours.value_estimator, theirs.value_estimator
    theirs.load_state_dict(ours.state_dict())
    assert_equal_losses(theirs, ours, make_batch())
    other = DQNLoss(make(), double_dqn=double)  # one that was never called
    other.load_state_dict(theirs.state_dict())
    assert_equal_losses(theirs, other, make_batch())


def test_what_the_network_says_of_its_actions():
    for form in FORMS:
        assert DQNLoss(q_network(form)).action_space == form
        assert DQNLoss(q_value_actor(form)).action_space == form
    with pytest.raises(ValueError):
        DQNLoss(perceptron())


# ---- recurrent networks -------------------------------------------------------------------------

STATES = ("state_h", "state_c")


def recurrent() -> tuple[TensorDictSequential]:
    lstm = LSTMModule(
        OBS,
        CELLS,
        in_keys=["observation", *STATES],
        out_keys=["hidden", *[("next", name) for name in STATES]],
        python_based=True,
    )
    head = TensorDictModule(nn.Linear(CELLS, ACTS), ["hidden"], ["action_value"])
    return (TensorDictSequential(lstm, head, QValueModule(action_space="one_hot")),)


def sequences(count: int, steps: int):
    """Sequences that begin anywhere, with the recurrent states of an older policy."""
    batch = make_batch(count, steps)
    for place in (batch, batch["next"]):
        place["is_init"] = torch.zeros(count, steps, 1, dtype=torch.bool)
        for name in STATES:
            place[name] = torch.randn(count, steps, 1, CELLS)
    return batch


@DOUBLE
def test_recurrent_network_starts_next_steps_where_the_online_pass_has_come_to(double):
    theirs, ours = twins(
        TorchRLDQNLoss, DQNLoss, recurrent, double_dqn=double, action_space="one_hot"
    )
    batch = sequences(4, 5)
    stored = batch["next"].clone()
    assert_equal_losses(theirs, ours, batch)
    expected = ours(batch.clone())["loss"]
    assert torch.equal(batch["next", "state_h"], stored["state_h"])  # no pass writes into it
    for name in STATES:
        batch["next", name] = torch.randn(4, 5, 1, CELLS)
    assert torch.equal(ours(batch)["loss"], expected)
