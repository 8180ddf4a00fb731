"""Kernel Tuner's results as records: its T4 files (``store_output_file``, schema 1.0), where the mapping is honest.

A T4 file holds configurations and times, but neither kernel nor device nor sizes: these are told with it.  Known is
one kernel, ``clblast-gemm`` (the GEMM of CLBlast, as tuned by Kernel Tuner's public benchmarks): C = A B + C0,
float32, A stored along m, B along n, C along m.  A configuration becomes the rProgram with the same blocks, threads,
register tiles, vectors and staged operands; one for which there is none is refused with the parameter that says so:

- the threads that stage must cut the tile into equal parts: MDIMA along MWG and the others along KWG (NDIMB for B);
- strided accesses of threads (STRM, STRN), other precisions, registers blocked along k (KREG), and tiles that do not
  divide the sizes have no counterpart, nor has any parameter that is not known here.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from statistics import fmean
from typing import Any

from rollergen.construct.options import BuildOptions
from rollergen.errors import ArgumentError, ProgramError
from rollergen.expr import language as rg
from rollergen.expr.canonical import canonicalize
from rollergen.expr.stages import Graph
from rollergen.hal.dataclass import dataclass
from rollergen.hal.files.trusted import read_untrusted
from rollergen.hal.load import device_hash
from rollergen.hal.spec import Device
from rollergen.program.check import check
from rollergen.program.model import predict
from rollergen.program.rprogram import Accumulator, Compute, Copy, Loop, RProgram, Stage, Store
from rollergen.program.serial import to_json
from rollergen.store.keys import as_text, key_of, sha256
from rollergen.store.record_files import RecordFile, RecordsError, check_record
from rollergen.store.records import features_of, identity_of, model_terms, operator_of

KERNELS = ("clblast-gemm",)
SIZES = ("m", "n", "k")
LARGEST_FILE = 1 << 28
STATES = {"correct": "ok", "compile": "compile", "runtime": "launch", "timeout": "timeout", "correctness": "wrong"}
"""What T4 calls ``invalidity``, as a record's status; "constraints" was never tried."""

_TILES = ("MWG", "NWG", "KWG", "MDIMC", "NDIMC", "MDIMA", "NDIMB", "KWI", "VWM", "VWN")
_FIXED = {"STRM": 0, "STRN": 0, "PRECISION": 32, "KREG": 1, "GEMMK": 0}
_FLAGS = ("SA", "SB")
_LARGEST_SIZE = 1 << 31
_LARGEST_MS = 1e300


@dataclass(frozen=True)
class Imported:
    """Records of the configurations that map, and for the others how many there were of each reason."""

    file: RecordFile
    refused: Mapping[str, int]


def read_t4(path: Path, device: Device, kernel: str, sizes: Mapping[str, int]) -> Imported:
    """Raises RecordsError where the file is no T4 file; ArgumentError for an unknown kernel, sizes that are missing,
    a device without thread blocks."""
    if kernel not in KERNELS:
        raise ArgumentError(f"kernel is {kernel!r}; expected one of {', '.join(KERNELS)}: no other is known to map")
    if set(sizes) != set(SIZES) or any(not 0 < value < _LARGEST_SIZE for value in sizes.values()):
        raise ArgumentError(
            f"sizes are {dict(sizes)}; expected positive {', '.join(SIZES)} below {_LARGEST_SIZE}: the file has none"
        )
    if not device.kind.threads:
        raise ArgumentError(f"{device.name} has no thread blocks; expected the GPU that ran {kernel}")
    graph = gemm_graph(sizes["m"], sizes["n"], sizes["k"])
    records: list[dict[str, Any]] = []
    refused: Counter[str] = Counter()
    for number, result in enumerate(_results(path)):
        where = f"{path}, result {number}"
        try:
            records.append(check_record(_record(result, graph, device, where), where))
        except _Unmapped as reason:
            refused[str(reason)] += 1
    return Imported(RecordFile({device_hash(device): device}, tuple(records)), dict(refused))


class _Unmapped(Exception):
    """Why a configuration has no rProgram."""


