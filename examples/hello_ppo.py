"""PPO on CartPole-v1 from the parts alone: environments, networks, collector, estimator, loss.

Run it: ``python examples/hello_ppo.py``. It reaches the highest return, 500, within half a minute.
"""

import torch
from torchrl.envs.utils import ExplorationType, set_exploration_type

from torchrl_elegant import make_env
from torchrl_elegant.collectors import SyncCollector
from torchrl_elegant.data import minibatches
from torchrl_elegant.modules import build_stochastic_actor, build_value
from torchrl_elegant.objectives import GAE, ClipPPOLoss


def main(total_frames: int = 60_000, frames_per_batch: int = 1_024, epochs: int = 10) -> float:
    """Train, and give the mean return of ten episodes."""
    torch.manual_seed(0)
    torch.set_num_threads(1)  # narrow networks lose time by waking more threads

    # Eight environments, and networks that fit their specs.
    env = make_env("CartPole-v1", num_envs=8, seed=0)
    actor = build_stochastic_actor(env, num_cells=(64, 64))
    value = build_value(env, num_cells=(64, 64))

    # A loss and an estimator that stand in place of TorchRL's.
    advantage = GAE(gamma=0.98, lmbda=0.9, value_network=value, average_gae=True)
    loss = ClipPPOLoss(actor, value, clip_epsilon=0.2, entropy_coeff=0.0)
    optimizer = torch.optim.Adam(loss.parameters(), lr=1e-3, fused=True)
    collector = SyncCollector(
        env, actor, frames_per_batch=frames_per_batch, total_frames=total_frames
    )

    for rollout in collector:
        with torch.no_grad():
            rows = advantage(rollout).reshape(-1)
        for _ in range(epochs):
            for batch in minibatches(rows, 256):
                terms = loss(batch)
                total = terms["loss_objective"] + terms["loss_critic"]
                optimizer.zero_grad()
                total.backward()
                torch.nn.utils.clip_grad_norm_(loss.parameters(), 0.5)
                optimizer.step()
    collector.shutdown()

    # Ten episodes at once, with the most probable action in place of a drawn one.
    test_env = make_env("CartPole-v1", num_envs=10, seed=1)
    with torch.no_grad(), set_exploration_type(ExplorationType.DETERMINISTIC):
        episodes = test_env.rollout(500, actor, break_when_any_done=False)
    first = episodes["next", "done"].squeeze(-1).cumsum(1).roll(1, 1)
    first[:, 0] = 0
    return (first == 0).sum(1).float().mean().item()  # each step of CartPole brings 1


if __name__ == "__main__":
    print(f"mean return of ten episodes: {main():.1f}")
