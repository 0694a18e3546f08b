"""The H-term beside every loss with an actor, of this package and of TorchRL."""

from __future__ import annotations

import io
import pickle
from copy import deepcopy
from functools import partial

import deterministic_cases
import pytest
import sac_cases
import torch
import value_cases
from hamiltonian_cases import F64, LOSS, grads_of, hamiltonian_term_of
from ppo_cases import lean_nets, make_rollout, make_rows, torchrl_nets
from sameness import assert_same
from tensordict import TensorDict
from torchrl import objectives as theirs
from torchrl.collectors import Collector
from torchrl.data import Bounded, LazyTensorStorage, TensorDictReplayBuffer
from torchrl.objectives import HardUpdate, SoftUpdate
from torchrl.trainers import ReplayBufferTrainer, Trainer

from torchrl_elegant import objectives as ours
from torchrl_elegant.envs import make_env
from torchrl_elegant.modules import EnsembleCritic, build_actor, build_critic
from torchrl_elegant.objectives import HamiltonianTerm, WithHamiltonian
from torchrl_elegant.objectives.hamiltonian import term as hamiltonian_term
from torchrl_elegant.objectives.hamiltonian.loss import slice_rewards
from torchrl_elegant.objectives.hamiltonian.stored_actions import stored_log_prob

pytestmark = pytest.mark.filterwarnings("ignore")

NAME = "loss_hamiltonian"
SPEC = {"action_spec": Bounded(-1.0, 1.0, (sac_cases.ACT,))}


def ordinary_sac():
    return sac_cases.torchrl_actor(), sac_cases.torchrl_critic()


def lean_discrete():
    return value_cases.categorical_actor(), value_cases.q_network(num_members=2)


LOSSES = {
    "A2C": lambda: ours.A2CLoss(*lean_nets()),
    "PPO": lambda: ours.ClipPPOLoss(*lean_nets()),
    "PPO discrete": lambda: ours.ClipPPOLoss(*lean_nets("one_hot")),
    "PPO, not functional": lambda: ours.ClipPPOLoss(*lean_nets(), functional=False),
    "DDPG": deterministic_cases.lean_ddpg,
    "TD3": deterministic_cases.lean_td3,
    "SAC": sac_cases.lean_loss,
    "SAC, TorchRL's networks": lambda: ours.SACLoss(*ordinary_sac(), **SPEC),
    "ModSAC": partial(sac_cases.lean_loss, 3, loss=ours.ModSACLoss),
    "REDQ": partial(sac_cases.lean_loss, 4, loss=ours.REDQLoss, target_entropy=-2.0),
    "DiscreteSAC": lambda: ours.DiscreteSACLoss(*lean_discrete()),
    "TorchRL A2C": lambda: theirs.A2CLoss(*torchrl_nets()),
    "TorchRL PPO": lambda: theirs.ClipPPOLoss(*torchrl_nets()),
    "TorchRL PPO, not functional": lambda: theirs.ClipPPOLoss(*torchrl_nets(), functional=False),
    "TorchRL PPO, our networks": lambda: theirs.ClipPPOLoss(*lean_nets()),
    "TorchRL DDPG": lambda: theirs.DDPGLoss(*deterministic_cases.ordinary(), delay_actor=True),
    "TorchRL TD3": lambda: theirs.TD3Loss(*deterministic_cases.ordinary(), bounds=(-1.0, 1.0)),
    "TorchRL SAC": lambda: theirs.SACLoss(*ordinary_sac(), **SPEC),
    "TorchRL REDQ": lambda: theirs.REDQLoss(*ordinary_sac(), num_qvalue_nets=3, **SPEC),
    "TorchRL DiscreteSAC": lambda: theirs.DiscreteSACLoss(
        *value_cases.torchrl_networks(),
        action_space="one-hot",
        num_actions=value_cases.ACTS,
    ),
}
EACH = pytest.mark.parametrize("kind", LOSSES)
WITH_TARGETS = [kind for kind in LOSSES if "A2C" not in kind and "PPO" not in kind]


