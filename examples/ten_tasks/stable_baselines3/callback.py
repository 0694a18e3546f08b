import gymnasium
from stable_baselines3 import SAC
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor


class Enough(BaseCallback):
    def _init_callback(self):
        self.eval_env = Monitor(gymnasium.make("Pendulum-v1"))

    def _on_step(self):
        if self.n_calls % 250 == 0:
            returns, _ = evaluate_policy(
                self.model, self.eval_env, n_eval_episodes=10, return_episode_rewards=True
            )
            self.logger.record("worst_return", min(returns))
            return min(returns) <= -400
        return True


SAC("MlpPolicy", "Pendulum-v1", seed=0).learn(5_000, callback=Enough())
