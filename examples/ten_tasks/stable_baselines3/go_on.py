import gymnasium
from stable_baselines3 import SAC

model = SAC.load("runs/sb3", env=gymnasium.make("Pendulum-v1"))
model.load_replay_buffer("runs/sb3_buffer")
model.learn(1_000, reset_num_timesteps=False)
model.save("runs/sb3")
model.save_replay_buffer("runs/sb3_buffer")
