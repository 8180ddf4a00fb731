"""What all readers of one program are held to: the oracle's values, each other's bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np

import rollergen as rg
from rollergen.emit import Source, emit
from rollergen.expr.dtypes import numpy_dtype
from rollergen.expr.reference import evaluate_at
from rollergen.hal.load import load_device
from rollergen.hal.probes.host import complete
from rollergen.hal.runtimes.opencl_runtime import OpenCLRuntime
from rollergen.program.interpreter import interpret
from rollergen.program.rprogram import RProgram
from rollergen.tile.exact_traffic import traffic
from tests.sampling import edge_blocks

GUARD = 64
"""Elements of every array's guard zones."""

POISON = 77
"""What stands there, and in outputs, where a dtype has no NaN."""

DEVICES = ("cpu", "v100", "mi50", "ipu")


@lru_cache(maxsize=8)
def device(name: str):
    return complete(load_device(name)) if name == "cpu" else load_device(name)


@lru_cache(maxsize=1)
def runtime() -> OpenCLRuntime:
    return OpenCLRuntime()


def small_integers(program: RProgram, seed: int = 0) -> dict[str, np.ndarray]:
    """Inputs for which float32 sums of thousands of products are exact."""
    random = np.random.default_rng(seed)
    return {b.name: random.integers(-3, 4, b.shape).astype(numpy_dtype(b.dtype)) for b in program.inputs}


def quickly(source: Source) -> tuple[str, ...]:
    """Options by which PoCL does not optimise a text of threads: that is for GPUs, of whose compilers it is none, and
    takes it up to a second a kernel."""
    return ("-cl-opt-disable",) if any(launch.threads > 1 for launch in source.launches) else ()


def run_opencl(
    program: RProgram,
    arrays: Mapping[str, np.ndarray],
    spec,
    options: Sequence[str] = (),
    change=lambda text: text,
    optimised: bool = False,
) -> dict[str, np.ndarray]:
    """Outputs of the emitted source, each buffer between guard zones that must stay as they are.

    ``options``: of the OpenCL compiler; ``change``: of the text, before it is compiled; ``optimised``: GPUs' texts,
    too, for sizes that run longer than they are compiled."""
    source = emit(program, spec, "opencl")
    if not optimised:
        options = (*options, *quickly(source))
    module = runtime().compile(change(source.text), options)
    whole, views = {}, {}
    for buffer in program.buffers():
        dtype = numpy_dtype(buffer.dtype)
        whole[buffer.name] = np.empty(buffer.elements + 2 * GUARD, dtype)
        _poisoned(whole[buffer.name])[...] = np.nan if dtype.kind == "f" else POISON
        views[buffer.name] = whole[buffer.name][GUARD : GUARD + buffer.elements].reshape(buffer.shape)
        if buffer.name in arrays:
            views[buffer.name][...] = arrays[buffer.name]
    buffers = {name: runtime().wrap(view) for name, view in views.items()}
    for launch in source.launches:
        kernel = module.kernel(launch.entry)
        runtime().set_arguments(kernel, [buffers[name] for name in launch.arguments])
        runtime().launch(kernel, launch.blocks, launch.threads)
    runtime().finish()
    for name, array in whole.items():
        for zone in (array[:GUARD], array[-GUARD:]):
            untouched = np.isnan(zone) if array.dtype.kind == "f" else _poisoned(zone) == POISON
            assert untouched.all(), f"{name}: written outside its bounds"
        if any(name == one.name for one in program.inputs):
            assert views[name].tobytes() == arrays[name].tobytes(), f"{name}: an input was changed"
    return {b.name: views[b.name] for b in program.outputs}


def _poisoned(array: np.ndarray) -> np.ndarray:
    """`array` as numbers that can hold `POISON`."""
    return array.view(np.uint8) if array.dtype.kind == "b" else array


def sampled_blocks(program: RProgram, most: int) -> dict[str, Sequence[int]]:
    """Edge-class samples of stages with many blocks, where nothing later reads all of their output."""
    last = program.stages[-1]
    return {last.name: edge_blocks(last)} if last.blocks > most else {}


def assert_values(expression, program: RProgram, got: Mapping[str, np.ndarray], arrays, written=None, tolerance=0.0):
    """`got` equals the float64 definition at up to 4,000 of the written points."""
    out = program.outputs[0]
    where = np.argwhere(np.ones(out.shape, bool) if written is None else written[out.name])
    assert len(where), "nothing was written"
    if len(where) > 4000:
        where = where[np.random.default_rng(1).choice(len(where), 4000, replace=False)]
    points = tuple(where.T)
    want = evaluate_at(expression, [arrays[b.name] for b in program.inputs], points)
    have = got[out.name][points].astype(np.float64)
    assert np.all(np.abs(have - want) <= tolerance * np.maximum(1, np.abs(want))), np.nanmax(np.abs(have - want))


def assert_traffic(program: RProgram, counted, spec, blocks) -> None:
    """Counted transactions equal the closed forms; for gathers they are at most these, and within 10 %."""
    size = spec.backing.transaction_bytes
    forms = {}
    for stage in program.stages:
        for record in traffic(stage, size, blocks.get(stage.name)):
            forms[record.stage, record.role, record.load] = record.transactions
    for record in counted:
        form = forms[record.stage, record.role, record.load]
        stage = next(s for s in program.stages if s.name == record.stage)
        if is_affine(stage, record):
            assert record.transactions == form, record
        else:
            assert record.transactions <= form <= 1.10 * record.transactions + 1, (record, form)


def is_affine(stage, record) -> bool:
    """Whether the access has neither divisions nor remainders, in indices or guards."""
    d = stage.op
    if record.role == "store":
        indices, guard = d.target, d.where
    else:
        load = d.loads()[record.load]
        indices, guard = load.indices, load.guard
    return all(i.is_affine for i in indices) and all(b.index.is_affine for b in guard)


def interpreted(program: RProgram, arrays, spec, most_blocks: int):
    blocks = sampled_blocks(program, most_blocks)
    return interpret(program, arrays, spec, blocks), blocks


__all__ = ["DEVICES", "assert_traffic", "assert_values", "device", "interpreted", "rg", "run_opencl", "small_integers"]
