"""A LLaMA-like decoder of two layers: six kernels, each built once, and caches that are updated in place."""

import numpy as np

import rollergen as rg

WORDS, WIDTH, HEADS, SHARED, DEPTH, HIDDEN, LENGTH, HALF = 256, 64, 4, 2, 16, 176, 48, 8
ops, given = rg.ops, rg.tensor
pos, x, gain = rg.scalar("pos", "int32", 0, LENGTH - 1), given("x", (1, WIDTH)), given("gain", (WIDTH,))
cos, sin = given("cos", (LENGTH, HALF)), given("sin", (LENGTH, HALF))
keys, values = given("keys", (SHARED, LENGTH, DEPTH)), given("values", (SHARED, LENGTH, DEPTH))
normed = ops.rms_norm(x, (WIDTH,), gain, 1e-5)
linear = lambda of, name, count: ops.linear(of, given(name, (count, of.shape[-1])))
heads = lambda name, count: ops.reshape(linear(normed, name, count * DEPTH), (count, 1, DEPTH))
build = lambda expression: rg.build(expression, "cpu", top_k=1)


def rotary(y):
    """Pairs of elements, half a head apart, turned by the angle of the position."""
    partner = lambda h, t, d: rg.select(d < HALF, -1.0, 1.0) * y[h, t, (d + HALF) % DEPTH]
    element = lambda h, t, d: y[h, t, d] * cos[pos, d % HALF] + partner(h, t, d) * sin[pos, d % HALF]
    return rg.compute(y.shape, element)


seen = rg.compute((1, LENGTH), lambda q, t: t <= pos)
context = ops.scaled_dot_product_attention(rotary(heads("wq", HEADS)), keys, values, seen, enable_gqa=True)
gated = ops.silu(linear(normed, "w1", HIDDEN)) * linear(normed, "w3", HIDDEN)
embed = build(ops.embedding(given("token", (1,), "int64"), given("table", (WORDS, WIDTH))))
append_key = build(rg.put(keys, rotary(heads("wk", SHARED)), pos, axis=1))
append_value = build(rg.put(values, heads("wv", SHARED), pos, axis=1))
attend = build(x + linear(ops.reshape(context, (1, HEADS * DEPTH)), "wo", WIDTH))
feed = build(x + linear(gated, "w2", WIDTH))
choose = build(ops.argmax(linear(normed, "head", WORDS), -1))


def generate(model, count, token=1):
    """The `count` tokens that follow, each the likeliest: position by position, over caches that hold all before."""
    norms, turns = {"gain": model["gain"]}, {"cos": model["cos"], "sin": model["sin"]}
    caches = [[np.zeros((SHARED, LENGTH, DEPTH), "float32") for _ in range(2)] for _ in model["layers"]]
    for at in range(count):
        h = embed(token=np.array([token]), table=model["table"])
        for w, (k, v) in zip(model["layers"], caches, strict=True):
            append_key(k, x=h, wk=w["wk"], pos=at, **norms, **turns)
            append_value(v, x=h, wv=w["wv"], pos=at, **norms)
            h = attend(x=h, wq=w["wq"], wo=w["wo"], keys=k, values=v, pos=at, **norms, **turns)
            h = feed(x=h, w1=w["w1"], w2=w["w2"], w3=w["w3"], **norms)
        token = int(choose(x=h, head=model["head"], **norms)[0])
        yield token


def drawn(seed):
    """Weights of a model; one that was trained would have its own."""
    random, inner = np.random.default_rng(seed), SHARED * DEPTH
    weight = lambda rows, width: (random.normal(size=(rows, width)) * 2 / width**0.5).astype("float32")
    rows = {"wq": 64, "wk": inner, "wv": inner, "wo": WIDTH, "w1": HIDDEN, "w3": HIDDEN, "w2": WIDTH}
    angles = np.arange(LENGTH)[:, None] / 10000 ** (np.arange(HALF) / HALF)
    layers = [{name: weight(rows[name], HIDDEN if name == "w2" else WIDTH) for name in rows} for _ in range(2)]
    turns = {"cos": np.cos(angles).astype("float32"), "sin": np.sin(angles).astype("float32")}
    model = {"table": weight(WORDS, WIDTH) * 4, "head": weight(WORDS, WIDTH), "gain": np.ones(WIDTH, "float32")}
    return model | turns | {"layers": layers}


if __name__ == "__main__":
    print(*generate(drawn(0), 32))
    print(append_key.signature)
