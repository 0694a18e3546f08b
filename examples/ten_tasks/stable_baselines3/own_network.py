import torch
from stable_baselines3 import PPO
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor


class Residual(BaseFeaturesExtractor):
    def __init__(self, observation_space):
        super().__init__(observation_space, features_dim=32)
        self.first = torch.nn.Linear(observation_space.shape[0], 32)
        self.second = torch.nn.Linear(32, 32)

    def forward(self, observation):
        x = torch.tanh(self.first(observation))
        return x + torch.tanh(self.second(x))


policy_kwargs = {
    "features_extractor_class": Residual,
    "share_features_extractor": False,
    "net_arch": [],
}
PPO("MlpPolicy", "CartPole-v1", policy_kwargs=policy_kwargs, seed=0).learn(5_000)
