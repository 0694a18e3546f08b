"""Losses over sequences against slow references that run one episode at a time."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tensordict import TensorDict
from torch import Tensor

from torchrl_elegant.data import cut_rollout
from torchrl_elegant.modules import (
    CategoricalActor,
    EnsembleCritic,
    Memory,
    QNetwork,
    SquashedGaussianActor,
    StateValue,
    give_memory,
)
from torchrl_elegant.objectives import ClipPPOLoss, DQNLoss, LeanSoftUpdate, SACLoss
from torchrl_elegant.objectives.common.sequence_losses import (
    ReplaySequenceLoss,
    RolloutSequenceLoss,
)

ROWS, STEPS, SIZE, GAMMA = 3, 8, 4, 0.9


@pytest.fixture(autouse=True)
def _doubles() -> Any:
    torch.manual_seed(0)
    torch.set_default_dtype(torch.double)
    yield
    torch.set_default_dtype(torch.float32)


def remembering(
    make: Any, key: str = "memory", state: str = "recurrent_state", **options: Any
) -> Any:
    network = make(observation={key: (SIZE,)}, num_cells=(5,), **options)
    keys = {"out_key": key, "state_key": state}
    give_memory(network, Memory(observation={"observation": (2,)}, hidden_size=SIZE, **keys))
    return network


def rows(**states: int) -> TensorDict:
    """Sequences with random ends, every second of them a truncation."""
    shape = (ROWS, STEPS, 1)
    done = torch.rand(shape) < 0.3
    terminated = done & (torch.rand(shape) < 0.5)
    after = {"observation": torch.randn(ROWS, STEPS, 2), "reward": torch.randn(shape)}
    after |= {"done": done, "terminated": terminated}
    action = torch.nn.functional.one_hot(torch.randint(2, (ROWS, STEPS)), 2)
    seen = {"observation": torch.randn(ROWS, STEPS, 2), "action": action, "next": after}
    return TensorDict(seen | {key: torch.randn(ROWS, n) for key, n in states.items()}, [ROWS])


def one_by_one(memory: Memory, data: TensorDict, *, state_key: str, burn_in: int = 0) -> Any:
    """States after each step and after each next observation, ``[ROWS, STEPS, H]``."""
    states, nexts = [], []
    for row in range(ROWS):
        state, of_row, of_next = data[state_key][row : row + 1], [], []
        for t in range(STEPS):
            if t == burn_in:
                state = state.detach()
            state = memory.gru.step(data["observation"][row, t : t + 1], state)
            of_row.append(state)
            seen = data["next", "observation"][row, t : t + 1]
            of_next.append(memory.gru.step(seen, state))
            if data["next", "done"][row, t]:
                state = torch.zeros_like(state)
        states.append(torch.cat(of_row))
        nexts.append(torch.cat(of_next))
    return torch.stack(states), torch.stack(nexts)


def targets(data: TensorDict, next_value: Tensor, n_steps: int, burn_in: int) -> Tensor:
    """``sum_k gamma^k r + gamma^m (1 - d) V`` by a loop over single steps."""
    found = torch.zeros(ROWS, STEPS)
    for row in range(ROWS):
        for t in range(burn_in, STEPS):
            total, last = 0.0, t
            for k in range(n_steps):
                last = t + k
                total += GAMMA**k * data["next", "reward"][row, last, 0].item()
                if data["next", "done"][row, last] or last == STEPS - 1:
                    break
            goes_on = 1.0 - data["next", "terminated"][row, last, 0].double().item()
            found[row, t] = total + GAMMA ** (last - t + 1) * goes_on * next_value[row, last].item()
    return found[:, burn_in:]


def moved(loss: Any) -> None:
    """Targets that differ from the networks that learn."""
    with torch.no_grad():
        for param in loss.parameters():
            param.add_(0.3 * torch.randn_like(param))


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize(("burn_in", "n_steps"), [(0, 1), (3, 1), (2, 3)])
def test_dqn_over_sequences_is_dqn_one_episode_at_a_time(
    burn_in: int, n_steps: int, double: bool
) -> None:
    inner = DQNLoss(remembering(QNetwork, choices=2), double_dqn=double)
    inner.make_value_estimator(gamma=GAMMA)
    moved(inner)
    loss = ReplaySequenceLoss(inner, burn_in=burn_in, n_steps=n_steps, gamma=GAMMA)
    data = rows(recurrent_state=SIZE)
    found = loss.update_terms(data)["loss"]
    calls = inner._critic
    online, delayed = calls.network, calls.delayed
    key = "recurrent_state"
    states, nexts = one_by_one(online.memory, data, state_key=key, burn_in=burn_in)
    with torch.no_grad():
        _, old = one_by_one(delayed.memory, data, state_key=key)
        judged = online.values([nexts])[0] if double else delayed.values([old])[0]
        best = judged.argmax(-1, keepdim=True)
        next_value = delayed.values([old])[0].gather(-1, best).squeeze(-1)
    value = (online.values([states])[0] * data["action"]).sum(-1)[:, burn_in:]
    expected = (value - targets(data, next_value, n_steps, burn_in)).square().mean()
    torch.testing.assert_close(found, expected)
    params = list(inner.parameters())
    ours = torch.autograd.grad(found, params)
    reference = torch.autograd.grad(expected, params)
    assert any(grad.any() for grad in ours)
    for a, b in zip(ours, reference, strict=True):
        torch.testing.assert_close(a, b)


def sac() -> tuple[ReplaySequenceLoss, TensorDict]:
    actor = remembering(SquashedGaussianActor, "actor_memory", low=[-1.0], high=[1.0])
    more = {"action_shape": (1,), "num_critics": 2}
    critic = remembering(EnsembleCritic, "critic_memory", "critic_state", **more)
    inner = SACLoss(actor, critic)
    inner.make_value_estimator(gamma=GAMMA)
    data = rows(recurrent_state=SIZE, critic_state=SIZE)
    data["action"] = torch.rand(ROWS, STEPS, 1) * 2 - 1
    return ReplaySequenceLoss(inner, burn_in=2), data


def reached(loss: ReplaySequenceLoss, term: Tensor) -> set[str]:
    names, params = zip(*loss.loss.named_parameters(), strict=True)
    grads = torch.autograd.grad(term, params, retain_graph=True, allow_unused=True)
    found = {n for n, g in zip(names, grads, strict=True) if g is not None and g.any()}
    return {name.split("_params")[0] + (".memory" if "memory" in name else "") for name in found}


def test_each_term_reaches_its_own_memory_alone() -> None:
    loss, data = sac()
    terms = loss.update_terms(data)
    assert reached(loss, terms["loss_actor"]) == {"actor_network", "actor_network.memory"}
    critics = {"qvalue_network", "qvalue_network.memory"}
    assert reached(loss, terms["loss_qvalue"]) == critics
    assert set(loss.update_terms(data, actor=False)) == {"loss_qvalue"}


def test_sacs_critics_see_the_states_of_their_own_memories() -> None:
    loss, data = sac()
    moved(loss.loss)
    calls = loss.loss
    flat = loss.rows_of(data)
    for key, memory, state in (
        ("actor_memory", calls._actor.network.memory, "recurrent_state"),
        ("critic_memory", calls._critic.network.memory, "critic_state"),
        ("delayed_critic_memory", calls._critic.delayed.memory, "critic_state"),
    ):
        states, nexts = one_by_one(memory, data, state_key=state)
        torch.testing.assert_close(flat["next", key], nexts[:, 2:].flatten(0, 1))
        if not key.startswith("delayed"):
            torch.testing.assert_close(flat[key], states[:, 2:].flatten(0, 1))
    assert not flat["next", "critic_memory"].allclose(flat["next", "delayed_critic_memory"])


def test_target_updaters_move_the_memories_of_targets() -> None:
    loss, _ = sac()
    updater = LeanSoftUpdate(loss.loss, tau=1.0)
    moved(loss.loss)
    updater.step()
    online, delayed = loss.loss.qvalue_network_params, loss.loss.target_qvalue_network_params
    assert ("memory", "gru", "cell", "weight_hh") in online.keys(True)
    for key, value in online.items(True, True):
        torch.testing.assert_close(value.data, delayed.get(key).data)


def ppo() -> RolloutSequenceLoss:
    actor = remembering(CategoricalActor, "actor_memory", choices=2)
    critic = remembering(StateValue, "critic_memory", "critic_state")
    inner = ClipPPOLoss(actor, critic, normalize_advantage=False)
    inner.make_value_estimator(gamma=GAMMA, lmbda=0.8)
    return RolloutSequenceLoss(inner, length=3)


def rollout(loss: RolloutSequenceLoss) -> TensorDict:
    """A rollout with the states and log-probabilities of the policy itself."""
    data = rows(recurrent_state=SIZE, critic_state=SIZE)
    for network, key in (
        (loss.loss.actor_network, "recurrent_state"),
        (loss.loss.critic_network, "critic_state"),
    ):
        states, _ = one_by_one(network.memory, data, state_key=key)
        begins = torch.cat([torch.zeros(ROWS, 1, 1).bool(), data["next", "done"][:, :-1]], 1)
        before = torch.cat([data[key].unsqueeze(1), states[:, :-1]], 1)
        if network is loss.loss.actor_network:
            log_prob = network.head([states]).log_prob(data["action"])
        data[key] = before.masked_fill(begins, 0.0).detach()
    data.set("action_log_prob", log_prob.detach())
    data.batch_size = [ROWS, STEPS]
    return data


def test_advantages_are_those_of_one_episode_at_a_time() -> None:
    loss = ppo()
    data = rollout(loss)
    found = loss.estimate(data.copy())
    first = data.copy()
    first.batch_size = [ROWS]
    first["critic_state"] = data["critic_state"][:, 0]
    critic = loss.loss.critic_network
    states, nexts = one_by_one(critic.memory, first, state_key="critic_state")
    value, after = critic.values([states]).squeeze(-1), critic.values([nexts]).squeeze(-1)
    for row in range(ROWS):
        carried = 0.0
        for t in reversed(range(STEPS)):
            done, ended = (data["next", k][row, t, 0].item() for k in ("done", "terminated"))
            reward = data["next", "reward"][row, t, 0]
            error = reward + GAMMA * (not ended) * after[row, t] - value[row, t]
            carried = error + GAMMA * 0.8 * (not done) * carried
            torch.testing.assert_close(found["advantage"][row, t, 0], carried)


def test_a_policy_that_has_not_moved_has_a_ratio_of_one() -> None:
    loss = ppo()
    sequences = loss.rows(loss.estimate(rollout(loss)))
    assert sequences.shape == (3 * ROWS,)
    assert sequences["mask"].sum() == ROWS * STEPS
    flat = loss.rows_of(sequences)
    assert flat.shape == (ROWS * STEPS,)
    torch.testing.assert_close(loss.divergence(sequences), torch.zeros(()))
    terms = loss.update_terms(sequences)
    torch.testing.assert_close(terms["loss_objective"], -flat["advantage"].mean())
    assert reached(loss, terms["loss_objective"]) == {"actor_network", "actor_network.memory"}
    assert reached(loss, terms["loss_critic"]) == {"critic_network", "critic_network.memory"}


def test_a_gradient_over_sequences_stops_at_their_beginning() -> None:
    """Shorter sequences start from the stored states, which are data."""
    loss = ppo()
    estimated = loss.estimate(rollout(loss))
    whole, short = (
        cut_rollout(estimated.select(*loss.row_keys), n, state_keys=loss.state_keys) for n in (8, 2)
    )
    a, b = (loss.update_terms(each) for each in (whole, short))
    torch.testing.assert_close(a["loss_critic"], b["loss_critic"])
    params = list(loss.loss.critic_network.memory.parameters())
    grads = [torch.autograd.grad(each["loss_critic"], params) for each in (a, b)]
    assert not all(x.allclose(y) for x, y in zip(*grads, strict=True))


def test_keys_are_those_that_rows_must_have() -> None:
    loss, data = sac()
    assert set(loss.in_keys) == {
        "observation", "recurrent_state", "critic_state", "action", ("next", "observation"),
        ("next", "reward"), ("next", "done"), ("next", "terminated"),
    }  # fmt: skip
    values = loss.update_terms(data, actor=False)
    torch.manual_seed(0)
    loss.loss.set_keys(reward=("team", "reward"), done=("team", "done"), terminated=("team", "end"))
    renamed = data.copy()
    for old, new in (("reward", "reward"), ("done", "done"), ("terminated", "end")):
        renamed["next", "team", new] = renamed["next"].pop(old)
    assert ("next", "team", "end") in loss.in_keys
    torch.manual_seed(1)
    found = loss.update_terms(renamed, actor=False)["loss_qvalue"]
    torch.manual_seed(1)
    loss.loss.set_keys(reward="reward", done="done", terminated="terminated")
    torch.testing.assert_close(found, loss.update_terms(data, actor=False)["loss_qvalue"])
    assert values["loss_qvalue"].isfinite()


def test_a_state_dict_round_trip() -> None:
    (first, data), (second, _) = sac(), sac()
    second.load_state_dict(first.state_dict())
    found = []
    for loss in (first, second):
        torch.manual_seed(3)
        found.append(loss(data)["loss_actor"])
    torch.testing.assert_close(*found)


def test_wrong_arguments_are_refused() -> None:
    inner = DQNLoss(remembering(QNetwork, choices=2))
    with pytest.raises(ValueError, match="`burn_in` must be 0 or more, got `-1`"):
        ReplaySequenceLoss(inner, burn_in=-1)
    with pytest.raises(ValueError, match="`n_steps` must be at least 1, got `0`"):
        ReplaySequenceLoss(inner, n_steps=0)
    plain = DQNLoss(QNetwork(observation={"observation": (2,)}, choices=2))
    with pytest.raises(ValueError, match="`loss` must be over networks that hold a memory"):
        ReplaySequenceLoss(plain)
