"""Random attentions for checks: shapes with tails everywhere, masks, grouped heads, dtypes, hostile scores; and programs
of one kernel (or two, keys in chunks) for them, with tiles drawn among those that construction looks at."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

import rollergen as rg
from rollergen.construct.chains import chain_candidates, runs_lone_rows
from rollergen.construct.ledger import Ledger
from rollergen.emit import emit
from rollergen.expr.canonical import canonicalize
from rollergen.expr.dtypes import numpy_dtype
from rollergen.expr.one_stage import RowLimits
from rollergen.program.check import check
from rollergen.program.interpreter import interpret
from rollergen.program.model import predict
from rollergen.program.rprogram import RProgram
from rollergen.program.serial import from_json, to_json
from rollergen.tile.exact_traffic import traffic
from rollergen.tile.rules import AlignmentRules
from tests.agreement.readers import device, run_opencl
from tests.cuda.test_programs import executed

DEVICES = {
    "v100": ("float16",), "a100": ("float16", "bfloat16"), "h200": ("float16", "bfloat16"), "cpu": ("float32",),
}  # fmt: skip
"""With the dtypes in which attention is one kernel there."""
MASKS = ("none", "causal", "boolean", "rows without keys", "added", "added, causal", "window", "softcap")
SCORES = ("normal", "normal", "normal", "all equal", "large", "one hot", "infinite", "minus infinite")
_UNITS = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 1e-5}
"""What a result may err by, of the largest value: weights are rounded to the dtype before they are summed."""
_WINDOW = 16


@dataclass(frozen=True)
class Case:
    """``shared``: heads of queries for each head of keys; ``kept``: which number its tile has among all, from 0 to 1."""

    device: str
    dtype: str
    heads: int
    shared: int
    rows: int
    keys: int
    depth: int
    columns: int
    mask: str
    scores: str
    kept: float
    seed: int

    @property
    def text(self) -> str:
        shape = f"{self.heads}/{self.shared}x{self.rows}x{self.keys}x{self.depth}x{self.columns}"
        return f"{self.device} {self.dtype} {shape} {self.mask}, {self.scores}"


def drawn(number: int) -> Case:
    """Devices, masks and scores in turns, all else random."""
    random = np.random.default_rng([number, 28])
    name = list(DEVICES)[number % len(DEVICES)]
    pick = lambda some: some[int(random.integers(len(some)))]
    shared = pick((1, 1, 2, 3))
    few = number % 5 == 0  # as in decoding
    whole = (16, 32, 48, 64, 80, 96, 112, 128)
    sizes = whole if name != "cpu" else (*whole, 5, 20, 33)
    depth = pick(sizes)
    columns = depth if random.random() < 0.6 else pick(sizes)
    if name != "cpu" and number % 13 == 0:
        depth = columns = 256
    return Case(
        name, pick(DEVICES[name]), shared * pick((1, 2)), shared, int(random.integers(1, 9 if few else 150)),
        int(random.integers(130, 400)) if few else int(random.integers(2, 200)), depth, columns,
        MASKS[number // 4 % len(MASKS)], SCORES[number // 3 % len(SCORES)], float(random.random()), number,
    )  # fmt: skip


def expression_of(case: Case) -> rg.Tensor:
    q = rg.tensor("q", (case.heads, case.rows, case.depth), case.dtype)
    k, v = (
        rg.tensor(name, (case.heads // case.shared, case.keys, size), case.dtype)
        for name, size in (("k", case.depth), ("v", case.columns))
    )
    if case.mask in ("window", "softcap"):
        return _by_hand(q, k, v, case)
    kind = "bool" if case.mask in ("boolean", "rows without keys") else case.dtype
    mask = None if case.mask in ("none", "causal") else rg.tensor("m", (case.rows, case.keys), kind)
    return rg.ops.attention(q, k, v, mask, is_causal="causal" in case.mask, enable_gqa=True)


def _by_hand(q: rg.Tensor, k: rg.Tensor, v: rg.Tensor, case: Case) -> rg.Tensor:
    d, j = rg.reduce_axis("d", case.depth), rg.reduce_axis("j", case.keys)

    def score(h, i, c):
        product = rg.sum(q[h, i, d] * k[h // case.shared, c, d], axis=d, dtype="float32") / math.sqrt(case.depth)
        if case.mask == "softcap":
            return 30 * rg.tanh(product / 30)
        return rg.select((c <= i) & (c > i - _WINDOW), product, -math.inf)

    weights = rg.ops.softmax(rg.compute((case.heads, case.rows, case.keys), score))
    narrow = rg.compute(weights.shape, lambda *i: rg.cast(weights[i], case.dtype))
    shape = (case.heads, case.rows, case.columns)
    return rg.compute(shape, lambda h, i, e: rg.sum(narrow[h, i, j] * v[h // case.shared, j, e], axis=j))


def arrays_of(case: Case, program: RProgram) -> dict[str, np.ndarray]:
    random = np.random.default_rng(case.seed)
    found = {}
    for buffer in program.inputs:
        if buffer.dtype == "bool":
            found[buffer.name] = random.random(buffer.shape) < 0.7
        else:
            found[buffer.name] = random.standard_normal(buffer.shape).astype(numpy_dtype(buffer.dtype))
    q, k = found["q"], found["k"]
    match case.scores:
        case "all equal":
            q.fill(1), k.fill(1)
        case "large":  # products of 1e4, before they are scaled
            q.fill(0), q.__setitem__((..., 0), 100), k.__setitem__((..., 0), np.sign(k[..., 0]) * 100)
        case "one hot":
            q.fill(0), q.__setitem__((..., 0), 100), k.fill(0), k.__setitem__((slice(None), case.keys // 2, 0), 100)
        case "infinite":
            k[0, case.keys // 2, case.depth // 2] = np.inf
        case "minus infinite":
            np.abs(q, out=q), k.__setitem__((0, slice(None, None, 2), case.depth // 2), -np.inf)
    if case.mask == "rows without keys":
        found["m"][:: 3] = False
    return found


def wanted(case: Case, arrays: dict[str, np.ndarray]) -> np.ndarray:
    """The definition in float64, by NumPy; rows that see no key are 0 where a mask says so, as PyTorch has them."""
    q, k, v = (arrays[name].astype(np.float64) for name in "qkv")
    k, v = (np.repeat(one, case.shared, axis=0) for one in (k, v))
    with np.errstate(all="ignore"):
        scores = np.einsum("hid,hjd->hij", q, k) / math.sqrt(case.depth)
        i, j = np.arange(case.rows)[:, None], np.arange(case.keys)
        if case.mask == "softcap":
            scores = 30 * np.tanh(scores / 30)
        if case.mask == "window":
            scores = np.where((j <= i) & (j > i - _WINDOW), scores, -np.inf)
        if "m" in arrays:
            mask = arrays["m"]
            scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask.astype(np.float64)
        if "causal" in case.mask:
            scores = np.where(j <= i, scores, -np.inf)
        largest = scores.max(-1, keepdims=True)
        weights = np.exp(scores - largest)
        weights /= weights.sum(-1, keepdims=True)
        if "m" in arrays:
            weights = np.where(largest == -np.inf, 0.0, weights)
        return np.einsum("hij,hje->hie", weights, v)


def program_of(case: Case) -> RProgram:
    """One kernel, or two with keys in chunks: the case's own among all that construction prices."""
    spec = device(case.device)
    graph = canonicalize(expression_of(case), None, RowLimits(chains=True, lone_rows=runs_lone_rows(spec)))
    (op,) = graph.tensor_ops
    every = list(chain_candidates(op, spec, AlignmentRules(), Ledger()))
    one = every[int(case.kept * len(every))]
    made = RProgram(spec.name, graph.inputs, graph.outputs, one.stages, one.temporaries)
    check(made, spec)
    return made


