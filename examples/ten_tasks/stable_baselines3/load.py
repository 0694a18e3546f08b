import gymnasium
from stable_baselines3 import SAC

env = gymnasium.make("Pendulum-v1")
model = SAC.load("runs/sb3")
observation, _ = env.reset(seed=0)
for _ in range(200):
    action, _ = model.predict(observation, deterministic=True)
    observation, reward, terminated, truncated, _ = env.step(action)
