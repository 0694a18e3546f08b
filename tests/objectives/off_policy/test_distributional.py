"""Critics of distributions: targets, losses and gradients by hand, and a plain reference."""

from __future__ import annotations

import math

import pytest
import torch
from sac_cases import make_batch
from tensordict import TensorDict
from torchrl.objectives import ValueEstimators

from torchrl_elegant.functional import categorical_projection, of_smallest_mean
from torchrl_elegant.modules import DeterministicActor, DistributionalCritic, SquashedGaussianActor
from torchrl_elegant.objectives import REDQLoss, SACLoss, TD3Loss
from torchrl_elegant.objectives.compiled.loss import CompiledLoss

pytestmark = pytest.mark.filterwarnings("ignore:No target network updater")
OBS = {"observation": (1,)}


def constant(loss, outputs, delayed):
    """Make each member's outputs ``[N, K]`` the same at every state and action."""
    for params, rows in (
        (loss.qvalue_network_params, outputs),
        (loss.target_qvalue_network_params, delayed),
    ):
        params["net", "weight_0"].data.zero_()
        params["net", "bias_0"].data.copy_(torch.tensor(rows).unsqueeze(1))
    return loss


def made(kind, probs, delayed, *, gamma=0.5, **options):
    """Loss over atoms 0, 1, 2 whose critics have these probabilities."""
    critic = DistributionalCritic(
        observation=OBS,
        action_shape=(1,),
        num_critics=len(probs),
        num_cells=(),
        atoms=3,
        v_min=0.0,
        v_max=2.0,
    )
    actor = DeterministicActor if kind is TD3Loss else SquashedGaussianActor
    loss = kind(actor(observation=OBS, low=[-1.0], high=[1.0], num_cells=(2,)), critic, **options)
    loss.make_value_estimator(gamma=gamma)
    logs = [[[math.log(p) for p in row] for row in rows] for rows in (probs, delayed)]
    return constant(loss, *logs)


def rows(reward=(0.5, 0.5, 0.5), terminated=(0, 1, 0), truncated=(0, 0, 1)):
    flags = {"terminated": terminated, "truncated": truncated}
    flags = {name: torch.tensor(x).bool().unsqueeze(-1) for name, x in flags.items()}
    count = len(reward)
    after = {
        "observation": torch.zeros(count, 1),
        "reward": torch.tensor(reward).unsqueeze(-1),
        "done": flags["terminated"] | flags["truncated"],
        **flags,
    }
    now = {"observation": torch.zeros(count, 1), "action": torch.zeros(count, 1)}
    return TensorDict({**now, "next": after}, [count])


EVEN, LOW, HIGH = [1 / 3] * 3, [0.5, 0.25, 0.25], [0.25, 0.25, 0.5]
# 0.5 + 0.5 (0, 1, 2) = (0.5, 1, 1.5) with probabilities LOW; a mass of 1 at 0.5 after the end.
TARGETS = torch.tensor([[0.25, 0.625, 0.125], [0.5, 0.5, 0.0], [0.25, 0.625, 0.125]])


def test_terminated_and_truncated_by_hand():
    loss = made(TD3Loss, [EVEN, LOW], [HIGH, LOW], policy_noise=0.0)
    batch = rows()
    fit = loss._fit(batch)
    wanted = [-(TARGETS * torch.tensor(p).log()).sum(-1) for p in (EVEN, LOW)]
    torch.testing.assert_close(fit.losses, torch.stack(wanted))
    torch.testing.assert_close(fit.target, TARGETS @ torch.arange(3.0))
    torch.testing.assert_close(fit.value, torch.tensor([[1.0] * 3, [0.75] * 3]))
    torch.testing.assert_close(fit.next_value[[0, 2]], torch.full((2,), 0.75))
    terms = loss.critic_terms(batch)
    torch.testing.assert_close(terms["loss_qvalue"], fit.losses.sum(0).mean())
    error = (fit.value - fit.target).abs().amax(0)
    torch.testing.assert_close(batch["td_error"], error)
    # d loss / d logits = p - m, averaged over the rows.
    terms["loss_qvalue"].backward()
    grad = loss.qvalue_network_params["net", "bias_0"].grad.squeeze(1)
    torch.testing.assert_close(grad, torch.tensor([EVEN, LOW]) - TARGETS.mean(0))