def make(kind, bound=None, **options):
    """A loss with the term beside it, which is bound where a learner takes it by itself."""
    base = LOSSES[kind]()
    options = {"horizon": 4, "capacity": 8, "max_age": 1000, **options}
    loss = WithHamiltonian(base, hamiltonian_term_of(base, **options))
    loss.term.bound = bound
    return loss


def collected(kind, loss, *shape):
    """Newly collected steps ``[envs, time]``."""
    shape = shape or (2, 24)
    if "A2C" in kind or "PPO" in kind:
        rollout = make_rollout(loss.base_loss.actor_network, *shape)
        return rollout.exclude("loc", "scale")
    module = value_cases if "Discrete" in kind else sac_cases
    return module.make_batch(*shape)


def batch_for(kind, loss):
    if "A2C" in kind or "PPO" in kind:
        return make_rows(loss.base_loss.actor_network)
    return collected(kind, loss, 24)


def filled(kind, **options):
    """A loss whose store has slices, and a batch."""
    loss = make(kind, **options)
    loss.extend(collected(kind, loss))
    assert len(loss.term.store) > 0
    return loss, batch_for(kind, loss)


def called(loss, batch, seed=1):
    torch.manual_seed(seed)
    return loss(batch.clone())


def gradients(loss, out) -> dict[str, torch.Tensor | None]:
    """Gradients of all that a trainer would minimize, by parameter."""
    loss.zero_grad(set_to_none=True)
    sum(value.sum() for name, value in out.items() if name.startswith("loss")).backward()
    return {name: param.grad for name, param in loss.named_parameters()}


# ---- the two together ---------------------------------------------------------------------------


@EACH
def test_the_terms_of_the_base_are_as_they_were(kind):
    loss, batch = filled(kind)
    alone = deepcopy(loss.base_loss)
    expected, found = called(alone, batch), called(loss, batch)
    assert set(found.keys()) == {*expected.keys(), NAME}
    for name, value in expected.items():
        assert torch.equal(found[name], value), name
    assert found.batch_size == expected.batch_size
    assert found[NAME].shape == ()
    assert found[NAME] != 0
    assert found[NAME].isfinite()


@EACH
@pytest.mark.parametrize("form", ["ratio", "log", "imitate", None])
def test_the_term_reaches_the_actor_alone(kind, form):
    loss, batch = filled(kind, form=form, weight=1.0)
    called(loss, batch)[NAME].backward()
    actor = {id(param) for param in loss.hamiltonian.parameters()}
    assert actor
    for name, param in loss.base_loss.named_parameters():
        if id(param) in actor:
            assert param.grad is not None, name
            assert param.grad.isfinite().all(), name
        else:
            assert param.grad is None, name
            assert not name.startswith("actor_network_params"), name
    assert any(param.grad.any() for param in loss.hamiltonian.parameters())


@EACH
def test_without_weight_gradients_are_those_of_the_base(kind):
    loss, batch = filled(kind, weight=0.0)
    alone = deepcopy(loss.base_loss)
    wanted = gradients(alone, called(alone, batch))
    gradients(loss, called(loss, batch))
    found = {name: param.grad for name, param in loss.base_loss.named_parameters()}
    assert wanted.keys() == found.keys()
    for name, grad in wanted.items():
        if grad is None:
            assert found[name] is None or not found[name].any(), name
        else:
            assert torch.equal(found[name], grad), name


@EACH
def test_with_weight_gradients_are_the_sum(kind):
    loss, batch = filled(kind, weight=2.0)
    alone = deepcopy(loss.base_loss)
    drawn = loss.term.store._generator.get_state()
    wanted = gradients(alone, called(alone, batch))
    gradients(loss, called(loss, batch))
    found = {name: param.grad for name, param in loss.base_loss.named_parameters()}
    loss.term.store._generator.set_state(drawn)
    loss.zero_grad(set_to_none=True)
    loss.term.step().backward()
    more = {name: param.grad for name, param in loss.base_loss.named_parameters()}
    assert any(grad is not None and grad.any() for grad in more.values())
    for name, grad in found.items():
        parts = [part for part in (wanted[name], more[name]) if part is not None]
        if parts:
            torch.testing.assert_close(grad, sum(parts), atol=1e-5, rtol=1e-5)


