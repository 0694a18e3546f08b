import gymnasium
from stable_baselines3 import SAC
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor

model = SAC.load("runs/sb3")
env = Monitor(gymnasium.make("Pendulum-v1"))
mean, std = evaluate_policy(model, env, n_eval_episodes=20)
print(mean, std)
