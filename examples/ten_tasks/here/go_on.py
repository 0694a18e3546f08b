from torchrl_elegant import resume

resume("runs/here", total_frames=6_000)
