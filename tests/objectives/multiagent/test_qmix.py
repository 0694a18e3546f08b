"""QMIX and VDN: against TorchRL, by hand, and on games whose answer is known."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torch import nn
from torchrl.modules import QValueModule, SafeSequential
from torchrl.modules.models import multiagent
from torchrl.objectives import SoftUpdate, ValueEstimators
from torchrl.objectives.multiagent import QMixerLoss

from torchrl_elegant.modules.multiagent import QMixer
from torchrl_elegant.objectives.multiagent import QMixLoss

AGENTS, SEEN, CHOICES, ROWS = 3, 5, 4, 6
CATEGORICAL = {"action_space": "categorical"}
LOCAL = ("agents", "chosen_action_value")


def local_network(group="agents", action_space="categorical", seen=SEEN, choices=CHOICES):
    out = [(group, name) for name in ("action", "action_value", "chosen_action_value")]
    values = TensorDictModule(nn.Linear(seen, choices), [(group, "observation")], [out[1]])
    choice = QValueModule(action_space=action_space, action_value_key=out[1], out_keys=out)
    return SafeSequential(values, choice)


def mixer_of(kind, group="agents", out="chosen_action_value"):
    values = (group, "chosen_action_value")
    if kind == "vdn":
        mixer = multiagent.VDNMixer(n_agents=AGENTS, device="cpu")
        return TensorDictModule(mixer, [values], [out])
    mixer = QMixer(state_shape=(2, 3), n_agents=AGENTS, mixing_embed_dim=8)
    return TensorDictModule(mixer, [values, "state"], [out])


def batch(*shape, group="agents", action_space="categorical", reward="reward"):
    def step():
        seen = torch.randn(*shape, AGENTS, SEEN)
        agents = TensorDict({"observation": seen}, [*shape, AGENTS])
        return {group: agents, "state": torch.randn(*shape, 2, 3)}

    action = torch.randint(CHOICES, (*shape, AGENTS))
    if action_space == "one-hot":
        action = nn.functional.one_hot(action, CHOICES)
    now = step()
    now[group].set("action", action)
    terminated = torch.rand(*shape, 1) < 0.3
    done = terminated | (torch.rand(*shape, 1) < 0.3)
    after = {**step(), reward: torch.randn(*shape, 1), "done": done, "terminated": terminated}
    return TensorDict({**now, "next": TensorDict(after, shape)}, shape)


def gradients(loss):
    return {name: p.grad for name, p in loss.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("action_space", ["categorical", "one-hot"])
@pytest.mark.parametrize("estimator", [None, ValueEstimators.TDLambda, ValueEstimators.TD1])
@pytest.mark.parametrize("kind", ["vdn", "qmix"])
def test_loss_and_gradients_are_those_of_torchrl(kind, estimator, action_space):
    torch.manual_seed(0)
    local, mixer = local_network(action_space=action_space), mixer_of(kind)
    theirs = QMixerLoss(local, mixer, action_space=action_space)
    ours = QMixLoss(local, mixer, action_space=action_space)
    for loss in (ours, theirs):
        loss.make_value_estimator(estimator, gamma=0.9)
        torch.manual_seed(1)
        for target in loss.target_local_value_network_params.values(True, True):
            target.data.normal_()
        for target in loss.target_mixer_network_params.values(True, True):
            target.data.normal_()
    data = batch(ROWS, 7, action_space=action_space)
    found = []
    for loss in (ours, theirs):
        local.zero_grad()
        mixer.zero_grad()
        shown = data.clone()
        value = loss(shown)["loss"]
        value.backward()
        found.append((value.detach(), gradients(loss), shown["td_error"].squeeze(-1)))
    (one, grads, error), (two, other, squared) = found
    torch.testing.assert_close(one, two)
    torch.testing.assert_close(error.square(), squared)
    assert grads.keys() == other.keys()
    for name in grads:
        torch.testing.assert_close(grads[name], other[name])


def by_hand(loss, data, double):
    """The target of plain Q-learning, in a loop over rows."""
    gamma, targets = 0.9, []
    local, slow = loss.local_value_network_params, loss.target_local_value_network_params
    for row in data.unbind(0):
        seen = row["next", "agents", "observation"]
        values, online = (
            seen @ params["module", "0", "module", "weight"].T
            + params["module", "0", "module", "bias"]
            for params in (slow, local)
        )
        action = (online if double else values).argmax(-1)
        best = values[torch.arange(AGENTS), action]
        with loss.target_mixer_network_params.to_module(loss.mixer_network):
            total = loss.mixer_network.module(best.unsqueeze(-1), row["next", "state"])
        alive = 1.0 - row["next", "terminated"].float()
        targets.append(row["next", "reward"] + gamma * alive * total)
    return torch.cat(targets).detach()


@pytest.mark.filterwarnings("ignore:No target network updater")
@pytest.mark.parametrize("double", [False, True])
def test_the_error_is_that_of_a_loop_over_rows(double):
    torch.manual_seed(0)
    loss = QMixLoss(local_network(), mixer_of("qmix"), **CATEGORICAL, double_dqn=double)
    loss.make_value_estimator(gamma=0.9)
    for target in loss.target_local_value_network_params.values(True, True):
        target.data.normal_()
    data = batch(20)
    value = loss(data)["loss"]
    seen, action = data["agents", "observation"], data["agents", "action"]
    weights = loss.local_value_network_params["module", "0", "module"]
    values = seen @ weights["weight"].T + weights["bias"]
    with loss.mixer_network_params.to_module(loss.mixer_network):
        chosen = values.gather(-1, action.unsqueeze(-1))
        total = loss.mixer_network.module(chosen, data["state"]).squeeze(-1)
    error = (total - by_hand(loss, data, double)).detach()
    torch.testing.assert_close(data["td_error"].squeeze(-1), error.abs())
    torch.testing.assert_close(value.detach(), error.square().mean())
    assert data["next", "done"].sum() > data["next", "terminated"].sum()


def test_nothing_reaches_the_targets():
    loss = QMixLoss(local_network(), mixer_of("qmix"), **CATEGORICAL, double_dqn=True)
    SoftUpdate(loss, tau=0.5)
    loss(batch(ROWS))["loss"].backward()
    reached = {name.split("_params")[0] for name in gradients(loss)}
    assert reached == {"local_value_network", "mixer_network"}
    assert all(p.grad is not None for p in loss.parameters())


@pytest.mark.filterwarnings("ignore:No target network updater")
def test_weights_and_reductions():
    torch.manual_seed(0)
    data = batch(ROWS)
    local, mixer = local_network(), mixer_of("vdn")

    def value(data, **options):
        return QMixLoss(local, mixer, **CATEGORICAL, **options)(data.clone())["loss"]

    rows = value(data, reduction="none")
    assert rows.shape == (ROWS,)
    torch.testing.assert_close(value(data), rows.mean())
    torch.testing.assert_close(value(data, reduction="sum"), rows.sum())
    weight = torch.rand(ROWS)
    weighted = value(data.clone().set("priority_weight", weight))
    torch.testing.assert_close(weighted, (rows * weight).sum() / weight.sum())


class OtherModule(TensorDictModule):
    """A class that the loss does not know, and calls as a TensorDict module."""


@pytest.mark.filterwarnings("ignore:No target network updater")
@pytest.mark.parametrize("kind", ["vdn", "qmix"])
def test_a_mixer_is_called_on_the_parameters_that_count(kind):
    known = mixer_of(kind)
    other = OtherModule(known.module, known.in_keys, known.out_keys)
    local, data = local_network(), batch(ROWS)
    plain, called = (QMixLoss(local, mixer, **CATEGORICAL) for mixer in (known, other))
    assert type(plain._mixer) is not type(called._mixer)

    def same(data):
        torch.testing.assert_close(plain(data.clone())["loss"], called(data.clone())["loss"])

    same(data)
    for loss in (plain, called):
        torch.manual_seed(2)
        for params in (loss.mixer_network_params, loss.target_mixer_network_params):
            for value in params.values(True, True):
                value.data.normal_()
    same(data)
    if kind == "qmix":
        guests = plain.mixer_network_params.data.clone().apply(torch.ones_like)
        before = plain(data.clone())["loss"]
        with guests.to_module(plain.mixer_network_params):
            inside = plain(data.clone())["loss"]
        with guests.to_module(called.mixer_network_params):
            torch.testing.assert_close(inside, called(data.clone())["loss"])
        assert inside != before
    plain, called = deepcopy(plain).double(), deepcopy(called).double()
    same(data.apply(lambda x: x.double() if x.is_floating_point() else x))


@pytest.mark.filterwarnings("ignore:No target network updater")
def test_other_names_of_keys_and_groups():
    torch.manual_seed(0)
    local, mixer = local_network("wolves"), mixer_of("qmix", "wolves", "team_value")
    loss = QMixLoss(local, mixer, **CATEGORICAL)
    loss.set_keys(
        **{name: ("wolves", name) for name in ("action", "action_value")},
        local_value=("wolves", "chosen_action_value"),
        global_value="team_value",
        reward="score",
        priority="urgency",
    )
    data = batch(ROWS, group="wolves", reward="score")
    value = loss(data)["loss"]
    assert value.isfinite()
    assert "urgency" in data
    assert ("next", "score") in loss.in_keys
    assert ("wolves", "chosen_action_value") not in loss.in_keys


def test_a_state_survives():
    loss = QMixLoss(local_network(), mixer_of("qmix"), **CATEGORICAL)
    other = QMixLoss(local_network(), mixer_of("qmix"), **CATEGORICAL)
    other.load_state_dict(loss.state_dict())
    SoftUpdate(loss, tau=0.1), SoftUpdate(other, tau=0.1)
    data = batch(ROWS)
    assert torch.equal(loss(data.clone())["loss"], other(data.clone())["loss"])


def test_mistakes_are_told():
    with pytest.raises(ValueError, match="`delay_value` must be True with double_dqn"):
        QMixLoss(
            local_network(), mixer_of("vdn"), **CATEGORICAL, double_dqn=True, delay_value=False
        )
    mixer = QMixer(state_shape=(2,), n_agents=AGENTS)
    with pytest.raises(ValueError, match="`mixer_network` must say where its state is"):
        QMixLoss(local_network(), mixer, **CATEGORICAL)
    with pytest.raises(ValueError, match="`hypernet_dim` must be at least 0, got `-1`"):
        QMixer(state_shape=(2,), n_agents=AGENTS, hypernet_dim=-1)


# The two-step game of Rashid et al. (2018, section 6): the first agent chooses in which of two
# games the second step is played. In one everybody gets 7; in the other 0, 1 or 8.
SECOND = torch.tensor([[[7.0, 7.0], [7.0, 7.0]], [[0.0, 1.0], [1.0, 8.0]]])


def all_steps_of_the_game():
    """Each step of the game with each pair of actions, once."""
    rows = []
    for state in range(3):
        for first in range(2):
            for second in range(2):
                after = first + 1 if state == 0 else 0
                reward = 0.0 if state == 0 else SECOND[state - 1, first, second].item()
                seen, following = torch.eye(3)[state], torch.eye(3)[after]
                ends = torch.tensor([state > 0])
                both = {"observation": seen.expand(2, 3), "action": torch.tensor([first, second])}
                then = {"observation": following.expand(2, 3)}
                rows.append(
                    TensorDict(
                        {
                            "agents": TensorDict(both, [2]),
                            "state": seen,
                            "next": {
                                "agents": TensorDict(then, [2]),
                                "state": following,
                                "reward": torch.tensor([reward]),
                                "done": ends,
                                "terminated": ends,
                            },
                        },
                        [],
                    )
                )
    return torch.stack(rows)


def solved(mixer, **options):
    """Return of the greedy team after learning from every step of the game."""
    torch.manual_seed(0)
    local = local_network(seen=3, choices=2)
    loss = QMixLoss(local, mixer, **CATEGORICAL, **options)
    loss.make_value_estimator(gamma=0.99)
    updater, optimizer = SoftUpdate(loss, tau=0.1), torch.optim.Adam(loss.parameters(), lr=0.01)
    data = all_steps_of_the_game()
    for _ in range(1500):
        optimizer.zero_grad()
        loss(data)["loss"].backward()
        optimizer.step()
        updater.step()
    seen = torch.eye(3).unsqueeze(1).expand(3, 2, 3)
    shown = TensorDict({"agents": TensorDict({"observation": seen}, [3, 2])}, [3])
    with loss.local_value_network_params.to_module(local):
        greedy = local(shown)["agents", "action"]
    game = greedy[0, 0]
    return SECOND[game][tuple(greedy[game + 1])].item()


def test_qmix_solves_the_two_step_game_and_vdn_does_not():
    mixer = TensorDictModule(
        QMixer(state_shape=(3,), n_agents=2, mixing_embed_dim=8),
        [LOCAL, "state"],
        ["chosen_action_value"],
    )
    assert solved(mixer) == 8.0
    assert solved(multiagent.VDNMixer(n_agents=2, device="cpu")) == 7.0
