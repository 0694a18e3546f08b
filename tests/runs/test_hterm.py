"""Whole runs with the Hamiltonian term: every algorithm, every way to collect, and going on."""

from __future__ import annotations

import math
import os
import signal
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from faults.runs import checkpoints, saved_learner
from gymnasium import spaces
from quiet_runs import short_run
from sameness import assert_same

from torchrl_elegant.algorithms import ALGORITHMS, HTermConfig, OnPolicyConfig
from torchrl_elegant.cli.training import train_command
from torchrl_elegant.collectors import SyncCollector
from torchrl_elegant.data import BestSlices
from torchrl_elegant.envs import make_env
from torchrl_elegant.objectives import HamiltonianLoss, HamiltonianTerm
from torchrl_elegant.objectives.hamiltonian.loss import slice_rewards
from torchrl_elegant.objectives.hamiltonian.stored_actions import stored_log_prob
from torchrl_elegant.runs.metrics import read_metrics
from torchrl_elegant.runs.train import TrainResult, resume, run_with, stored_run
from torchrl_elegant.trainers import off_policy, on_policy
from torchrl_elegant.trainers.learner import Learner
from torchrl_elegant.trainers.rollout_learner import RolloutLearner

POINT = "faults.fault_envs:point"
TERM = HTermConfig(horizon=4, slices=4, period=2, capacity=16)
DATA = {"normalize_observation": True, "normalize_value": True, "reward_scale": 0.5}
REPLAY = {"n_steps": 3, "priority_alpha": 0.6, "long_return_weight": 0.1, **DATA}
WORKERS = {"num_workers": 2, "num_envs": 2, "frames_per_batch": 40, "eval_interval": 80}


class Dials(gymnasium.Env):
    """Takes two choices at once; sees a dict of a vector and a number."""

    observation_space = spaces.Dict(
        {"a.b": spaces.Box(-1.0, 1.0, (2,)), "c": spaces.Dict(d=spaces.Box(-1.0, 1.0, ()))}
    )
    action_space = spaces.MultiDiscrete([3, 2])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._observe(), {}

    def step(self, action):
        self.steps += 1
        return self._observe(), float(action.flat[0]), self.steps == 5, False, {}

    def _observe(self):
        draw = self.np_random.uniform
        return {"a.b": np.float32(draw(-1, 1, 2)), "c": {"d": np.float32(draw(-1, 1))}}


class Arm(Dials):
    """The same with a movement."""

    action_space = spaces.Box(-2.0, 2.0, (1, 2), np.float32)


def config(name: str, hterm: HTermConfig | None = TERM, **options):
    kind = ALGORITHMS[name]
    if issubclass(kind, OnPolicyConfig):
        small = {"batch_size": 10} if name == "a2c" else {"batch_size": 10, "epochs": 2}
    else:
        small = {"batch_size": 8, "warmup": 20, "buffer_size": 1_000}
    if name == "redq":
        small["updates_per_frame"] = 4.0
    return kind(num_cells=(8,), hterm=hterm, **{**small, **options})


@pytest.fixture
def go(tmp_path: Path):
    def start(config, env=POINT, name: str = "run", **run) -> TrainResult:
        run = {"frames_per_batch": 30, **run}
        return short_run(config, env, tmp_path / name, 120, **run)

    return start


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Learner, dict]]:
    """The learner of every run of a test, and its state when the run's loop began."""
    seen: list[tuple[Learner, dict]] = []

    def watch(module, name: str, place: int) -> None:
        loop = getattr(module, name)

        def spy(*args, **kwargs):
            seen.append((args[place], deepcopy(args[place].state_dict())))
            return loop(*args, **kwargs)

        monkeypatch.setattr(module, name, spy)

    watch(off_policy, "train_off_policy", 2)
    watch(on_policy, "train_on_policy", 1)
    return seen


def term_of(learner: Learner) -> HamiltonianTerm:
    return learner.add_ons["hterm"].term


def weights(learner: Learner) -> torch.Tensor:
    return torch.cat([param.detach().reshape(-1) for param in learner.loss.parameters()])


# ---- every algorithm, every option, every way to collect ----------------------------------------