@EACH
@pytest.mark.parametrize("bound", [1e-3, 0.5, 1e6, None])
def test_what_is_added_is_bounded_by_what_is_there(kind, bound):
    """In norms of the actor's own gradient, at one point; the critics' are left as they are."""
    loss, batch = filled(kind, weight=2.0, bound=bound)
    term, actor = loss.term, list(loss.hamiltonian.parameters())
    drawn = term.store._generator.get_state()
    loss.zero_grad(set_to_none=True)
    expected = term.step()
    expected.backward()
    more = [param.grad.clone() for param in actor]
    wanted = gradients(loss, called(loss.base_loss, batch))
    wanted = {name: grad if grad is None else grad.clone() for name, grad in wanted.items()}
    own = [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in actor]
    sizes = [torch.cat([grad.flatten() for grad in part]).norm() for part in (own, more)]
    assert min(sizes) > 0
    part = 1.0 if bound is None else min(1.0, (bound * sizes[0] / sizes[1]).item())
    term.store._generator.set_state(drawn)
    found = term.backward()
    torch.testing.assert_close(found, expected.detach(), atol=1e-5, rtol=1e-5)
    for param, base, extra in zip(actor, own, more, strict=True):
        torch.testing.assert_close(param.grad, base + part * extra, atol=1e-5, rtol=1e-4)
    added = [param.grad - base for param, base in zip(actor, own, strict=True)]
    size = torch.cat([grad.flatten() for grad in added]).norm()
    torch.testing.assert_close(size, part * sizes[1], atol=1e-6, rtol=1e-2)
    for name, param in loss.named_parameters():
        if not any(param is each for each in actor):
            assert (param.grad is None) == (wanted[name] is None), name
            assert param.grad is None or torch.equal(param.grad, wanted[name]), name


@EACH
def test_a_term_that_is_not_due_leaves_gradients_as_they_are(kind):
    loss, batch = filled(kind, weight=2.0, bound=0.5, period=2)
    loss.term.backward()
    gradients(loss, called(loss.base_loss, batch))
    before = [param.grad for param in loss.hamiltonian.parameters()]
    assert loss.term.backward() is None
    assert all(
        param.grad is grad
        for param, grad in zip(loss.hamiltonian.parameters(), before, strict=True)
    )


def test_parameters_that_the_base_has_left_out_have_their_part_of_the_bounded():
    loss, batch = filled("SAC", weight=2.0, bound=0.1)
    gradients(loss, called(loss.base_loss, batch))
    first, *rest = loss.hamiltonian.parameters()
    first.grad = None
    own = [param.grad.clone() for param in rest]
    loss.term.backward()
    added = [first.grad, *(param.grad - base for param, base in zip(rest, own, strict=True))]
    assert first.grad.any()
    size = torch.cat([grad.flatten() for grad in added]).norm()
    held = torch.cat([grad.flatten() for grad in own]).norm()
    torch.testing.assert_close(size, 0.1 * held, rtol=1e-3, atol=1e-6)


@EACH
def test_parameters_are_those_of_the_base(kind):
    loss = make(kind)
    ids = [id(param) for param in loss.parameters()]
    assert ids == [id(param) for param in loss.base_loss.parameters()]
    assert len(ids) == len(set(ids))
    actor = {id(param) for param in loss.hamiltonian.parameters()}
    assert actor < set(ids)


@EACH
def test_before_anything_is_stored_it_is_zero(kind):
    loss = make(kind)
    batch = batch_for(kind, loss)
    out = called(loss, batch)
    assert out[NAME] == 0
    wanted = gradients(alone := deepcopy(loss.base_loss), called(alone, batch))
    gradients(loss, out)
    for name, param in loss.base_loss.named_parameters():
        same = wanted[name] is None or torch.equal(param.grad, wanted[name])
        assert same, name


@EACH
def test_an_optimiser_lowers_the_term(kind):
    """Both the base and the term read what an optimiser of the whole writes."""
    loss, batch = filled(kind, form="log", weight=1.0)
    optimizer = torch.optim.SGD(loss.parameters(), lr=1e-6)
    slices = loss.term.store.sample(8)
    before = loss.hamiltonian(slices)[NAME]
    before.backward()
    optimizer.step()
    assert loss.hamiltonian(slices)[NAME] < before
    called(loss, batch)


