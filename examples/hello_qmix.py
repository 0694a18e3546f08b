"""QMIX on VMAS's navigation from the parts alone: a team, its networks, a mixer, the loss.

Run it: ``python examples/hello_qmix.py``. Three agents learn to reach their goals: the return, a
mean over the agents, begins below 0 and comes near 1 within some minutes.
"""

import torch
from tensordict.nn import TensorDictModule
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from torchrl.objectives import SoftUpdate

from torchrl_elegant import make_env
from torchrl_elegant.collectors import SyncCollector
from torchrl_elegant.modules import EpsilonGreedyActor, QMixer, build_q_network
from torchrl_elegant.modules.multiagent import groups_of
from torchrl_elegant.objectives import QMixLoss
from torchrl_elegant.trainers.evaluation import PolicyEvaluator

TASK = {
    "n_agents": 3,
    "collisions": False,
    "agents_with_same_goal": 1,
    "observe_all_goals": False,
    "shared_rew": False,
    "actions": "discrete",
}


def main(total_frames: int = 60_000, warmup: int = 1_000) -> float:
    """Train, and give the mean return of twenty episodes."""
    torch.manual_seed(0)
    torch.set_num_threads(1)  # narrow networks lose time by waking more threads
    env = make_env("vmas/navigation", num_envs=60, seed=0, env_kwargs=TASK)

    # One network values the actions of each agent by what it sees; all agents share it.
    team = groups_of(env)["agents"]
    network = build_q_network(team.one_agent, num_cells=(128, 128), activation="tanh")
    actor = EpsilonGreedyActor(network, epsilon=0.8)

    # A mixer joins their values to that of the team, by what all of them see.
    seen = team.observation_spec_unbatched["agents", "observation"].shape
    mixer = QMixer(seen, n_agents=team.agents.count)
    keys = [("agents", "chosen_action_value"), ("agents", "observation")]
    loss = QMixLoss(
        network, TensorDictModule(mixer, keys, ["chosen_action_value"]), double_dqn=True
    )
    loss.set_keys(reward=("agents", "reward"))  # the team earns the mean of its agents
    loss.make_value_estimator(gamma=0.9)
    target_update = SoftUpdate(loss, tau=0.005)
    optimizer = torch.optim.Adam(loss.parameters(), lr=5e-4, fused=True)

    collector = SyncCollector(env, actor, frames_per_batch=60, total_frames=total_frames)
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(total_frames), batch_size=128)
    for number, data in enumerate(collector, 1):
        buffer.extend(data.reshape(-1))
        actor.explore(max(0.05, 0.8 - 0.75 * number * 60 / 20_000))
        if number * 60 <= warmup:
            continue
        for _ in range(10):  # one update for six frames
            value = loss(buffer.sample())["loss"]
            optimizer.zero_grad()
            value.backward()
            torch.nn.utils.clip_grad_norm_(loss.parameters(), 5.0)
            optimizer.step()
            target_update.step()
    collector.shutdown()

    test_env = make_env("vmas/navigation", num_envs=20, seed=1, env_kwargs=TASK)
    return PolicyEvaluator(test_env, actor, episodes=20).evaluate().return_mean


if __name__ == "__main__":
    print(f"mean return of twenty episodes: {main():.2f}")
