import gymnasium

from torchrl_elegant import Policy

env = gymnasium.make("Pendulum-v1")
policy = Policy.load("runs/here/policy.pt")
observation, _ = env.reset(seed=0)
for _ in range(200):
    observation, reward, terminated, truncated, _ = env.step(policy(observation))