BOTH = ("sync", "async")
PIXELS = {"env_kwargs": {"shape": [8, 8, 3], "length": 7}}
CASES = {
    "a2c": ("a2c", POINT, {}, {}),
    "a2c, choices": ("a2c", "CartPole-v1", {}, {}),
    "ppo": ("ppo", POINT, {}, {}),
    "ppo, choices": ("ppo", "CartPole-v1", {}, {}),
    "ppo, several choices of a dict": ("ppo", Dials, {}, {}),
    "ppo, scales": ("ppo", POINT, {**DATA, "advantage": "vtrace"}, {}),
    "ppo, a movement of two dimensions": ("ppo", Arm, {"normalize_observation": True}, {}),
    "ppo, pixels": ("ppo", "pixel_toys:Choices", {}, PIXELS),
    "ppo, parallel": ("ppo", POINT, {}, {"collector": "parallel", **WORKERS}),
    "ppo, async": ("ppo", POINT, {"advantage": "vtrace"}, {"collector": "async", **WORKERS}),
    "ddpg": ("ddpg", POINT, {}, {}),
    "td3": ("td3", POINT, {}, {}),
    "td3, everything": ("td3", POINT, REPLAY, {"num_envs": 2}),
    "td3, a movement of two dimensions": ("td3", Arm, {}, {}),
    "sac": ("sac", POINT, {}, {}),
    "sac, everything": ("sac", POINT, REPLAY, {"num_envs": 2}),
    "sac, a movement of two dimensions": ("sac", Arm, {"normalize_observation": True}, {}),
    "sac, pixels": ("sac", "pixel_toys:Film", {}, PIXELS),
    "sac, async": ("sac", POINT, {}, {"collector": "async", "num_workers": 2, "num_envs": 2}),
    "modsac": ("modsac", POINT, {"std_regularization": 0.1}, {}),
    "redq": ("redq", POINT, {}, {}),
    "discrete_sac": ("discrete_sac", "CartPole-v1", {}, {}),
    "discrete_sac, async": (
        "discrete_sac",
        "CartPole-v1",
        REPLAY,
        {"collector": "async", "num_workers": 1, "num_envs": 2},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_run_reports_the_term(go, runs, case):
    name, env, options, run = CASES[case]
    result = go(config(name, **options), env, **run)
    last = read_metrics(result.folder / "metrics.csv")[-1]
    assert math.isfinite(last["loss_hamiltonian"])
    ((learner, _),) = runs
    assert 0 < len(term_of(learner).store) <= TERM.capacity
    assert math.isfinite(term_of(learner).loss.scale.spread)
    stored = saved_learner(checkpoints(result.folder)[-1])["add_ons"]["hterm"]
    assert_same(stored, term_of(learner).state_dict())


def test_a_run_without_it_has_no_column_for_it(go):
    assert "loss_hamiltonian" not in go(config("sac", None)).history[-1]


@pytest.mark.parametrize("form", ["ratio", "log", "imitate"])
@pytest.mark.parametrize(("name", "baseline"), [("ppo", "value"), ("ppo", "mean"), ("td3", "zero")])
def test_every_form_runs(go, runs, name, form, baseline):
    term = replace(TERM, form=form, baseline=baseline, gamma=0.5, bound=None)
    assert math.isfinite(go(config(name, term)).history[-1]["loss_hamiltonian"])
    ((learner, _),) = runs
    kept = set(term_of(learner).store.sample(1).keys(True, True))
    assert ("action_log_prob" in kept) == (form == "ratio")
    assert ({"state_value", ("next", "state_value")} <= kept) == (baseline == "value")


@pytest.mark.parametrize(
    ("name", "env"),
    [("ppo", POINT), ("sac", POINT), ("td3", POINT), ("discrete_sac", "CartPole-v1")],
)
def test_without_weight_a_run_is_the_one_without_it_bit_for_bit(go, runs, name, env):
    for number, hterm in enumerate((None, replace(TERM, weight=0.0), TERM)):
        go(config(name, hterm), env, name=str(number), num_envs=2)
    plain, weightless, usual = (weights(learner) for learner, _ in runs)
    assert torch.equal(plain, weightless)
    assert not torch.equal(plain, usual)


# ---- when the term joins ------------------------------------------------------------------------


def taught(config, steps: int = 24):
    """A learner that has seen a rollout, and rows of it to learn from."""
    env = make_env("Pendulum-v1", 4, seed=0)
    kind = RolloutLearner if isinstance(config, OnPolicyConfig) else Learner
    learner = kind(config.assemble(env))
    with torch.no_grad():
        rollout = env.rollout(steps, learner.policy, break_when_any_done=False)
    if kind is RolloutLearner:
        return learner, learner.rows(rollout)
    learner.observe(rollout)
    return learner, rollout.reshape(-1)


def joined(learner: Learner, rows, count: int) -> list[tuple[bool, bool]]:
    """Of each update, whether the actor learnt, and whether there was a term."""
    found = []
    for _ in range(count):
        terms = learner.update(rows[torch.randint(len(rows), (16,))])
        found.append(("loss_actor" in terms, "loss_hamiltonian" in terms))
    return found


@pytest.mark.parametrize(
    ("name", "options", "actor_period"),
    [("sac", {}, 1), ("td3", {}, 2), ("redq", {}, 4), ("ddpg", {}, 1), ("modsac", {}, None)],
)
@pytest.mark.parametrize("period", [1, 3])
def test_it_joins_every_few_of_the_updates_in_which_the_actor_learns(
    name, options, actor_period, period
):
    learner, rows = taught(config(name, replace(TERM, period=period), **options))
    updates = joined(learner, rows, 24)
    if actor_period is not None:
        assert [acts for acts, _ in updates] == ([False] * (actor_period - 1) + [True]) * (
            24 // actor_period
        )
    else:
        assert 0 < sum(acts for acts, _ in updates) < 24
    terms = [term for acts, term in updates if acts]
    assert terms == [number % period == 0 for number in range(len(terms))]
    assert not any(term for acts, term in updates if not acts)


def test_on_policy_every_update_moves_the_actor():
    learner, rows = taught(config("ppo", replace(TERM, period=3)))
    terms = ["loss_hamiltonian" in learner.update(rows[:16]) for _ in range(9)]
    assert terms == [True, False, False] * 3


def test_an_actor_that_rests_is_left_alone():
    learner, rows = taught(config("td3", replace(TERM, period=1, weight=10.0)))
    before = [param.clone() for param in term_of(learner).loss.parameters()]
    learner.update(rows[:16])
    for old, new in zip(before, term_of(learner).loss.parameters(), strict=True):
        assert torch.equal(old, new)


def test_without_slices_there_is_no_term():
    learner, rows = taught(config("sac", replace(TERM, horizon=50)))
    assert len(term_of(learner).store) == 0
    assert not any(term for _, term in joined(learner, rows, 4))


def apart(learner: Learner, rows, monkeypatch) -> list[tuple[torch.Tensor, ...]]:
    """Of each parameter, its gradient by loss and term, by the loss alone, and by autograd of the
    term alone, all at one point."""
    seen: list[list[torch.Tensor]] = []
    monkeypatch.setattr(
        learner.optimizer,
        "step",
        lambda: seen.append([param.grad.clone() for param in learner._params]),
    )
    generator = term_of(learner).store._generator.get_state()
    assert "loss_hamiltonian" in learner.update(rows[:16])
    term = learner.add_ons.pop("hterm").term
    learner.update(rows[:16])
    term.store._generator.set_state(generator)
    term._calls = 0
    term.step().backward()
    own = [torch.zeros_like(p) if p.grad is None else p.grad for p in learner._params]
    actor = {id(param) for param in term.loss.parameters()}
    whole = list(zip(*seen, own, strict=True))
    return [each for each, p in zip(whole, learner._params, strict=True) if id(p) in actor] + [
        each for each, p in zip(whole, learner._params, strict=True) if id(p) not in actor
    ]


def size_of(grads) -> float:
    return torch.cat([grad.flatten() for grad in grads]).norm().item()


@pytest.mark.parametrize("bound", [None, 1e-2, 0.3, 1e6])
@pytest.mark.parametrize("name", ["ppo", "ddpg"])
def test_the_gradient_is_that_of_loss_and_term_together(monkeypatch, name, bound):
    """By autograd of both, at one point, the term's brought down to its bound."""
    learner, rows = taught(config(name, replace(TERM, weight=0.5, bound=bound)))
    count = len(list(term_of(learner).loss.parameters()))
    every = apart(learner, rows, monkeypatch)
    _, base, own = zip(*every[:count], strict=True)
    assert min(size_of(base), size_of(own)) > 1e-3
    part = 1.0 if bound is None else min(1.0, bound * size_of(base) / size_of(own))
    assert (part < 1.0) == (bound in (1e-2, 0.3))
    for both, base_grad, term_grad in every[:count]:
        torch.testing.assert_close(both, base_grad + part * term_grad, rtol=1e-4, atol=1e-6)
    added = size_of(both - base_grad for both, base_grad, _ in every[:count])
    assert added == pytest.approx(part * size_of(own), rel=1e-2)
    # On-policy the rest is as it was; a critic's target has moved on from the one to the other.
    if name == "ppo":
        assert all(torch.equal(both, base_grad) for both, base_grad, _ in every[count:])
    assert not any(term_grad.any() for *_, term_grad in every[count:])


@pytest.mark.parametrize("bound", [None, 1e-2, 1.0])
def test_without_weight_not_a_bit_of_the_gradient_changes(monkeypatch, bound):
    learner, rows = taught(config("ppo", replace(TERM, weight=0.0, bound=bound)))
    for both, base, own in apart(learner, rows, monkeypatch):
        assert torch.equal(both, base)
        assert not own.any()


# ---- what the store sees ------------------------------------------------------------------------


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, torch.Tensor, torch.Tensor]]:
    """Stream, rows and slices of everything that a store was shown."""
    seen, extend = [], BestSlices.extend

    def spy(self, batch, *, stream=0):
        slices = extend(self, batch, stream=stream)
        rows = torch.cat([batch["observation"], batch["action"]], -1)
        seen.append((stream, rows, slices))
        return slices

    monkeypatch.setattr(BestSlices, "extend", spy)
    return seen