# ---- copies, casts, states ----------------------------------------------------------------------


@EACH
def test_a_copy_is_by_itself_and_whole(kind):
    loss, batch = filled(kind)
    other = deepcopy(loss)
    assert_same(called(other, batch).to_dict(), called(loss, batch).to_dict())
    assert other.hamiltonian is other.term.loss
    ids = [id(param) for param in other.parameters()]
    assert ids == [id(param) for param in other.base_loss.parameters()]
    assert not set(ids) & {id(param) for param in loss.parameters()}
    # What the copy's optimiser writes is what its term reads, and nobody else.
    slices = loss.term.store.sample(8)
    before = loss.hamiltonian(slices)[NAME].item()
    with torch.no_grad():
        for param in other.base_loss.parameters():
            param += 0.05
    assert loss.hamiltonian(slices)[NAME].item() == before
    assert other.hamiltonian(slices)[NAME].item() != before
    assert not any(grads_of(other) + grads_of(loss))
    called(other, batch)[NAME].backward()
    assert all(grads_of(other))
    assert not any(grads_of(loss))
    frames = loss.term.store.frames
    other.extend(collected(kind, other))
    assert loss.term.store.frames == frames < other.term.store.frames


@pytest.mark.parametrize(
    "kind", ["SAC", "DDPG", "PPO", "PPO discrete", "PPO, not functional", "TorchRL PPO"]
)
def test_pickling(kind):
    loss, batch = filled(kind)
    other = pickle.loads(pickle.dumps(loss))
    assert_same(called(other, batch).to_dict(), called(loss, batch).to_dict())
    assert [id(param) for param in other.parameters()] == [
        id(param) for param in other.base_loss.parameters()
    ]
    with torch.no_grad():
        for param in other.parameters():
            param += 0.05
    assert called(other, batch)[NAME] != called(loss, batch)[NAME]


@EACH
def test_to_another_precision(kind):
    loss = make(kind)
    batch, steps = batch_for(kind, loss), collected(kind, loss)
    loss = loss.to(F64)
    batch, steps = (
        data.apply(lambda x: x.to(F64) if x.is_floating_point() else x) for data in (batch, steps)
    )
    loss.extend(steps)
    out = called(loss, batch)
    assert out[NAME].dtype == F64
    gradients(loss, out)
    assert all(param.grad.dtype == F64 for param in loss.hamiltonian.parameters())
    assert all(grads_of(loss))
    assert [id(param) for param in loss.parameters()] == [
        id(param) for param in loss.base_loss.parameters()
    ]


