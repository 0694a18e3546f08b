"""Play an episode with an exported policy, without torch, in the folder of policy.onnx."""

import gymnasium
import onnxruntime

session = onnxruntime.InferenceSession("policy.onnx")
env = gymnasium.make(session.get_modelmeta().custom_metadata_map["env"])
(observation, _), over, total = env.reset(seed=0), False, 0.0
while not over:
    (action,) = session.run(["action"], {"observation": observation[None]})
    observation, reward, terminated, truncated, _ = env.step(action[0])
    over, total = terminated or truncated, total + float(reward)
print(f"return {total:.1f}")
