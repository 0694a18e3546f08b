"""GRU, its TensorDict module in TorchRL's pipelines, and actors that carry their states."""

from __future__ import annotations

import itertools
import pickle
from copy import deepcopy

import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule, TensorDictSequential
from torch import nn
from torchrl.collectors import Collector
from torchrl.envs import GymEnv, InitTracker, TransformedEnv
from torchrl.modules import GRUModule, QValueModule, set_recurrent_mode
from torchrl.objectives import DQNLoss

from torchrl_elegant.modules import (
    GRU,
    CategoricalActor,
    EpsilonGreedyActor,
    GaussianNoise,
    Memory,
    NoisyActor,
    QNetwork,
    RecurrentActor,
    StateValue,
    build_deterministic_actor,
    build_q_network,
    give_memory,
    memory_of,
    own_state,
)
from torchrl_elegant.runs.policy import BUILDERS

SEEN = {"observation": (3,)}
DOUBLE = {"dtype": torch.double}


def gru_and_torchs(features: int = 3, size: int = 4) -> tuple[GRU, nn.GRU]:
    ours = GRU(in_features=features, hidden_size=size).double()
    theirs = nn.GRU(features, size, batch_first=True).double()
    with torch.no_grad():
        for param in ours.parameters():
            param.uniform_(-1, 1)
        for name, param in ours.cell.named_parameters():
            getattr(theirs, f"{name}_l0").copy_(param)
    return ours, theirs


def gradients(value: torch.Tensor, weight: torch.Tensor, inputs: list) -> list[torch.Tensor]:
    return list(torch.autograd.grad((value * weight).sum(), inputs))


def assert_alike(found, expected, inputs, ours, theirs):
    """Values and gradients of our unit are those of PyTorch's."""
    torch.testing.assert_close(found, expected)
    weight = torch.randn_like(expected)
    for a, b in zip(
        gradients(found, weight, [*inputs, *ours.cell.parameters()]),
        gradients(expected, weight, [*inputs, *theirs.parameters()]),
        strict=True,
    ):
        torch.testing.assert_close(a, b)


def test_values_and_gradients_are_those_of_pytorch() -> None:
    ours, theirs = gru_and_torchs()
    x = torch.randn(2, 5, 3, **DOUBLE, requires_grad=True)
    state = torch.randn(2, 4, **DOUBLE, requires_grad=True)
    found, expected = ours.unroll(x, state), theirs(x, state.unsqueeze(0))[0]
    assert_alike(found, expected, [x, state], ours, theirs)


def episodes_one_by_one(
    gru: nn.GRU, x: torch.Tensor, state: torch.Tensor, begins: torch.Tensor
) -> torch.Tensor:
    """Slow reference: each row's episodes run alone, from zero but for the first."""
    rows = []
    for row in range(len(x)):
        starts = sorted({0, *begins[row].nonzero().flatten().tolist(), x.shape[1]})
        parts = []
        for start, end in itertools.pairwise(starts):
            first = state[row] if not begins[row, start] else torch.zeros_like(state[row])
            parts.append(gru(x[row : row + 1, start:end], first.view(1, 1, -1))[0])
        rows.append(torch.cat(parts, 1))
    return torch.cat(rows)


@pytest.mark.parametrize("seed", range(3))
def test_states_and_gradients_never_cross_an_episode(seed: int) -> None:
    torch.manual_seed(seed)
    ours, theirs = gru_and_torchs()
    x = torch.randn(4, 9, 3, **DOUBLE, requires_grad=True)
    state = torch.randn(4, 4, **DOUBLE, requires_grad=True)
    begins = torch.rand(4, 9) < 0.3
    begins[0, 0], begins[1, 0] = True, False
    found = ours.unroll(x, state, begins)
    expected = episodes_one_by_one(theirs, x, state, begins)
    assert_alike(found, expected, [x, state], ours, theirs)