def through_a_file(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@EACH
def test_state_dict_round_trip(kind):
    loss, batch = filled(kind, period=2)
    called(loss, batch)
    other = make(kind, period=2)
    called(other, batch)  # losses make their value estimators when they need them
    other.load_state_dict(through_a_file(loss.state_dict()))
    assert_same(other.term.state_dict(), loss.term.state_dict())
    assert len(other.term.store) == len(loss.term.store)
    for _ in range(3):  # the period goes on too
        expected, found = called(loss, batch), called(other, batch)
        assert_same(found.to_dict(), expected.to_dict())
    assert loss.term.store.frames == other.term.store.frames == 48
    # The base's own part is as it would be by itself.
    inner = {
        name.removeprefix("base_loss."): value
        for name, value in loss.state_dict().items()
        if name.startswith("base_loss.")
    }
    alone = LOSSES[kind]()
    called(alone, batch)
    alone.load_state_dict(inner)


# ---- what else a loss is asked for --------------------------------------------------------------


@pytest.mark.parametrize("kind", WITH_TARGETS)
@pytest.mark.parametrize(
    "updater",
    [partial(SoftUpdate, tau=0.5), partial(HardUpdate, value_network_update_interval=1)],
)
def test_target_updaters_of_torchrl(kind, updater):
    loss, batch = filled(kind)
    moves = updater(loss.base_loss)
    name = next(n for n in loss.base_loss._modules if n.startswith("target_") and "value" in n)
    target = loss.base_loss._modules[name]
    with torch.no_grad():
        for param in loss.parameters():
            param += 0.1
    before = [value.clone() for value in target.values(True, True)]
    for _ in range(2):
        moves.step()
    after = list(target.values(True, True))
    assert any(not torch.equal(x, y) for x, y in zip(before, after, strict=True))
    called(loss, batch)


@EACH
def test_in_and_out_keys(kind):
    loss = make(kind)
    assert loss.in_keys == loss.base_loss.in_keys
    assert list(loss.out_keys) == [*loss.base_loss.out_keys, NAME]


def test_dispatch():
    loss, batch = filled("SAC")
    names = {"_".join(key) if isinstance(key, tuple) else key: key for key in loss.in_keys}
    out = loss(**{name: batch[key] for name, key in names.items()})
    assert len(out) == len(loss.out_keys)
    assert out[-1] != 0


def test_period():
    loss, batch = filled("SAC", period=3)
    assert [bool(called(loss, batch)[NAME]) for _ in range(7)] == [True, False, False] * 2 + [True]


def test_an_update_that_finds_no_slices_is_one_of_the_period():
    loss = make("SAC", period=3)
    batch = batch_for("SAC", loss)
    assert called(loss, batch)[NAME] == 0
    loss.extend(collected("SAC", loss))
    assert [bool(called(loss, batch)[NAME]) for _ in range(3)] == [False, False, True]


def test_losses_of_single_rows_have_the_term_beside_them():
    base = sac_cases.lean_loss(reduction="none")
    term = hamiltonian_term_of(base, horizon=4, capacity=8, max_age=1000)
    loss = WithHamiltonian(base, term)
    loss.extend(sac_cases.make_batch(2, 24))
    out = loss(sac_cases.make_batch())
    assert out["loss_actor"].shape == (24,)
    assert out[NAME].shape == out.batch_size
    gradients(loss, out)


# ---- what the term is made of -------------------------------------------------------------------


def test_what_a_term_is_made_of():
    base = sac_cases.lean_loss()
    term = hamiltonian_term_of(
        base,
        horizon=3,
        capacity=5,
        max_age=7,
        best=0.6,
        gamma=0.5,
        slices=2,
        period=4,
        bound=0.7,
        weight=0.25,
        sigma=0.3,
        form="imitate",
        baseline="zero",
    )
    store, loss = term.store, term.loss
    found = (store.horizon, store.capacity, store.max_age, store.best, store.gamma)
    assert found == (3, 5, 7, 0.6, 0.5)
    assert (term.slices, term.period, term.bound) == (2, 4, 0.7)
    assert (loss.gamma, loss.weight, loss.sigma) == (0.5, 0.25, 0.3)
    assert (loss.form, loss.baseline) == ("imitate", "zero")


def test_what_a_term_is_made_of_where_nothing_is_said():
    term = hamiltonian_term_of(sac_cases.lean_loss(), horizon=3, max_age=7)
    assert (term.store.capacity, term.store.best, term.bound) == (None, 1.0, None)
    assert (term.loss.form, term.loss.baseline) == (None, "mean")


@pytest.mark.parametrize("missing", ["weight", "gamma", "form", "baseline", "slices"])
def test_what_the_config_decides_has_no_default_of_its_own(missing):
    given = {**LOSS, "slices": 16, "horizon": 3, "max_age": 7}
    del given[missing]
    with pytest.raises(TypeError, match=missing):
        HamiltonianTerm.for_loss(sac_cases.lean_loss(), **given)


@pytest.mark.parametrize("form", ["ratio", None])
def test_where_nobody_wrote_how_likely_actions_were_it_is_how_likely_they_are_now(form):
    loss = make("SAC", form=form, capacity=100)
    steps = collected("SAC", loss)
    kept = steps.clone()
    loss.extend(steps)
    assert set(steps.keys(True, True)) == set(kept.keys(True, True))
    slices = loss.term.store._kept
    expected = stored_log_prob(loss.hamiltonian, slices, sigma=0.1)
    torch.testing.assert_close(slices["action_log_prob"], expected, atol=1e-4, rtol=1e-4)
    assert not slices["action_log_prob"].requires_grad


def test_what_was_written_stays():
    loss = make("PPO", capacity=100)
    rollout = collected("PPO", loss)
    rollout["action_log_prob"].fill_(-7.0)
    loss.extend(rollout)
    assert (loss.term.store._kept["action_log_prob"] == -7.0).all()


@pytest.mark.parametrize("form", ["log", "imitate"])
@pytest.mark.parametrize("kind", ["SAC", "PPO"])
def test_what_needs_none_keeps_none(kind, form, monkeypatch):
    monkeypatch.setattr(hamiltonian_term, "stored_log_prob", None)
    loss = make(kind, form=form)
    steps = collected(kind, loss)
    assert ("action_log_prob" in steps.keys()) == (kind == "PPO")  # noqa: SIM118 (a TensorDict)
    loss.extend(steps)
    assert set(loss.term.store.sample(1).keys()) == {"observation", "action", "next", "mask"}
    assert called(loss, batch_for(kind, loss))[NAME] != 0


VALUED = ["A2C", "PPO discrete", "TorchRL PPO", "TorchRL PPO, our networks"]


@pytest.mark.parametrize("kind", VALUED)
def test_values_are_kept_as_an_estimator_wrote_them(kind):
    loss = make(kind, baseline="value", form="log", gamma=0.9, weight=1.0)
    rollout = collected(kind, loss)
    base = loss.base_loss
    estimate = theirs.value.GAE(gamma=0.9, lmbda=0.0, value_network=base.critic_network)
    loss.extend(estimate(rollout))
    # A reward more than the critic expected: what one step's advantage is.
    kept, rows = loss.term.store._kept, rollout.reshape(-1)
    keys = loss.hamiltonian.tensor_keys
    found = slice_rewards(kept, keys=keys, gamma=0.9, baseline="value")
    for slice_, errors in zip(kept, found, strict=True):
        for step, error in zip(slice_, errors, strict=True):
            (at,) = (rows["observation"] == step["observation"]).all(-1).nonzero()[0]
            torch.testing.assert_close(error, rows["advantage"][at, 0], atol=1e-5, rtol=1e-5)
    out = called(loss, batch_for(kind, loss))
    assert out[NAME] != 0
    out[NAME].backward()
    critic = base.critic_network_params if "critic_network_params" in base._modules else None
    assert critic is None or all(param.grad is None for param in critic.parameters())


def test_values_that_nobody_wrote_are_named():
    loss = make("PPO", baseline="value")
    with pytest.raises(KeyError, match="state_value"):
        loss.extend(collected("PPO", loss))


def test_each_stream_has_slices_of_its_own():
    loss = make("SAC")
    one, other = collected("SAC", loss, 1, 3), collected("SAC", loss, 1, 3)
    for steps in (one, other):
        steps["next", "done"].zero_()
        steps["next", "terminated"].zero_()
    loss.extend(one)
    loss.extend(other, stream=1)
    assert len(loss.term.store) == 0
    loss.extend(one[:, :1])
    assert len(loss.term.store) == 1


def test_rewards_are_measured_as_they_come():
    loss = make("SAC", horizon=2)
    steps = collected("SAC", loss, 2, 6)
    steps["next", "done"].zero_()
    steps["next", "terminated"].zero_()
    loss.extend(steps)
    expected = steps["next", "reward"].mean()
    torch.testing.assert_close(loss.hamiltonian.scale.mean, expected)
    assert loss.hamiltonian.scale.count == 12


def test_both_what_is_stored_and_what_is_learnt_from_are_prepared():
    def prepare(steps):
        return steps.copy().set("observation", 2.0 * steps["observation"])

    loss = make("SAC", prepare=prepare, capacity=100, slices=64)
    steps = collected("SAC", loss)
    loss.extend(steps)
    kept = loss.term.store._kept
    seen = stored_log_prob(loss.hamiltonian, prepare(kept), sigma=0.1)
    torch.testing.assert_close(kept["action_log_prob"], seen, atol=1e-4, rtol=1e-4)
    # Kept as they came, so that they can be prepared anew.
    rows = steps["observation"].flatten(0, 1)
    assert all((rows == row).all(-1).any() for row in kept["observation"][kept["mask"]])
    drawn = loss.term.store._generator.get_state()
    found = loss.term.step()
    loss.term.store._generator.set_state(drawn)
    assert found == loss.hamiltonian(prepare(loss.term.store.sample(64)))[NAME]


def renamed_td3():
    actor = deterministic_cases.lean_actor(action_key=("team", "act"))
    critic = EnsembleCritic(
        observation={"observation": (sac_cases.OBS,)},
        action_shape=(sac_cases.ACT,),
        num_critics=2,
        num_cells=(8,),
        action_key=("team", "act"),
    )
    return ours.TD3Loss(actor, critic)


def test_the_key_of_values_is_that_of_the_base():
    base = ours.ClipPPOLoss(*lean_nets())
    base.set_keys(value="worth")
    term = hamiltonian_term_of(base, horizon=4, max_age=1000, baseline="value", form="log")
    assert term.loss.store_keys[-2:] == ["worth", ("next", "worth")]
    rollout = make_rollout(base.actor_network, 2, 24)
    for holder in (rollout, rollout["next"]):
        holder["worth"] = torch.randn(2, 24, 1)
    term.extend(rollout)
    assert term.step() != 0


def test_keys_are_those_of_the_base():
    base = renamed_td3()
    keys = {
        "action": ("team", "act"),
        "reward": ("team", "r"),
        "done": "over",
        "terminated": ("team", "dead"),
    }
    base.set_keys(**keys)
    steps = sac_cases.make_batch(2, 24)
    steps["team", "act"] = steps.pop("action")
    after = steps["next"]
    for name in ("reward", "done", "terminated"):
        after[keys[name]] = after.pop(name)
    after.pop("truncated")
    term = hamiltonian_term_of(base, horizon=4, capacity=8, max_age=1000)
    loss = WithHamiltonian(base, term)
    loss.extend(steps)
    assert len(term.store) > 0
    assert loss.hamiltonian.scale.mean != 0
    out = loss(steps.reshape(-1))
    assert out[NAME] != 0
    gradients(loss, out)


def test_draws_are_those_of_the_seed_and_not_torchs():
    results = []
    for seed in (1, 1, 2):
        torch.manual_seed(0)
        loss, batch = filled("SAC", seed=seed, slices=3)
        results.append([called(loss, batch)[NAME].item() for _ in range(4)])
        assert torch.rand(1) != torch.rand(1)
    assert results[0] == results[1] != results[2]
    loss, batch = filled("SAC")
    before = torch.get_rng_state()
    loss.term.step()
    loss.extend(collected("SAC", loss, 2, 0))
    assert torch.equal(torch.get_rng_state(), before)


# ---- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "base",
    [
        lambda: ours.DQNLoss(value_cases.q_network(), action_space="one-hot"),
        lambda: theirs.DQNLoss(value_cases.q_value_actor(), action_space="one-hot"),
    ],
)
def test_a_loss_without_an_actor_is_refused(base):
    with pytest.raises(TypeError, match="`base_loss` must have an `actor_network`, got `DQNLoss`"):
        hamiltonian_term_of(base(), horizon=2, capacity=4, max_age=10)


