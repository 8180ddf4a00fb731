"""One kernel for every length of a sequence: embedding, sum with the positions and layer norm, of 1 to 512 tokens."""

import numpy as np

import rollergen as rg

S = rg.dim("S", 1, 512)
words, places = rg.tensor("words", (30522, 768), constant=True), rg.tensor("places", (S, 768))
ids = rg.tensor("ids", (S,), "int32")
gain, shift = rg.tensor("gain", (768,), constant=True), rg.tensor("shift", (768,), constant=True)

taken = rg.ops.embedding(ids, words)
block = rg.ops.layer_norm(taken + places, (768,), gain, shift)
kernel = rg.build(block, profile=False)

draw = np.random.default_rng(0)
weights = draw.normal(size=(30522, 768)).astype("float32")
for length in 1, 17, 100, 512:
    position = draw.normal(size=(length, 768)).astype("float32")
    token = draw.integers(0, 30522, length).astype("int32")
    result = kernel(ids=token, words=weights, places=position, gain=np.ones(768, "f4"), shift=np.zeros(768, "f4"))
    h = weights[token].astype("float64") + position
    wanted = (h - h.mean(1, keepdims=True)) / np.sqrt(h.var(1, keepdims=True) + 1e-5)
    print(f"{length:4} tokens: {result.shape}, largest error {np.abs(result - wanted).max():.1e}")
print(kernel.explain())