def gemm_graph(m: int, n: int, k: int) -> Graph:
    """C = A B + C0 as CLBlast stores it: A (k, m), B (k, n), C (n, m)."""
    a, b, c = rg.tensor("A", (k, m)), rg.tensor("B", (k, n)), rg.tensor("C0", (n, m))
    axis = rg.reduce_axis("k", k)
    return canonicalize(rg.compute((n, m), lambda j, i: rg.sum(a[axis, i] * b[axis, j], axis=axis) + c[j, i]))


def gemm_program(row: Mapping[str, int], graph: Graph) -> RProgram:
    """The rProgram of a configuration: thread (x, y) owns MWG/MDIMC adjacent rows and NWG/NDIMC adjacent columns.

    A thread that stages moves MWG/MDIMA (NWG/NDIMB) adjacent floats of consecutive k, one after the other."""
    (op,) = graph.tensor_ops
    extents = {axis.name: axis.extent for axis in op.axes}
    wm, wn = row["MWG"] // row["MDIMC"], row["NWG"] // row["NDIMC"]
    loops = (
        Loop("j", extents["j"] // row["NWG"], row["NWG"], "grid"),
        Loop("i", extents["i"] // row["MWG"], row["MWG"], "grid"),
        Loop("j", row["NDIMC"], wn, "thread"),
        Loop("i", row["MDIMC"], wm, "thread"),
        Loop("k", extents["k"] // row["KWG"], row["KWG"], "serial"),
        Loop("k", row["KWG"] // row["KWI"], row["KWI"], "serial"),
        Loop("k", row["KWI"], 1, "unroll"),
        Loop("j", wn, 1, "unroll"),
        Loop("i", wm, 1, "unroll"),
    )
    copies = []
    threads = row["MDIMC"] * row["NDIMC"]
    for load, axis, tile, along, staged, vector in (
        (0, "i", row["MWG"], row["MDIMA"], row["SA"], row["VWM"]),
        (1, "j", row["NWG"], row["NDIMB"], row["SB"], row["VWN"]),
    ):
        if staged:
            runs = (row["KWG"] * along // threads, tile // along)
            copies.append(Copy(load, "dram", "shared", 5, ("k", axis), axis, vector=vector, runs=runs))
        copies.append(Copy(load, "shared" if staged else "dram", "registers", 7, (axis,), axis, vector=vector))
    stage = Stage(
        "gemm", op, loops, Compute("fma"), Accumulator(4, "float32"), tuple(copies),
        store=Store(vector=row["VWM"]),
    )  # fmt: skip
    return RProgram("gpu", tuple(load.buffer for load in op.loads()), (op.output,), (stage,))


def _results(path: Path) -> list[dict[str, Any]]:
    try:
        content = json.loads(read_untrusted(path, LARGEST_FILE))
    except (OSError, ValueError, RecursionError) as error:
        raise RecordsError(f"{path} cannot be read as T4 results: {error}") from None
    version = content.get("schema_version") if isinstance(content, dict) else None
    results = content.get("results") if isinstance(content, dict) else None
    if not isinstance(version, str) or version.split(".")[0] != "1" or not isinstance(results, list):
        raise RecordsError(f"{path}: expected T4 results of schema 1, {{schema_version, results}}; got {version!r}")
    for number, result in enumerate(results):
        if not isinstance(result, dict) or not isinstance(result.get("configuration"), dict):
            raise RecordsError(f"{path}, result {number}: expected an object with a configuration")
    return results


def _record(result: dict[str, Any], graph: Graph, device: Device, where: str) -> dict[str, Any]:
    invalidity = result.get("invalidity")
    if invalidity == "constraints":
        raise _Unmapped("invalidity constraints: it was never tried")
    if not isinstance(invalidity, str) or invalidity not in STATES:
        raise RecordsError(f"{where}: invalidity is {invalidity!r}; expected one of {(*STATES, 'constraints')}")
    row = _parameters(result["configuration"], graph)
    program = gemm_program(row, graph)
    try:
        check(program, device)
    except ProgramError as error:
        raise _Unmapped(f"no program of {device.name}: {error}") from None
    status = STATES[invalidity] if result.get("correctness", 1) else "wrong"
    times = _times_ms(result, where) if status == "ok" else []
    key = key_of(graph, device, BuildOptions(), 1, "Kernel Tuner | unknown")
    prediction = predict(program, device)
    identity = identity_of(device, key)
    operator = operator_of(graph, key)
    return {
        "v": 1,
        "group": f"{key.expression[:16]}/{identity}/{operator['dtype']}",
        "op": operator,
        "device": {"id": identity, "family": "gpu", "spec": key.device},
        "program": {
            "v": 2,
            "rprogram": to_json(program),
            "kernel_sha256": sha256(f"clblast-gemm {as_text(result['configuration'])}"),
            "rank": -1,
        },
        "pred": {
            "micro_ms": float(prediction.seconds) * 1e3,
            "draft_ms": None,
            "terms": model_terms(program, prediction),
        },
        "feat": next(features_of([program], device, [prediction])),
        "result": {"status": status, "times_ms": times, "compile_s": None},
        "env": {"driver": "Kernel Tuner", "compiler": "unknown", "rollergen": key.rollergen},
        "ts": _seconds(result.get("timestamp"), where),
    }


def _parameters(configuration: Mapping[str, Any], graph: Graph) -> dict[str, int]:
    """The parameters of a configuration that maps; _Unmapped otherwise."""
    for name, value in configuration.items():
        if name in _FIXED and value != _FIXED[name]:
            raise _Unmapped(f"{name} is {value}; expected {_FIXED[name]}")
        if name not in (*_TILES, *_FLAGS, *_FIXED):
            raise _Unmapped(f"{name} is no known parameter of clblast-gemm")
    row = {name: configuration.get(name) for name in (*_TILES, *_FLAGS)}
    for name, value in row.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < (name not in _FLAGS):
            raise _Unmapped(f"{name} is {str(value)[:20]}; expected a whole number")
        if name in _FLAGS and value > 1:
            raise _Unmapped(f"{name} is {value}; expected 0 or 1")
    whole = {name: int(value) for name, value in row.items() if value is not None}
    extents = {axis.name: axis.extent for axis in graph.tensor_ops[0].axes}
    parts = (
        (extents["i"], "MWG"), (extents["j"], "NWG"), (extents["k"], "KWG"), (whole["MWG"], "MDIMC"),
        (whole["NWG"], "NDIMC"), (whole["KWG"], "KWI"),
    )  # fmt: skip
    for extent, name in parts:
        if extent % whole[name]:
            raise _Unmapped(f"{name} does not divide {extent}")
    threads = whole["MDIMC"] * whole["NDIMC"]
    for flag, tile, along, vector in (("SA", "MWG", "MDIMA", "VWM"), ("SB", "NWG", "NDIMB", "VWN")):
        if whole[flag] and (whole[tile] % (whole[along] * whole[vector]) or whole["KWG"] * whole[along] % threads):
            raise _Unmapped(f"{flag} = 1: {along} by vectors of {vector} cuts the tile into no equal parts of threads")
    return whole


def _times_ms(result: Mapping[str, Any], where: str) -> list[float]:
    """Milliseconds of the runs: Kernel Tuner's ``runtimes``, else its ``time``, which must agree on the unit."""
    kept = result.get("measurements")
    measured = kept if isinstance(kept, list) else []
    named = [one for one in measured if isinstance(one, dict) and one.get("name") == "time"]
    unit = named[0].get("unit", "ms") if named else "ms"
    if unit not in ("ms", ""):
        raise RecordsError(f"{where}: time is in {unit!r}; expected ms")
    mean = named[0].get("value") if named else None
    timings = result.get("times")
    runs = timings.get("runtimes") if isinstance(timings, dict) else None
    times: list[Any] = runs if isinstance(runs, list) and runs else [mean]
    if not all(isinstance(t, (int, float)) and not isinstance(t, bool) and 0 < t < _LARGEST_MS for t in times):
        raise RecordsError(f"{where}: its times are {str(times)[:40]}; expected positive milliseconds")
    if isinstance(mean, (int, float)) and not 0.5 * fmean(times) < mean < 2 * fmean(times):
        raise RecordsError(
            f"{where}: time is {str(mean)[:40]}, its runtimes' mean {fmean(times):.6g}; expected one unit, ms"
        )
    return [float(t) for t in times]


def _seconds(timestamp: Any, where: str) -> float:
    try:
        moment = datetime.fromisoformat(str(timestamp).replace("Z", "+00:00"))
    except ValueError:
        raise RecordsError(f"{where}: timestamp is {str(timestamp)[:40]!r}; expected ISO 8601") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp()
