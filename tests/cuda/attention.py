"""Attention as one kernel of matrix instructions, for tests: programs of given tiles, and what must agree about them."""

from __future__ import annotations

import numpy as np

import rollergen as rg
from rollergen.emit import emit
from rollergen.expr.dtypes import numpy_dtype
from rollergen.hal.load import load_device
from rollergen.lower.features import Features
from rollergen.program.assemble.chain import matrix_chain_stage
from rollergen.program.chains import chain_roles
from rollergen.program.check import check
from rollergen.program.interpreter import interpret
from rollergen.program.matrix_chains import fits_instruction
from rollergen.program.model import predict
from rollergen.program.rprogram import RProgram
from rollergen.program.serial import from_json, to_json
from rollergen.tile.exact_traffic import traffic
from tests.agreement.chains import chained
from tests.cuda.test_programs import executed

T = rg.tensor
CUDA = Features(exchanges=True, functions={name: name for name in ("exp", "exp2_approx", "max", "max_number")})
"""What the language has that the chain and what puts its chunks together use."""


def operands(heads=2, rows=64, keys=64, depth=64, columns=64, shared=1, dtype="float16"):
    shapes = (heads, rows, depth), (heads // shared, keys, depth), (heads // shared, keys, columns)
    return tuple(T(name, shape, dtype) for name, shape in zip("qkv", shapes, strict=True))


def program(expr, tile, device="a100", instruction="mma"):
    device, graph = load_device(device), chained(expr)
    (op,) = graph.tensor_ops
    roles, one = chain_roles(op), device.instruction(instruction)
    assert fits_instruction(op, roles, one)
    made = RProgram(device.name, graph.inputs, graph.outputs, (matrix_chain_stage(op, roles, tile, one, device),))
    check(made, device)
    return made, device


def arrays_of(made, scale=1.0):
    random = np.random.default_rng(0)
    draw = lambda b: random.random(b.shape) < 0.7 if b.dtype == "bool" else random.standard_normal(b.shape) * scale
    return {b.name: draw(b).astype(numpy_dtype(b.dtype)) for b in made.inputs}


def single(array):
    return np.asarray(array, np.float32)


def agree(expr, made, device, arrays, *, bits=10, modes=(0,), source=None):
    """The text executed in each of the modes, the interpreter and the definition; the interpreter's bytes beside the
    closed forms.

    Weights are rounded before they are summed: each errs by half a unit of the dtype's ``bits``, of the sum's size."""
    (name,) = [b.name for b in made.outputs]
    want = single(expr.evaluate(*[arrays[b.name] for b in made.inputs]))
    found = interpret(made, arrays, device)
    text = source or emit(made, device, "cuda")
    got = [executed(made, text, arrays, mode)[name] for mode in modes]
    size = np.nanmax(np.abs(single(arrays["v"])))
    for one in map(single, (*got, found.outputs[name])):
        assert np.array_equal(np.isnan(one), np.isnan(want))
        np.testing.assert_allclose(one, want, rtol=0, atol=2.0**-bits * size)
    counted = [(one.tensor, one.tiles, one.transactions) for one in found.traffic]
    (stage,) = made.stages
    assert counted == [(t.tensor, t.tiles, t.transactions) for t in traffic(stage, device.backing.transaction_bytes)]
    assert from_json(to_json(made)) == made
    assert 0 < predict(made, device).seconds < 1


def turned(q, k):
    return q, rg.ops.transpose(k, -1, -2)


def by_hand(q, k, v, score):
    """Attention whose weights are rounded to the operands' dtype."""
    (heads, rows, depth), keys, columns = q.shape, k.shape[1], v.shape[2]
    d, j = rg.reduce_axis("d", depth), rg.reduce_axis("j", keys)
    product = lambda h, i, c: rg.sum(q[h, i, d] * k[h, c, d], axis=d, dtype="float32")
    weights = rg.ops.softmax(rg.compute((heads, rows, keys), lambda h, i, c: score(product(h, i, c), h, i, c)))
    narrow = rg.compute(weights.shape, lambda *i: rg.cast(weights[i], q.dtype))
    return rg.compute((heads, rows, columns), lambda h, i, e: rg.sum(narrow[h, i, j] * v[h, j, e], axis=j))


HOSTILE = {
    "all equal": lambda q, k: (q.fill(1), k.fill(1)),
    "large": lambda q, k: (q.fill(100), k.fill(0), k.__setitem__((slice(None), 11), 100)),
    "infinite": lambda q, k: k.__setitem__((0, 7, 3), np.inf),
    "minus infinite": lambda q, k: (np.abs(q, out=q), k.__setitem__((0, slice(None), 3), -np.inf)),
    "not a number": lambda q, k: k.__setitem__((0, 49, 0), np.nan),
    "rising": lambda q, k: (q.fill(1), k.__setitem__(slice(None), np.arange(72, dtype=np.float16)[:, None])),
    "falling": lambda q, k: (q.fill(1), k.__setitem__(slice(None), -np.arange(72, dtype=np.float16)[:, None])),
}