def test_agents_are_one_more_batch_dimension() -> None:
    gru = GRU(in_features=3, hidden_size=4)
    x, state, begins = torch.randn(5, 6, 2, 3), torch.randn(5, 2, 4), torch.rand(5, 6) < 0.3
    whole = gru.unroll(x, state, begins)
    for agent in range(2):
        alone = gru.unroll(x[:, :, agent], state[:, agent], begins)
        torch.testing.assert_close(whole[:, :, agent], alone)
    torch.testing.assert_close(gru.step(x[:, 0], state), gru.unroll(x, state)[:, 0])


def test_a_sequence_is_its_steps() -> None:
    gru = GRU(in_features=3, hidden_size=4)
    x, state, found = torch.randn(2, 5, 3), torch.zeros(2, 4), []
    for t in range(5):
        state = gru.step(x[:, t], state)
        found.append(state)
    torch.testing.assert_close(gru.unroll(x, torch.zeros(2, 4)), torch.stack(found, 1))


def test_impossible_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="`hidden_size` must be at least 1, got `0`"):
        Memory(observation=SEEN, hidden_size=0)


def test_sequences_are_those_of_torchrls_module() -> None:
    memory = Memory(observation=SEEN, hidden_size=4)
    theirs = GRUModule(
        input_size=3, hidden_size=4, in_keys=["observation", "recurrent_state", "is_init"],
        out_keys=["memory", ("next", "recurrent_state")],
    )  # fmt: skip
    with torch.no_grad():
        for name, param in memory.gru.cell.named_parameters():
            getattr(theirs.gru, f"{name}_l0").copy_(param)
    begins = torch.zeros(2, 6, 1, dtype=torch.bool)
    begins[0, 3] = begins[1, 0] = True
    data = TensorDict({"observation": torch.randn(2, 6, 3), "is_init": begins}, [2, 6])
    state = torch.zeros(2, 6, 4)
    state[0, 0] = 1.0
    with set_recurrent_mode(True):
        found = memory(data.copy().set("recurrent_state", state))
        expected = theirs(data.copy().set("recurrent_state", state.unsqueeze(-2)))
    torch.testing.assert_close(found["memory"], expected["memory"])
    torch.testing.assert_close(found["next", "recurrent_state"], found["memory"])


def torchrl_pipeline() -> tuple[TransformedEnv, TensorDictSequential]:
    memory = Memory(observation={"observation": (4,)}, hidden_size=8)
    env = TransformedEnv(GymEnv("CartPole-v1"), InitTracker())
    env.append_transform(memory.primer())
    head = TensorDictModule(nn.Linear(8, 2), ["memory"], ["action_value"])
    greedy = QValueModule("one_hot")
    return env, TensorDictSequential(memory, head, greedy)


def test_torchrls_collector_and_loss_take_it() -> None:
    env, policy = torchrl_pipeline()
    collector = Collector(env, policy, frames_per_batch=30, total_frames=30)
    (batch,) = collector
    stored, after = batch["recurrent_state"], batch["next", "recurrent_state"]
    goes_on = ~batch["next", "done"][:-1, 0]
    torch.testing.assert_close(stored[1:][goes_on], after[:-1][goes_on])
    assert not stored[batch["is_init"].squeeze(-1)].any()
    loss = DQNLoss(policy, action_space="one_hot")
    loss.make_value_estimator(gamma=0.9)
    loss(batch.unsqueeze(0))["loss"].backward()
    grads = {name: p.grad for name, p in loss.named_parameters() if "target" not in name}
    assert all(grad is not None and grad.any() for grad in grads.values())


def recurrent_actor(*, beside: bool = True) -> RecurrentActor:
    actor = CategoricalActor(observation={"memory": (4,)}, choices=2, num_cells=(8,))
    give_memory(actor, Memory(observation=SEEN, hidden_size=4))
    keys = {"out_key": "value_memory", "state_key": "value_state"}
    other = [Memory(observation=SEEN, hidden_size=5, **keys)] if beside else []
    return RecurrentActor(actor, other)


