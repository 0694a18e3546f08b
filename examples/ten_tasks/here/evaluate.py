from torchrl_elegant import evaluate

result = evaluate("runs/here", episodes=20)
print(result.return_mean, result.return_std)
