"""TorchRL's ClipPPOLoss and ours on the same networks and rows."""

from __future__ import annotations

import pytest
import torch
from ppo_cases import (
    ACTORS,
    assert_equal_losses,
    lean_nets,
    make_actor,
    make_rollout,
    make_rows,
    make_value,
    torchrl_nets,
    twins,
)
from torchrl.modules import PopArtValueNorm
from torchrl.objectives import ClipPPOLoss as TorchRLClipPPOLoss

from torchrl_elegant.objectives import ClipPPOLoss


@pytest.fixture
def direct(monkeypatch) -> list[str]:
    """Filled whenever a loss is computed our own way."""
    calls: list[str] = []
    terms = ClipPPOLoss._terms

    def spy(self, tensordict):
        calls.append("direct")
        return terms(self, tensordict)

    monkeypatch.setattr(ClipPPOLoss, "_terms", spy)
    return calls


@pytest.mark.parametrize("kind", ACTORS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"normalize_advantage": True},
        {"loss_critic_type": "l2", "critic_coeff": 0.5},
        {"loss_critic_type": "l1"},
        {"clip_value": 0.1},
        {"clip_value": True, "clip_epsilon": 0.3, "loss_critic_type": "l2"},
        {"entropy_bonus": False},
        {"clip_epsilon": (0.1, 0.3), "entropy_coeff": 0.2},
        {"log_explained_variance": False},
    ],
    ids=str,
)
def test_every_option_of_the_short_way(direct, kind, options):
    theirs, ours = twins(lambda: lean_nets(kind), **options)
    assert_equal_losses(theirs, ours, make_rows(ours.actor_network))
    assert direct
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert list(ours.out_keys) == list(theirs.out_keys)
    assert set(ours.in_keys) == set(theirs.in_keys)


@pytest.mark.parametrize("shape", [(1,), (2,), (3, 7), (1, 7), (7, 1), (2, 3, 4)])
@pytest.mark.parametrize("normalize", [False, True])
def test_any_number_of_batch_dimensions(direct, shape, normalize):
    theirs, ours = twins(normalize_advantage=normalize, clip_value=0.2)
    assert_equal_losses(theirs, ours, make_rows(ours.actor_network, *shape))
    assert direct


def test_a_dimension_may_stay_apart_when_advantages_are_normalized(direct):
    theirs, ours = twins(normalize_advantage=True, normalize_advantage_exclude_dims=(0,))
    assert_equal_losses(theirs, ours, make_rows(ours.actor_network, 5, 6))
    assert direct


@pytest.mark.parametrize("change", ["number", "tensor", "in place", "data"])
@pytest.mark.parametrize("asymmetric", [False, True])
def test_bounds_follow_their_schedule(direct, change, asymmetric):
    theirs, ours = twins(clip_epsilon=(0.1, 0.3) if asymmetric else 0.2)
    rows = make_rows(ours.actor_network)
    names = ("clip_epsilon_low", "clip_epsilon_high") if asymmetric else ("clip_epsilon",)
    for step in range(3):
        for loss in (theirs, ours):
            for name in names:
                value, buffer = 0.05 + 0.1 * step, getattr(loss, name)
                if change == "number":
                    setattr(loss, name, value)
                elif change == "tensor":
                    setattr(loss, name, torch.tensor(value))
                elif change == "in place":
                    buffer.fill_(value)
                else:
                    buffer.data.fill_(value)
        assert_equal_losses(theirs, ours, rows)
    assert direct


def test_coefficients_follow_their_schedule(direct):
    theirs, ours = twins()
    rows = make_rows(ours.actor_network)
    for loss in (theirs, ours):
        loss.entropy_coeff = 0.7
        loss.critic_coeff = 0.3
    assert_equal_losses(theirs, ours, rows)
    assert direct