def test_a_term_of_another_actor_is_refused():
    one, other = sac_cases.lean_loss(), sac_cases.lean_loss()
    term = hamiltonian_term_of(other, horizon=2, capacity=4, max_age=10)
    with pytest.raises(ValueError, match="`term` must be of the actor of `base_loss`"):
        WithHamiltonian(one, term)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("slices", 0), ("period", 0), ("horizon", 0), ("capacity", 0), ("reduction", "none")),
        *(("best", value) for value in (0.0, -0.5, 1.5, float("nan"))),
        ("baseline", "none"),
    ],
)
def test_refusals(name, value):
    with pytest.raises(ValueError, match=f"`{name}` must .*, got `{value}`"):
        make("SAC", **{name: value})


@pytest.mark.parametrize("bound", [0.0, -1.0, float("nan"), float("inf")])
def test_what_no_bound_can_be(bound):
    with pytest.raises(ValueError, match=f"`bound` must be positive and finite, .*, got `{bound}`"):
        hamiltonian_term_of(sac_cases.lean_loss(), horizon=3, max_age=7, bound=bound)


def test_a_loss_has_no_gradients_to_bind_a_term_by():
    base = sac_cases.lean_loss()
    term = hamiltonian_term_of(base, horizon=3, max_age=7, bound=0.5)
    with pytest.raises(ValueError, match=r"`term` must have no bound in a loss, .*, got `0.5`"):
        WithHamiltonian(base, term)


