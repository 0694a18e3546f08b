import torch
from stable_baselines3 import SAC

actor = SAC.load("runs/sb3", device="cpu").policy.actor
network = torch.nn.Sequential(actor.latent_pi, actor.mu, torch.nn.Tanh())
torch.onnx.export(network, (torch.randn(1, 3),), "sb3_policy.onnx")
