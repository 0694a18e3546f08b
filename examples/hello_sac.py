"""SAC on Pendulum-v1 from the parts alone: environment, networks, collector, buffer, loss.

Run it: ``python examples/hello_sac.py``. It reaches a return near -150 within a minute.
"""

import torch
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from torchrl.envs.utils import ExplorationType, set_exploration_type
from torchrl.objectives import SoftUpdate

from torchrl_elegant import make_env
from torchrl_elegant.collectors import SyncCollector
from torchrl_elegant.modules import build_actor, build_critic
from torchrl_elegant.objectives import SACLoss


def main(total_frames: int = 10_000, warmup: int = 1_000, batch_size: int = 128) -> float:
    """Train, and give the mean return of ten episodes."""
    torch.manual_seed(0)
    torch.set_num_threads(1)  # narrow networks lose time by waking more threads

    # Networks that fit the environment's specs.
    env = make_env("Pendulum-v1", seed=0)
    actor = build_actor(env, num_cells=(64, 64))
    critic = build_critic(env, num_cells=(64, 64))

    # A loss that stands in place of torchrl.objectives.SACLoss, with TorchRL's target updater.
    loss = SACLoss(actor, critic)
    loss.make_value_estimator(gamma=0.99)
    target_update = SoftUpdate(loss, tau=0.005)
    optimizer = torch.optim.Adam(loss.parameters(), lr=1e-3, fused=True)

    # A collector that stands in place of torchrl.collectors.Collector, and TorchRL's own buffer.
    collector = SyncCollector(
        env, actor, frames_per_batch=16, total_frames=total_frames, init_random_frames=warmup
    )
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(total_frames), batch_size=batch_size)

    frames = 0
    for data in collector:
        buffer.extend(data.reshape(-1))
        frames += data.numel()
        if frames <= warmup:
            continue
        for _ in range(data.numel()):  # one update for each frame
            terms = loss(buffer.sample())
            total = terms["loss_actor"] + terms["loss_qvalue"] + terms["loss_alpha"]
            optimizer.zero_grad()
            total.backward()
            optimizer.step()
            target_update.step()
    collector.shutdown()

    # Ten episodes at once, with the best action in place of a random one.
    test_env = make_env("Pendulum-v1", num_envs=10, seed=1)
    with torch.no_grad(), set_exploration_type(ExplorationType.DETERMINISTIC):
        episodes = test_env.rollout(200, actor)
    return episodes["next", "reward"].sum((-1, -2)).mean().item()


if __name__ == "__main__":
    print(f"mean return of ten episodes: {main():.1f}")
