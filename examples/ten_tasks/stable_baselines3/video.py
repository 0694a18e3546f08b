import gymnasium
import imageio
from stable_baselines3 import SAC

env = gymnasium.make("Pendulum-v1", render_mode="rgb_array")
model = SAC.load("runs/sb3")
observation, _ = env.reset(seed=0)
pictures, over = [], False
while not over:
    action, _ = model.predict(observation, deterministic=True)
    observation, _, terminated, truncated, _ = env.step(action)
    over = terminated or truncated
    pictures.append(env.render())
imageio.mimsave("sb3_video.gif", pictures)
