from stable_baselines3 import SAC

model = SAC("MlpPolicy", "Pendulum-v1", seed=0)
model.learn(5_000)
model.save("runs/sb3")
model.save_replay_buffer("runs/sb3_buffer")
