"""A linear layer with its bias, GELU and the residual in one kernel, beside the same in four kernels."""

import rollergen as rg

rows, width = 512, 1024
x, w = rg.tensor("x", (rows, width), "float16"), rg.tensor("w", (width, width), "float16")
b, residual = rg.tensor("b", (width,), "float16"), rg.tensor("residual", (rows, width), "float16")

fused = rg.build(rg.ops.gelu(rg.ops.linear(x, w, b)) + residual, "a100")
h = rg.tensor("h", (rows, width), "float16")
apart = [rg.build(one, "a100") for one in (rg.ops.linear(x, w), h + b, rg.ops.gelu(h), h + residual)]

print("on an A100, as the model predicts it:")
print(f"  one kernel    {1e6 * fused.predicted_time:6.2f} us")
print(f"  four kernels  {1e6 * sum(one.predicted_time for one in apart):6.2f} us")
print(fused.explain())