@pytest.mark.parametrize(
    ("name", "run", "frames"),
    [
        ("sac", {"num_envs": 4, "frames_per_batch": 16, "total_frames": 70}, 68),
        ("sac", {"num_envs": 1, "frames_per_batch": 16, "total_frames": 70}, 70),
        (
            "sac",
            {"collector": "async", "num_workers": 2, "num_envs": 2, "frames_per_batch": 4}
            | {"total_frames": 402},
            400,
        ),
        ("ppo", {"num_envs": 3, "total_frames": 100}, 102),
        ("ppo", {"collector": "parallel", **WORKERS, "total_frames": 90}, 92),
        ("ppo", {"collector": "async", **WORKERS, "total_frames": 90}, 92),
    ],
)
def test_the_store_sees_every_row_once(go, runs, shown, name, run, frames):
    go(config(name), **run)
    ((learner, _),) = runs
    rows = torch.cat([rows.flatten(0, 1) for _, rows, _ in shown])
    assert term_of(learner).store.frames == len(rows) == frames
    assert len(rows.unique(dim=0)) == frames
    assert len({stream for stream, _, _ in shown}) == (
        2 if name == "sac" and "collector" in run else 1
    )
    # Steps of an episode of 20 stand in a row, at one place, from batch to batch.
    slices = torch.cat([slices for *_, slices in shown])
    assert len(slices) > frames / 8
    place, step = slices["observation"].unbind(-1)
    real = slices["mask"]
    assert torch.equal(
        place.masked_fill(~real, 0), place[:, :1].expand_as(place).masked_fill(~real, 0)
    )
    expected = step[:, :1] + torch.arange(4) / 20
    torch.testing.assert_close(step[real], expected[real])


