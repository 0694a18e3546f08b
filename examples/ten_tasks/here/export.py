from torchrl_elegant import Policy

Policy.load("runs/here/policy.pt").export("policy.onnx")
