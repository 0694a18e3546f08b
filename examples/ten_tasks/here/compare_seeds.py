from torchrl_elegant import PPOConfig, compare, sweep

for lr in (3e-4, 1e-3):
    sweep(PPOConfig(lr=lr), "CartPole-v1", seeds=3, total_frames=10_000, folder=f"runs/lr{lr}")
compare(["runs/lr0.0003", "runs/lr0.001"], out="comparison")