def test_a_temperature_moves_the_atoms_down_and_what_is_outside_is_kept_at_the_end():
    loss = made(SACLoss, [EVEN, EVEN], [HIGH, LOW])
    cost = torch.tensor([1.0, 1.0, -9.0])
    loss._next_distribution = lambda after: (
        loss._critic.target_logits(after, torch.zeros(3, 1)),
        cost,
    )
    # Rows: 0.5 + 0.5 (z - 1) = (0, 0.5, 1); the end; 0.5 + 0.5 (z + 9) is above all atoms.
    targets = torch.tensor([[0.625, 0.375, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0]])
    torch.testing.assert_close(loss._fit(rows()).target, targets @ torch.arange(3.0))


def test_a_state_after_the_end_may_be_no_number():
    loss = made(TD3Loss, [EVEN], [LOW], policy_noise=0.0)
    batch = rows()
    batch["next", "observation"][1] = torch.nan
    fit = loss._fit(batch)
    torch.testing.assert_close(fit.target, TARGETS @ torch.arange(3.0))
    batch["next", "observation"][2] = torch.nan  # this one has a future
    assert loss._fit(batch).target.isnan().tolist() == [False, False, True]


def test_without_terminated_an_end_is_a_done_as_in_torchrl():
    loss, batch = made(TD3Loss, [EVEN], [LOW], policy_noise=0.0), rows(truncated=(0, 0, 0))
    wanted = loss._fit(batch).target
    del batch["next", "terminated"]
    torch.testing.assert_close(loss._fit(batch).target, wanted)
    assert ("next", "terminated") not in batch.keys(True)


@pytest.mark.parametrize("kind", [TD3Loss, SACLoss])
def test_a_reward_that_is_no_number_reaches_the_loss(kind):
    loss, batch = made(kind, [EVEN], [LOW]), rows(reward=(math.nan, 0.5, 0.5))
    assert loss._fit(batch).losses.isnan().tolist() == [[True, False, False]]


def test_differences_from_an_average_are_no_atoms():
    loss = made(TD3Loss, [EVEN], [LOW])
    with pytest.raises(ValueError, match="`average_rewards` must be False over a Distributional"):
        loss.make_value_estimator(ValueEstimators.TD0, average_rewards=True)


def test_rows_of_several_steps_are_discounted_by_their_steps():
    loss, batch = made(TD3Loss, [EVEN], [LOW], policy_noise=0.0), rows()
    batch["steps_to_next_obs"] = torch.tensor([[2], [1], [1]])
    # 0.5 + 0.25 (0, 1, 2): 0.5, 0.75, 1.0
    first = 0.5 * 0.5 + 0.25 * 0.75 + 0.25 * 1.0
    assert loss._fit(batch).target[0].item() == pytest.approx(first)


def reference(critic, target, batch, action, cost, gamma):
    """Plain loops over rows and atoms."""
    atoms, last = critic.atoms(action.device), len(critic.atoms(action.device)) - 1
    width = (critic.v_max - critic.v_min) / last
    with torch.no_grad():
        probs = target.logits([batch["next", "observation"]], action).softmax(-1)
    online = critic.logits([batch["observation"]], batch["action"]).log_softmax(-1)
    total = 0.0
    for row in range(len(batch)):
        member = min(range(len(probs)), key=lambda i: float(probs[i, row] @ atoms))
        goal = torch.zeros(last + 1)
        for j in range(last + 1):
            goes_on = 0.0 if batch["next", "terminated"][row] else 1.0
            y = batch["next", "reward"][row, 0] + gamma * goes_on * (atoms[j] - cost[row])
            place = (min(max(float(y), critic.v_min), critic.v_max) - critic.v_min) / width
            below = min(int(place), last - 1)
            goal[below] += probs[member, row, j] * (1 - (place - below))
            goal[below + 1] += probs[member, row, j] * (place - below)
        total = total - sum((goal * online[i, row]).sum() for i in range(len(online)))
    return total / len(batch)