@pytest.mark.parametrize(("was", "now"), [("mean", "value"), ("value", "mean"), ("mean", "mean")])
def test_the_scale_of_another_baseline_is_left(was, now):
    base = LOSSES["PPO"]()
    before, after = (
        hamiltonian_term_of(base, horizon=4, max_age=1000, baseline=baseline)
        for baseline in (was, now)
    )
    before.loss.scale.mean.fill_(7.0)
    after.load_state_dict(before.state_dict())
    assert after.loss.scale.mean.item() == (7.0 if was == now else 0.0)
    # As one loss, which holds the scale as a part as well.
    whole = WithHamiltonian(base, after)
    whole.load_state_dict(WithHamiltonian(base, before).state_dict())
    assert after.loss.scale.mean.item() == (7.0 if was == now else 0.0)
    # Before there was a choice, nothing was said of it.
    old = {key: value for key, value in before.state_dict().items() if key != "baseline"}
    after.loss.scale.mean.fill_(0.0)
    after.load_state_dict(old)
    assert after.loss.scale.mean.item() == 0.0


def test_rewards_in_other_units_are_left():
    base = LOSSES["PPO"]()

    def make(reward_scale):
        return hamiltonian_term_of(
            base, horizon=2, max_age=1000, reward_scale=reward_scale, form="log"
        )

    before, same, other = make(1.0), make(1.0), make(0.1)
    before.extend(collected("PPO", WithHamiltonian(base, before)))
    for after in (same, other):
        after.load_state_dict(before.state_dict())
    assert len(same.store) == len(before.store) > 0
    assert same.loss.scale.count == before.loss.scale.count > 0
    assert len(other.store) == other.loss.scale.count == 0


