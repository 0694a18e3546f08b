from torchrl_elegant import SACConfig, train

train(SACConfig(), "Pendulum-v1", total_frames=5_000, folder="runs/here")