def test_an_actor_writes_the_states_it_acted_from() -> None:
    policy = recurrent_actor()
    assert policy.out_keys == ["action", "action_log_prob", "recurrent_state", "value_state"]
    observation = torch.randn(3, 4, 3)
    states = [policy.act(x)[2:] for x in observation]
    for memory, at in ((memory_of(policy.actor), 0), (policy.beside[0], 1)):
        expected = memory.gru.unroll(
            observation.transpose(0, 1), torch.zeros(4, memory.hidden_size)
        )
        assert not states[0][at].any()
        torch.testing.assert_close(states[1][at], expected[:, 0])
        torch.testing.assert_close(states[2][at], expected[:, 1])


def test_only_the_rows_whose_episode_ended_begin_anew() -> None:
    policy, x = recurrent_actor(), torch.randn(3, 3)
    policy.act(x)
    kept = policy.act(x)[2]
    policy.restart(torch.tensor([False, True, False]))
    state = policy.act(x)[2]
    assert not state[1].any()
    assert state[0].any()
    assert kept.any()
    counted = TensorDict({"observation": x, "step_count": torch.tensor([[1], [1], [0]])}, [3])
    assert policy(counted)["recurrent_state"].any(-1).tolist() == [True, True, False]
    policy.restart()
    assert not policy.act(x)[2].any()


def test_others_episodes_do_not_disturb_the_state() -> None:
    policy, x = recurrent_actor(), torch.randn(3, 3)
    policy.act(x)
    other = own_state(policy)
    assert not other.act(x)[2].any()
    other.act(torch.randn(3, 3))
    again = deepcopy(policy)
    assert policy.act(x)[2].any()
    assert not again.act(x)[2].any()
    assert pickle.loads(pickle.dumps(policy))._states is None
    assert other.out_keys == ["action", "action_log_prob", "recurrent_state"]


def test_a_memory_learns_with_the_network_that_reads_it() -> None:
    critic = StateValue(observation={"memory": (4,)}, num_cells=(8,))
    give_memory(critic, Memory(observation=SEEN, hidden_size=4))
    assert len(list(critic.parameters())) == 8
    with pytest.raises(ValueError, match="`network` must have a memory, got `GRU`"):
        memory_of(GRU(in_features=1, hidden_size=1))


def actors() -> list[RecurrentActor]:
    seen, memory = {"memory": (4,)}, Memory(observation=SEEN, hidden_size=4)
    network = QNetwork(observation=seen, choices=2, num_cells=(8,))
    give_memory(network, memory)
    env = GymEnv("Pendulum-v1")
    still = build_deterministic_actor(env, num_cells=(8,), in_keys={"memory": (4,)})
    give_memory(still, memory)
    return [
        recurrent_actor(),
        RecurrentActor(EpsilonGreedyActor(network)),
        RecurrentActor(NoisyActor(still, GaussianNoise())),
    ]


@pytest.mark.parametrize("kind", range(3))
def test_plain_data_describes_an_actor(kind: int) -> None:
    policy = actors()[kind]
    built = BUILDERS["RecurrentActor"](**policy.spec_dict())
    built.load_state_dict(policy.state_dict())
    x = torch.randn(2, 3)
    policy.act(x), built.act(x)
    torch.testing.assert_close(built.act(x)[-1], policy.act(x)[-1])
    assert built.spec_dict() == policy.spec_dict()


def test_builders_take_shapes_in_place_of_keys() -> None:
    network = build_q_network(GymEnv("CartPole-v1"), in_keys={"memory": (7,)}, num_cells=(8,))
    assert network.in_keys == ["memory"]
    assert network.inputs.features == 7


def test_a_noise_inside_begins_anew_with_its_owner_alone() -> None:
    told: list[torch.Tensor] = []
    policy = actors()[2]
    policy.actor.restart = told.append
    rows = torch.tensor([True, False])
    own_state(policy).restart(rows)
    assert not told
    policy.restart(rows)
    assert told[0] is rows