@pytest.mark.parametrize("kind", [TD3Loss, SACLoss])
def test_loss_and_gradients_are_those_of_a_plain_reference(kind):
    torch.manual_seed(0)
    batch = make_batch(16)
    features, actions = batch["observation"].shape[-1], batch["action"].shape[-1]
    shapes = {"observation": (features,)}
    bounds = {"low": [-1.0] * actions, "high": [1.0] * actions}
    actor = (DeterministicActor if kind is TD3Loss else SquashedGaussianActor)(
        observation=shapes, **bounds, num_cells=(8,)
    )
    critic = DistributionalCritic(
        observation=shapes, action_shape=(actions,), num_cells=(8,), atoms=7, v_min=-2.0, v_max=2.0
    )
    options = {"policy_noise": 0.0} if kind is TD3Loss else {}
    loss = kind(actor, critic, **options)
    loss.make_value_estimator(gamma=0.9)
    with torch.no_grad():
        for param in loss.target_qvalue_network_params.values(True, True):
            param.add_(0.3 * torch.randn_like(param))
    own = list(loss.qvalue_network_params.parameters())
    state = torch.get_rng_state()
    found = torch.autograd.grad(loss.critic_terms(batch)["loss_qvalue"], own)
    torch.set_rng_state(state)
    with torch.no_grad():
        if kind is TD3Loss:
            action, cost = loss._actor.target(batch["next"])[1], torch.zeros(16)
        else:
            action, log_prob = loss._actor.sample(batch["next"])
            cost = loss._alpha * log_prob
    delayed = loss._critic.delayed
    wanted = torch.autograd.grad(reference(critic, delayed, batch, action, cost, 0.9), own)
    for left, right in zip(found, wanted, strict=True):
        torch.testing.assert_close(left, right, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", [TD3Loss, SACLoss])
def test_each_term_reaches_its_own_parameters(kind):
    loss = made(kind, [EVEN, LOW], [HIGH, LOW])
    reached = {}
    for name, term in loss(rows()).items():
        if name.startswith("loss_"):
            loss.zero_grad()
            term.backward(retain_graph=True)
            params = loss.named_parameters()
            reached[name] = {
                key.split(".")[0] for key, p in params if p.grad is not None and p.grad.any()
            }
    assert reached["loss_qvalue"] == {"qvalue_network_params"}
    assert reached["loss_actor"] <= {"actor_network_params"}


def test_the_actor_climbs_the_mean():
    loss = made(TD3Loss, [EVEN], [LOW])
    loss.qvalue_network_params["net", "weight_0"].data[0, 1] = torch.tensor([0.0, 0.0, 1.0])
    loss.actor_terms(rows())["loss_actor"].backward()
    bias = loss.actor_network_params["net", "layers", "1", "bias"]
    assert bias.grad.item() < 0.0


def test_a_recorded_update_is_the_same(graphs):
    loss = made(TD3Loss, [EVEN, LOW], [HIGH, LOW], policy_noise=0.0)
    loss.critic_terms(rows())["loss_qvalue"].backward()
    bias = loss.qvalue_network_params["net", "bias_0"]
    wanted, bias.grad = bias.grad, None
    compiled = CompiledLoss(loss)
    compiled.backward_terms(rows(), actor=False)
    assert compiled._kinds[0].run is not None
    torch.testing.assert_close(bias.grad, wanted)


def test_state_dicts_bring_the_distributions_along():
    first = made(SACLoss, [EVEN, LOW], [HIGH, LOW])
    second = made(SACLoss, [LOW, LOW], [EVEN, EVEN])
    second.load_state_dict(first.state_dict())
    seen, action = [torch.zeros(2, 1)], torch.zeros(2, 1)
    for name in ("network", "delayed"):
        left, right = (getattr(loss._critic, name) for loss in (first, second))
        assert torch.equal(left.logits(seen, action), right.logits(seen, action))


def test_the_projection_keeps_the_mass_and_inside_the_mean():
    torch.manual_seed(0)
    probs, moved = torch.rand(50, 11).softmax(-1), 3.0 * torch.rand(50, 11) - 1.5
    made = categorical_projection(probs, moved, low=-1.0, high=1.0)
    torch.testing.assert_close(made.sum(-1), torch.ones(50))
    atoms = torch.linspace(-1.0, 1.0, 11)
    torch.testing.assert_close(made @ atoms, (probs * moved.clamp(-1.0, 1.0)).sum(-1))


def test_of_all_members_the_one_with_the_smallest_mean_is_taken_row_by_row():
    probs = torch.tensor([[HIGH, LOW], [EVEN, HIGH], [LOW, EVEN]])
    taken = of_smallest_mean(probs, torch.arange(3.0))
    torch.testing.assert_close(taken, torch.tensor([LOW, LOW]))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DistributionalCritic(atoms=1), "`atoms` must be at least 2, got `1`"),
        (lambda: DistributionalCritic(v_min=1.0, v_max=1.0), "`v_min` must lie below v_max"),
        (
            lambda: made(SACLoss, [EVEN], [EVEN], skip_done_states=True),
            "`skip_done_states` must be False over a DistributionalCritic",
        ),
        (lambda: made(REDQLoss, [EVEN], [EVEN]), "`qvalue_network` must predict values"),
        (
            lambda: made(SACLoss, [EVEN], [EVEN]).make_value_estimator(ValueEstimators.TDLambda),
            "`value_type` must be TD0 over a DistributionalCritic",
        ),
    ],
)
def test_what_does_not_go_together(make, message):
    with pytest.raises(ValueError, match=message):
        make()
