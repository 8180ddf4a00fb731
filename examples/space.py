"""The space of aligned programs: what the model chose, how samples spread, and a cost model of one's own."""

import rollergen as rg

C = rg.ops.matmul(rg.tensor("A", (1024, 512)), rg.tensor("B", (512, 768)))
device = rg.load_device("v100")

best = rg.construct(C, device, top_k=3)
space = rg.space(C, device)
sampled = sorted(rg.predict(one, device).seconds for one in space.sample(200, seed=0))
print("chosen of the whole space:", *(f"{1e6 * rg.predict(one, device).seconds:.1f} us" for one in best))
print("200 samples, by tenths:   ", *(f"{1e6 * sampled[i * 20]:.0f}" for i in range(10)), "us")


def fewest_bytes(programs):
    """A cost for each program: the bytes that it moves from and to memory."""
    return [sum(bytes for _, bytes in rg.predict(one, device).stages[0].traffic_bytes) for one in programs]


mine = rg.build(C, device, options=rg.BuildOptions(rank=fewest_bytes))
print(f"by fewest bytes:           {1e6 * mine.predicted_time:.1f} us")