@pytest.mark.parametrize("name", ["sac", "discrete_sac"])
def test_actions_of_the_warm_up_are_weighed_by_what_the_actor_finds(go, runs, name):
    """A collector that draws by chance leaves 0, a certainty, where a policy writes its own."""
    env = "CartPole-v1" if name == "discrete_sac" else "Pendulum-v1"
    go(config(name, replace(TERM, form="ratio"), warmup=118), env)
    ((learner, _),) = runs
    kept = term_of(learner).store.sample(16)
    found = stored_log_prob(term_of(learner).loss, kept, sigma=0.1)
    # The last update has moved it a little since.
    torch.testing.assert_close(kept["action_log_prob"], found.detach(), rtol=0.2, atol=0.2)
    assert (kept["action_log_prob"].abs() > 0.1).all()


def rollouts_of(learner: Learner, env, frames: int):
    return iter(
        SyncCollector(
            env,
            learner.policy,
            frames_per_batch=frames,
            total_frames=-1,
            auto_register_policy_transforms=False,
        )
    )


def test_a_rollouts_slices_are_shown_as_the_policy_sees_them(monkeypatch):
    env = make_env("Pendulum-v1", 4, seed=0)
    conf = config("ppo", replace(TERM, period=1), normalize_observation=True)
    learner = RolloutLearner(conf.assemble(env))
    rollouts = rollouts_of(learner, env, 80)
    rows = [learner.rows(next(rollouts)) for _ in range(2)][-1]
    seen, backward = [], HamiltonianLoss.backward_term
    monkeypatch.setattr(
        HamiltonianLoss,
        "backward_term",
        lambda loss, slices: seen.append(slices) or backward(loss, slices),
    )
    state = term_of(learner).store._generator.get_state()
    learner.update(rows[:16])
    term_of(learner).store._generator.set_state(state)
    (shown,), raw = seen, term_of(learner).store.sample(TERM.slices)
    norm = learner.policy.norm
    assert norm.scale_0.sub(1).abs().min() > 0.01
    assert torch.equal(shown["observation"], norm("observation", raw["observation"]))
    assert not torch.equal(shown["observation"], raw["observation"])
    ours = stored_log_prob(term_of(learner).loss, shown, sigma=0.1)
    policys = learner.policy.actor.head([norm("observation", raw["observation"])])
    assert torch.equal(ours, policys.log_prob(raw["action"]))