@pytest.mark.parametrize(
    "options",
    [
        {"delay_actor": True},
        {"max_importance_ratio": 1.1},
        {"separate_losses": True},
        {"reduction": "sum"},
        {"reduction": "none"},
        {"functional": False},
        {"critic_coeff": 0.0},
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:No target network updater", "ignore:.*delay_actor")
def test_options_beyond_the_short_way_are_torchrls(direct, options):
    theirs, ours = twins(**options)
    assert_equal_losses(theirs, ours, make_rows(ours.actor_network, 5, 6))
    assert direct == []


def test_coefficients_by_head_are_torchrls_business(direct):
    # It has none for an action of one head, and says so: nothing is left out in silence.
    for loss in twins(entropy_coeff={"action": 0.1}):
        with pytest.raises(AttributeError, match="items"):
            loss(make_rows(loss.actor_network))
    assert direct == []


def test_options_changed_afterwards_count(direct):
    theirs, ours = twins()
    rows = make_rows(ours.actor_network, 5, 6)
    for name, value in (
        ("reduction", "sum"),
        ("normalize_advantage", True),
        ("normalize_advantage_exclude_dims", (0,)),
        ("separate_losses", True),
    ):
        for loss in (theirs, ours):
            setattr(loss, name, value)
        assert_equal_losses(theirs, ours, rows)
    assert direct == []


def test_a_norm_of_advantages_is_torchrls(direct):
    norms = [PopArtValueNorm(shape=1), PopArtValueNorm(shape=1)]
    actor, critic = lean_nets()
    theirs = TorchRLClipPPOLoss(actor, critic, advantage_norm=norms[0])
    ours = ClipPPOLoss(actor, critic, advantage_norm=norms[1])
    assert_equal_losses(theirs, ours, make_rows(actor))
    assert direct == []


@pytest.mark.parametrize("key", [("collector", "mask"), "shifted_valid"])
def test_masked_rows_are_torchrls(direct, key):
    theirs, ours = twins(normalize_advantage=True)
    rows = make_rows(ours.actor_network)
    rows[key] = torch.rand(40) < 0.7
    assert_equal_losses(theirs, ours, rows)
    unmasked = ours(rows.exclude(key))["loss_objective"]
    assert not torch.allclose(unmasked, ours(rows)["loss_objective"])
    assert len(direct) == 1


@pytest.mark.parametrize("options", [{}, {"normalize_advantage": True, "clip_value": 0.2}])
def test_torchrls_networks_go_torchrls_way(direct, options):
    theirs, ours = twins(torchrl_nets, **options)
    # Its entropy is estimated from samples.
    for loss in (theirs, ours):
        loss.entropy_bonus = False
    rows = make_rows(ours.actor_network)
    rows["action"] = rows["action"].clamp(-0.9, 0.9)
    assert_equal_losses(theirs, ours, rows)
    assert direct == []
    terms = ours.update_terms(rows)
    assert set(terms) == {"loss_objective", "loss_critic"}


def test_a_missing_advantage_is_computed(direct):
    theirs, ours = twins()
    rollout = make_rollout(make_actor(), 3, 9)
    for loss in (theirs, ours):
        loss.make_value_estimator(gamma=0.9, lmbda=0.7)
    assert_equal_losses(theirs, ours, rollout)
    assert "advantage" not in rollout
    assert direct == []
    # And by default settings too.
    assert_equal_losses(*twins(), rollout)


@pytest.mark.parametrize("name", ["action_log_prob", "value_target", "state_value"])
def test_what_is_missing_is_told_as_by_torchrl(name):
    theirs, ours = twins(clip_value=0.2)
    rows = make_rows(ours.actor_network).exclude(name)
    messages = []
    for loss in (theirs, ours):
        with pytest.raises((KeyError, RuntimeError)) as caught:
            loss(rows.clone())
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


@pytest.mark.parametrize("name", ["advantage", "value_target", "state_value", "action_log_prob"])
def test_entries_that_would_pair_all_rows_are_refused(name):
    theirs, ours = twins(clip_value=0.2)
    rows = make_rows(ours.actor_network)
    wide = rows[name].ndim == 2
    rows[name] = rows[name].squeeze(-1) if wide else rows[name].unsqueeze(-1)
    for call in (ours, ours.update_terms):
        with pytest.raises((ValueError, RuntimeError), match="shape"):
            call(rows.clone())
    if name == "action_log_prob":
        # There TorchRL takes the mean over all pairs.
        assert theirs(rows)["loss_objective"].isfinite()
    else:
        with pytest.raises((ValueError, RuntimeError), match="shape"):
            theirs(rows)


def test_several_advantages_of_a_row_are_torchrls(direct):
    theirs, ours = twins()
    rows = make_rows(ours.actor_network, 3)
    rows["advantage"] = torch.randn(3, 3)
    assert_equal_losses(theirs, ours, rows)
    assert direct == []


def test_a_log_prob_that_still_learns_is_refused():
    ours = ClipPPOLoss(*lean_nets())
    rows = make_rows(ours.actor_network)
    rows.update(ours.actor_network(rows.select("observation")))
    # The ratio would be one whatever the policy did, and nothing would be learnt.
    with pytest.raises(RuntimeError, match="action_log_prob requires grad"):
        ours(rows)
    with pytest.raises(RuntimeError, match="action_log_prob requires grad"):
        ours.update_terms(rows)


def test_rows_without_a_batch_size_are_torchrls(direct):
    theirs, ours = twins()
    rows = make_rows(ours.actor_network)
    rows.batch_size = []
    expected, found = theirs(rows), ours(rows)
    torch.testing.assert_close(found.to_dict(), expected.to_dict())
    assert direct == []


def test_entries_may_be_given_one_by_one():
    theirs, ours = twins()
    rollout = make_rollout(ours.actor_network, 9)
    given = {name: rollout[name] for name in ("observation", "action", "action_log_prob")}
    given |= {f"next_{name}": value for name, value in rollout["next"].items()}
    torch.testing.assert_close(ours(**given), theirs(**given))


def test_renamed_and_nested_keys(direct):
    actor = make_actor(observation={("obs", "x"): (4,)}, action_key=("agent", "act"))
    critic = make_value({("obs", "x"): (4,)}, value_key=("critic", "v"))
    theirs, ours = twins(lambda: (actor, critic), clip_value=0.2)
    assert ours.tensor_keys.sample_log_prob == ("agent", "act_log_prob")
    rows = make_rows(make_actor())
    renamed = {
        "observation": ("obs", "x"),
        "action": ("agent", "act"),
        "action_log_prob": ("agent", "act_log_prob"),
        "advantage": ("ppo", "adv"),
        "value_target": ("ppo", "target"),
        "state_value": ("critic", "v"),
    }
    for old, new in renamed.items():
        rows.rename_key_(old, new)
    for loss in (theirs, ours):
        loss.set_keys(
            advantage=("ppo", "adv"), value_target=("ppo", "target"), value=("critic", "v")
        )
    assert_equal_losses(theirs, ours, rows)
    assert direct
    assert set(ours.row_keys) == set(renamed.values())


def test_double_precision(direct):
    theirs, ours = (loss.double() for loss in twins(clip_value=0.2, normalize_advantage=True))
    rows = make_rows(make_actor()).double()
    assert_equal_losses(theirs, ours, rows, atol=1e-9)
    assert ours(rows)["loss_objective"].dtype == torch.double
    assert direct