def assert_right(case: Case) -> RProgram:
    """The interpreter and the executed text give the definition; the interpreter's bytes are the closed forms'."""
    made, spec = program_of(case), device(case.device)
    arrays = arrays_of(case, made)
    want = wanted(case, arrays)
    (name,) = [buffer.name for buffer in made.outputs]
    found = interpret(made, arrays, spec)
    if case.device == "cpu":
        ran = run_opencl(made, arrays, spec)[name]
    else:
        ran = executed(made, emit(made, spec, "cuda"), arrays, case.seed % 2)[name]
    unit = _UNITS[case.dtype] * max(1.0, float(np.abs(arrays["v"].astype(np.float64)).max()))
    for reader, got in (("interpreter", found.outputs[name]), ("text", ran)):
        got = got.astype(np.float64)
        assert np.array_equal(np.isnan(got), np.isnan(want)), f"{reader}: NaN in other places"
        error = np.nanmax(np.abs(got - want), initial=0.0)
        assert error <= unit, f"{reader}: errs by {error:.3g}; at most {unit:.3g} expected"
    counted = [(one.tensor, one.tiles, one.transactions) for one in found.traffic]
    closed = [one for stage in made.stages for one in traffic(stage, spec.backing.transaction_bytes)]
    assert counted == [(one.tensor, one.tiles, one.transactions) for one in closed], "bytes differ"
    assert from_json(to_json(made)) == made
    assert 0 < predict(made, spec).seconds < 1
    return made
