"""A round of updates at once is the same updates one by one, bit for bit."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from torchrl_elegant.algorithms import ALGORITHMS, adam
from torchrl_elegant.algorithms.schedules import KLRate
from torchrl_elegant.envs import make_env
from torchrl_elegant.trainers.learner import DivergedError, Learner
from torchrl_elegant.trainers.off_policy import row_keys
from torchrl_elegant.trainers.rollout_learner import RolloutLearner

pytestmark = pytest.mark.usefixtures("graphs")
SIZE = 8
CASES = {
    "sac clipped": ("sac", {"max_grad_norm": 0.1}),
    "modsac": ("modsac", {"trust_window": 5}),
    "td3": ("td3", {}),
    "dqn": ("dqn", {"target_period": 3}),
    "ppo": ("ppo", {"target_kl": 1.0}),
    "a2c": ("a2c", {}),
}


@pytest.fixture
def handed(monkeypatch):
    """Number of steps whose gradients were handed over."""
    made = []
    call = adam.HandedStep.__call__

    def counted(step, grads):
        made.append(call(step, grads))
        return made[-1]

    monkeypatch.setattr(adam.HandedStep, "__call__", counted)
    return made


def config_of(name, **options):
    return ALGORITHMS[name](batch_size=SIZE, num_cells=(8, 8), **options)


def learner_of(config, *, count=3 * SIZE, compile=True, **options):
    """A learner and ``count`` rows."""
    env = make_env("CartPole-v1" if config.actions == ("discrete",) else "Pendulum-v1")
    torch.manual_seed(1)
    env.set_seed(1)
    on_policy = config.family == "on_policy"
    kind = RolloutLearner if on_policy else Learner
    learner = kind(config.assemble(env), compile=compile, **options)
    if on_policy:
        return learner, learner.rows(
            env.rollout(count, learner.policy, break_when_any_done=False).detach()
        )
    rollout = env.rollout(count, break_when_any_done=False)
    learner.observe(rollout)
    return learner, rollout.reshape(-1).select(*row_keys(learner))


def one_by_one(learner, rows):
    return [learner.update(batch) for batch in rows.split(SIZE)]


def at_once(learner, rows):
    return list(learner.learn(rows, SIZE))


def run(way, learner, rows, rounds=3):
    torch.manual_seed(2)
    terms = [way(learner, rows.clone()) for _ in range(rounds)]
    state = {name: value for name, value in learner.state_dict().items() if name != "add_ons"}
    return terms, state, torch.get_rng_state()


def assert_equal(left, right):
    torch.testing.assert_close(right, left, rtol=0.0, atol=0.0)


@pytest.mark.parametrize("case", CASES)
def test_rounds_are_their_updates(case, handed):
    config = config_of(CASES[case][0], **CASES[case][1])
    count = (5 * SIZE + 4) if case == "ppo" else 5 * SIZE
    expected = run(one_by_one, *learner_of(config, count=count))
    assert not handed
    learner, rows = learner_of(config, count=count)
    assert_equal(expected, run(at_once, learner, rows))
    assert learner.updates == 3 * (6 if case == "ppo" else 5)
    # Of each round all but the smaller batch, unless Adam's moments were still to be made.
    assert len(handed) >= 10
    assert all(handed)


class OneRank:
    """Process that averages with nobody."""

    gather = None

    def average_gradients(self, params):
        pass

    def average_(self, value):
        return value


def changed(learner, how):
    """Make the updates of ``learner`` such as cannot be handed over."""
    if how == "hook":
        learner.optimizer.register_step_post_hook(lambda *_: None)
    elif how == "gradient":
        param = next(learner.loss.parameters())
        param.grad = torch.ones_like(param)
    elif how == "setting":
        learner.optimizer.param_groups[0]["amsgrad"] = True
    elif how == "optimizer":
        learner.optimizer = torch.optim.Adam(learner.loss.parameters())


@pytest.mark.parametrize("how", ["plain", "ranks", "add-on", "hook", "setting", "optimizer"])
def test_other_updates_are_made_one_by_one(how, handed):
    config = config_of("dqn", **({"normalize_observation": True} if how == "add-on" else {}))
    options = {"compile": how != "plain"}
    if how == "ranks":
        options["ranks"] = OneRank()
    found = []
    for way in (one_by_one, at_once):
        learner, rows = learner_of(config, **options)
        changed(learner, how)
        found.append(run(way, learner, rows))
    assert_equal(*found)
    assert not handed


def test_gradients_that_are_there_already_count(handed):
    found = []
    for way in (one_by_one, at_once):
        learner, rows = learner_of(config_of("dqn"))
        way(learner, rows)
        changed(learner, "gradient")
        found.append(run(way, learner, rows, rounds=1))
    assert_equal(*found)
    assert not handed


def test_gradients_in_another_order_are_left_to_pytorch(monkeypatch):
    found = []
    for turned in (False, True):
        learner, rows = learner_of(config_of("dqn"))
        run(at_once, learner, rows, rounds=1)
        if turned:
            monkeypatch.setattr(adam.HandedStep, "__call__", lambda step, grads: False)
        found.append(run(at_once, learner, rows, rounds=1))
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-5)
    weight = nn.Parameter(torch.ones(2, 3))
    optimizer = adam.LeanAdam([weight])
    optimizer.compile()
    weight.grad = torch.ones(2, 3)
    optimizer.step()
    optimizer.zero_grad()
    monkeypatch.undo()
    step, before = optimizer.step_of([weight]), weight.detach().clone()
    assert not step([torch.ones(3, 2).t()])
    assert torch.equal(weight, before)
    assert step([torch.ones(2, 3)])
    assert not torch.equal(weight, before)


def test_gradients_of_other_parameters_are_not_taken():
    weight = nn.Parameter(torch.ones(2))
    optimizer = adam.LeanAdam([weight])
    optimizer.compile()
    weight.grad = torch.ones(2)
    optimizer.step()
    assert optimizer.step_of([weight]) is None  # its gradient is there
    optimizer.zero_grad()
    assert optimizer.step_of([weight]) is not None
    assert optimizer.step_of([weight, nn.Parameter(torch.ones(2))]) is None


def test_what_changes_between_rounds_is_seen(graphs, handed):
    found = []
    for way in (one_by_one, at_once):
        learner, rows = learner_of(config_of("ppo"))
        seen = [run(way, learner, rows)]
        rate = KLRate(learner.optimizer, target=0.01)
        rate.follow(torch.tensor(1.0))
        learner.optimizer.load_state_dict(learner.optimizer.state_dict())
        seen.append(run(way, learner, rows))
        learner.loss.critic_coeff.fill_(2.0)
        learner.loss.eval()
        seen.append(run(way, learner, rows, rounds=1))
        found.append(seen)
    assert_equal(*found)
    assert len(graphs) == 2 * 2  # in two modes


def test_an_update_that_no_longer_holds_is_left_to_the_loss(monkeypatch, handed):
    learner, rows = learner_of(config_of("dqn"))
    run(at_once, learner, rows, rounds=2)
    count, bind = len(handed), learner._update_loss.bind

    def bound(*args, **kwargs):
        update = bind(*args, **kwargs)
        update.holds = lambda: False
        return update

    monkeypatch.setattr(learner._update_loss, "bind", bound)
    assert len(list(learner.learn(rows, SIZE))) == 3
    assert len(handed) == count


def test_divergence_in_a_round_ends_it_before_the_step():
    found = []
    for way in (one_by_one, at_once):
        learner, rows = learner_of(config_of("dqn"))
        run(way, learner, rows, rounds=2)
        rows = rows.clone()
        rows["next", "reward"][2 * SIZE] = torch.nan
        with pytest.raises(DivergedError, match="`loss` is nan at update 8; lower"):
            way(learner, rows)
        found.append(learner.state_dict())
    assert_equal(*found)


def test_a_single_batch_is_left_with_its_priorities():
    learner, rows = learner_of(config_of("dqn", priority_alpha=0.6))
    batch = rows[:SIZE].set("priority_weight", torch.ones(SIZE))
    list(learner.learn(batch, SIZE))
    assert (batch["td_error"] > 0).all()


def test_whoever_hears_of_each_update_may_change_the_learner(handed):
    learner, rows = learner_of(config_of("dqn"))
    run(at_once, learner, rows, rounds=2)
    assert handed
    count, learner.is_watched = len(handed), True
    for _ in learner.learn(rows, SIZE):
        learner.optimizer.param_groups[0]["lr"] = 0.0
        before = [param.clone() for param in learner.loss.parameters()]
    assert len(handed) == count
    assert all(map(torch.equal, before, learner.loss.parameters()))