@pytest.mark.parametrize(
    "options", [{}, DATA, {**DATA, "advantage": "vtrace"}, {"clip_value": 0.2, "reward_scale": 3.0}]
)
def test_slices_of_a_rollout_hold_what_was_seen_and_what_it_was_worth(monkeypatch, options):
    """Observations as they came, rewards as losses see them, and the values of both states."""
    env = make_env("Pendulum-v1", 4, seed=0)
    term = replace(TERM, capacity=None, form="ratio")
    learner = RolloutLearner(config("ppo", term, **options).assemble(env))
    found, estimate = [], learner.loss.estimate
    monkeypatch.setattr(learner.loss, "estimate", lambda r: found.append(estimate(r)) or found[-1])
    rollouts, raw = rollouts_of(learner, env, 80), []
    for _ in range(3):
        rollout = next(rollouts)
        raw.append(rollout.clone())
        learner.rows(rollout)
        assert torch.equal(rollout["observation"], raw[-1]["observation"])
        assert torch.equal(rollout["next", "reward"], raw[-1]["next", "reward"])
    raw, found = (torch.cat([part.reshape(-1) for part in parts]) for parts in (raw, found))
    kept = term_of(learner).store._kept
    assert kept.numel() == 240
    same = (kept["observation"].reshape(-1, 1, 3) == raw["observation"]).all(-1)
    assert (same.sum(1) == 1).all()
    rows, steps = found[same.long().argmax(1)], kept.reshape(-1)
    for key in ("action", "action_log_prob", "state_value"):
        assert torch.equal(steps[key], rows[key]), key
    for key in ("reward", "state_value", "terminated", "done"):
        assert torch.equal(steps["next", key], rows["next", key]), key
    # What the critic finds of states as it is shown them, before anything was learnt.
    for holder in (rows, rows["next"]):
        value = learner.loss.critic_network.values([holder["observation"]])
        torch.testing.assert_close(holder["state_value"], value.detach())
    # Of what was prepared, observations stay behind and rewards do not.
    if "normalize_observation" in options:
        assert not torch.allclose(rows["observation"], steps["observation"], atol=0.1)
    if options:
        scaled = rows["next", "reward"] / raw["next", "reward"][same.long().argmax(1)]
        assert (scaled - 1.0).abs().min() > 0.01
    loss = term_of(learner).loss
    errors = slice_rewards(kept, keys=loss.tensor_keys, gamma=0.99, baseline="value")
    value, after = rows["state_value"], rows["next"]
    expected = after["reward"] + 0.99 * after["state_value"] * ~after["terminated"] - value
    torch.testing.assert_close(errors.flatten(), expected.squeeze(-1))
    # And that is what the term's scale is of.
    torch.testing.assert_close(loss.scale.mean, errors.mean(), rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(loss.scale.spread, errors.std(correction=0))


def test_log_probabilities_are_those_of_the_policy_that_acted(monkeypatch):
    """Whose scales move as soon as the same batch is counted."""
    term = replace(TERM, form="ratio")
    learner, rows = taught(config("sac", term, normalize_observation=True))
    batch, store = rows.reshape(4, -1), term_of(learner).store
    batch["observation"] = batch["observation"] * 2.0
    stored, extend = [], store.extend
    monkeypatch.setattr(store, "extend", lambda b, **o: stored.append(b) or extend(b, **o))
    acted = deepcopy(learner.policy)
    learner.observe(batch)
    with torch.no_grad():
        found, after = (
            policy.actor.get_dist(
                batch.clone().set("observation", policy.norm("observation", batch["observation"]))
            ).log_prob(batch["action"])
            for policy in (acted, learner.policy)
        )
    torch.testing.assert_close(stored[0]["action_log_prob"], found, rtol=1e-3, atol=1e-3)
    assert not torch.allclose(stored[0]["action_log_prob"], after, rtol=1e-3, atol=1e-3)


# ---- going on -----------------------------------------------------------------------------------

EACH = pytest.mark.parametrize("name", ["ppo", "sac"])


@EACH
def test_a_run_goes_on_with_its_slices_and_scale(go, runs, name):
    first = go(config(name))
    resume(first.folder, total_frames=180)
    (before, _), (after, at_start) = runs
    assert_same(before.state_dict()["add_ons"]["hterm"], at_start["add_ons"]["hterm"])
    assert len(at_start["add_ons"]["hterm"]["store"]["kept"]["action"]) > 0
    assert at_start["add_ons"]["hterm"]["scale"]["count"] > 50
    assert at_start["add_ons"]["hterm"]["calls"] > 0
    assert term_of(after).store.frames == 180
    assert term_of(after)._calls > term_of(before)._calls


@pytest.mark.parametrize("kind", [Dials, Arm])
def test_slices_of_nested_and_dotted_entries_go_on_too(go, runs, kind):
    first = go(config("ppo"), kind)
    resume(first.folder, total_frames=180, env_factory=kind)
    (before, _), (_, at_start) = runs
    assert_same(before.state_dict()["add_ons"]["hterm"], at_start["add_ons"]["hterm"])
    assert {"a.b", ("c", "d")} < set(term_of(before).store.sample(1).keys(True, True))


@EACH
def test_a_run_that_was_stopped_midway_goes_on(go, runs, monkeypatch, name):
    update = Learner.update

    def interrupted(self, batch, *args):
        if self.updates == 30 - (name == "ppo") * 20:
            os.kill(os.getpid(), signal.SIGTERM)
        return update(self, batch, *args)

    monkeypatch.setattr(Learner, "update", interrupted)
    first = go(config(name), total_frames=240)
    (before, _) = runs[0]
    assert term_of(before).store.frames < 240
    resume(first.folder)
    assert_same(before.state_dict()["add_ons"]["hterm"], runs[1][1]["add_ons"]["hterm"])
    assert term_of(runs[1][0]).store.frames == 240


def changed(folder: Path, hterm: HTermConfig | None, frames: int = 180) -> TrainResult:
    _, run, config = stored_run(folder)
    return run_with(replace(run, total_frames=frames), replace(config, hterm=hterm), folder)


@EACH
def test_a_run_can_take_it_up(go, runs, name):
    first = go(config(name, None))
    second = changed(first.folder, TERM)
    (before, _), (after, at_start) = runs
    assert torch.equal(
        weights(before),
        torch.cat(
            [*(at_start["loss"][key].reshape(-1) for key, _ in before.loss.named_parameters())]
        ),
    )
    assert term_of(after).store.frames == 60
    # The metrics of before have no value, and a column from now on.
    rows = read_metrics(second.folder / "metrics.csv")
    found = [math.isfinite(row["loss_hamiltonian"]) for row in rows]
    assert found == [False, False, True]
    assert list(rows[0])[-1] == "loss_hamiltonian"
    assert stored_run(first.folder)[2].hterm == TERM
    assert resume(first.folder, total_frames=240).history[-1]["frames"] == 240


@EACH
def test_a_run_can_leave_it_off(go, runs, name):
    first = go(config(name))
    second = changed(first.folder, None)
    assert "hterm" not in runs[1][0].add_ons
    assert [math.isfinite(row["loss_hamiltonian"]) for row in second.history] == [True, True, False]
    assert "hterm" not in saved_learner(checkpoints(first.folder)[-1])["add_ons"]
    # Taken up again it starts anew.
    changed(first.folder, TERM, frames=240)
    assert term_of(runs[2][0]).store.frames == 60


def test_words_change_it_when_a_run_goes_on(go, runs):
    first = go(config("sac"))
    words = [f"resume={first.folder}", "total_frames=150", "hterm.weight=0.5", "hterm.period=3"]
    assert train_command(words, program="train", default="sac") == 0
    term = term_of(runs[1][0])
    assert (term.loss.weight, term.period, term.slices) == (0.5, 3, 4)
    assert_same(runs[0][0].state_dict()["add_ons"]["hterm"], runs[1][1]["add_ons"]["hterm"])


def test_a_smaller_store_keeps_the_best(go, runs):
    first = go(config("ppo", replace(TERM, capacity=20)))
    changed(first.folder, replace(TERM, capacity=5))
    (before, _), (_, at_start) = runs
    kept = at_start["add_ons"]["hterm"]["store"]["kept"]["action"]
    assert torch.equal(kept, before.state_dict()["add_ons"]["hterm"]["store"]["kept"]["action"][:5])


@EACH
def test_slices_of_another_length_are_left_and_told(go, runs, caplog, name):
    first = go(config(name))
    changed(first.folder, replace(TERM, horizon=3))
    (before, _), (after, at_start) = runs
    found = at_start["add_ons"]["hterm"]
    assert found["store"]["kept"] == {}
    # The scale of rewards is the same for slices of any length.
    assert_same(term_of(before).state_dict()["scale"], found["scale"])
    assert term_of(after).store.sample(2).shape == (2, 3)
    (line,) = [text for text in caplog.messages if "H-term" in text]
    assert "`horizon` must be the 4 steps of the stored slices, got `3`" in line


def test_slices_without_what_another_form_reads_are_left_and_told(go, runs, caplog):
    first = go(config("sac"))
    changed(first.folder, replace(TERM, form="ratio"))
    assert runs[1][1]["add_ons"]["hterm"]["store"]["kept"] == {}
    (line,) = [text for text in caplog.messages if "H-term" in text]
    assert "got `action_log_prob`" in line
    changed(first.folder, TERM, frames=240)
    assert set(runs[2][1]["add_ons"]["hterm"]["store"]["kept"]) < set(
        runs[1][0].state_dict()["add_ons"]["hterm"]["store"]["kept"]
    )
    assert term_of(runs[2][0]).store.frames == 120


@pytest.mark.parametrize(
    ("name", "before", "after", "lacks"),
    [
        ("sac", {"form": "log"}, {}, None),
        ("sac", {"form": "ratio"}, {}, None),
        ("sac", {}, {"form": "ratio"}, "action_log_prob"),
        ("ppo", {"form": "ratio"}, {"form": "log", "baseline": "mean"}, None),
        ("ppo", {"baseline": "mean"}, {}, "state_value"),
        ("ppo", {"form": "log"}, {"form": "ratio"}, "action_log_prob"),
        ("ppo", {"bound": None, "best": 0.5, "capacity": None}, {}, None),
    ],
)
def test_slices_go_on_where_they_have_what_is_read(caplog, name, before, after, lacks):
    learner, rows = taught(config(name, replace(TERM, **before)))
    other, _ = taught(config(name, replace(TERM, **after)), steps=8)
    other.load_state_dict(learner.state_dict())
    told = [text for text in caplog.messages if "H-term begins with a new store" in text]
    anew = [text for text in caplog.messages if "H-term measures rewards anew" in text]
    assert bool(anew) == (term_of(learner).loss.baseline != term_of(other).loss.baseline)
    if lacks is None:
        assert not told
        kept = term_of(learner).store._kept["action"][:16]
        assert torch.equal(term_of(other).store._kept["action"], kept)
        assert "loss_hamiltonian" in other.update(rows[:16])
    else:
        assert f"got `{lacks}`" in told[0]


def test_the_terms_own_state_is_what_a_learner_stores():
    learner, rows = taught(config("sac"))
    joined(learner, rows, 3)
    other, _ = taught(config("sac"), steps=8)
    assert isinstance(term_of(other), HamiltonianTerm)
    other.load_state_dict(deepcopy(learner.state_dict()))
    assert_same(other.state_dict()["add_ons"]["hterm"], learner.state_dict()["add_ons"]["hterm"])
    found = []
    for each in (learner, other):
        torch.manual_seed(3)
        found.append([each.update(rows[:16].clone()) for _ in range(4)])
    assert_same(*found)
