import torch

from torchrl_elegant import PPOConfig, train


class Residual(torch.nn.Module):
    def __init__(self, outputs):
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 32), torch.nn.Linear(32, 32)
        self.last = torch.nn.Linear(32, outputs)

    def forward(self, observation):
        x = torch.tanh(self.first(observation))
        return self.last(x + torch.tanh(self.second(x)))


networks = {"actor": Residual(2), "critic": Residual(1)}
train(PPOConfig(networks=networks), "CartPole-v1", total_frames=5_000)
