"""A softmax with a temperature and a soft cap, written by hand: no library has it, and it is one kernel."""

import numpy as np

import rollergen as rg

rows, columns = 256, 1000
x = rg.tensor("x", (rows, columns))
i, j = rg.reduce_axis("i", columns), rg.reduce_axis("j", columns)

capped = rg.compute((rows, columns), lambda r, c: 30 * rg.tanh(x[r, c] / 30) / 0.7, name="capped")
highest = rg.compute((rows,), lambda r: rg.max(capped[r, i], axis=i), name="highest")
total = rg.compute((rows,), lambda r: rg.sum(rg.exp(capped[r, j] - highest[r]), axis=j), name="total")
out = rg.compute((rows, columns), lambda r, c: rg.exp(capped[r, c] - highest[r]) / total[r], name="out")

kernel = rg.build(out)
values = np.random.default_rng(0).normal(scale=20, size=(rows, columns)).astype("float32")
result = kernel(values)
print("sum of the first row:", result[0].sum())
print("largest error beside float64:", np.abs(result - out.evaluate(values)).max())
print("launches:", len(kernel.launches))
print(kernel.explain())
