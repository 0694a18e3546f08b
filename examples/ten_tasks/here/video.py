from torchrl_elegant import film

film("runs/here", "video.gif")