# ---- in TorchRL's trainer -----------------------------------------------------------------------


def test_in_torchrls_trainer(tmp_path):
    def env():
        return make_env("Pendulum-v1", 2, seed=0)

    torch.manual_seed(0)
    actor = build_actor(env(), num_cells=(8,))
    base = ours.SACLoss(actor, build_critic(env(), num_critics=2, num_cells=(8,)))
    term = hamiltonian_term_of(base, horizon=4, capacity=16, max_age=10_000, weight=1.0)
    loss, seen = WithHamiltonian(base, term), []
    trainer = Trainer(
        collector=Collector(env(), actor, frames_per_batch=32, total_frames=160),
        total_frames=160,
        frame_skip=1,
        loss_module=loss,
        optimizer=torch.optim.Adam(loss.parameters(), lr=1e-2),
        optim_steps_per_batch=4,
        progress_bar=False,
        save_trainer_file=tmp_path / "trainer.pt",
    )
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(500), batch_size=16)
    trainer.register_op("batch_process", lambda batch: (loss.extend(batch), batch)[1])
    trainer.register_op("process_loss", lambda _, losses: (seen.append(losses[NAME]), losses)[1])
    updater = SoftUpdate(base, tau=0.1)
    trainer.register_op("post_optim", updater.step)
    ReplayBufferTrainer(buffer, batch_size=16, flatten_tensordicts=True).register(trainer)
    before = {name: param.detach().clone() for name, param in loss.named_parameters()}
    trainer.train()
    assert term.store.frames == 160
    assert len(term.store) == 16
    assert len(seen) == 20
    assert all(value != 0 and value.isfinite() for value in seen)
    after = dict(loss.named_parameters())
    assert all(not torch.equal(before[name], after[name]) for name in before)


def test_a_plain_tensordict_of_steps_is_enough():
    """Steps of one environment without a batch dimension."""
    loss = make("SAC")
    steps = collected("SAC", loss, 24)
    assert isinstance(steps, TensorDict)
    loss.extend(steps)
    assert loss.term.store.frames == 24
    assert len(loss.term.store) > 0
