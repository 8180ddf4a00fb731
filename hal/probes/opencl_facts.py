"""A spec from what an OpenCL driver tells of its device, before anything is measured.

What no driver tells (registers, costs of the model) stays as the spec has it that this one begins as: that of the
architecture where there is one, else of the most similar device, and is then called assumed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any

from rollergen.hal.changes import changed, json_path, paths
from rollergen.hal.load import every_spec, load_device
from rollergen.hal.probes.opencl_sub_groups import SubGroups, sub_groups
from rollergen.hal.runtimes.opencl_buffers import BufferRuntime
from rollergen.hal.runtimes.opencl_devices import GPU, NAME, PLATFORM, describes, opencl_target, runs_on
from rollergen.hal.spec import Device, Target

ALIKE = (("mali", "mali-g71"), ("", "mi50"))
"""Of a device whose architecture no spec has: what stands in its name, and the built-in spec that is most like it."""
EXCHANGING = "v100"
"""The device whose cost of an exchange of registers stands for all: assumed, a shared load and an addition."""
EXTENSIONS = {"float64": "cl_khr_fp64", "float16": "cl_khr_fp16"}
"""What a device has that computes in these."""
LAYERS = frozenset({"registers", "shared", "l1", "l2", "dram"})
_LEAST_CACHE_BYTES, _LEAST_LINE_BYTES = 1 << 16, 16
_WIDTH_TEXT = "kernel void width(global float *x) { x[get_global_id(0)] += 1; }"
UNKNOWN_CLOCK_MHZ, _LEAST_CLOCK_MHZ = 1000.0, 50
"""Of a device that tells none: rates in clocks are then rates in nanoseconds.  Less is no clock of kernels: a Mali-G71
tells 5 MHz (96boards-hikey/linux, pull request 59)."""


def base_of(runtime: BufferRuntime) -> Device:
    """The spec that describes the device or has its architecture; else the most similar one."""
    known = [device for _, device in every_spec() if opencl_target(device)]
    threaded = [device for device in known if {layer.name for layer in device.layers} >= LAYERS]
    own = [device for device in threaded if describes(device, runtime.facts)]
    own += [device for device in threaded if runs_on(device, runtime.facts)]
    name = next(name for word, name in ALIKE if word in runtime.facts.name.lower())
    return _with_what_it_has(own[0] if own else load_device(name), runtime.extensions)


def _with_what_it_has(base: Device, extensions: Collection[str]) -> Device:
    """Without the instructions whose dtype the device does not compute in."""
    kept = [
        number for number, one in enumerate(base.instructions) if EXTENSIONS.get(one.dtype, "") in ("", *extensions)
    ]
    origins = {}
    for path, origin in base.provenance:
        found = re.match(r"instructions\[(\d+)\]", path)
        if found is None:
            origins[path] = origin
        elif int(found[1]) in kept:
            origins[f"instructions[{kept.index(int(found[1]))}]{path[found.end() :]}"] = origin
    instructions = tuple(base.instructions[number] for number in kept)
    return replace(base, instructions=instructions, provenance=tuple(sorted(origins.items())))


def told(runtime: BufferRuntime, base: Device, name: str) -> Device:
    """`base` with the figures that the driver tells, called `name`, for this device and no other."""
    found = {path: value for path, value in driver_figures(runtime, base) if path in set(paths(base))}
    return described(runtime, base, name, found, dict.fromkeys(found, "told"))


def described(
    runtime: BufferRuntime, base: Device, name: str, found: dict[str, float], how: dict[str, str]
) -> Device:
    """`base` with the figures found; ``how``: each was measured ("told": the driver says it)."""
    device = changed(base, found)
    own = describes(base, runtime.facts)
    says = f"{runtime.description} says so"
    kept = ("assumed", f"as {base.name} has it")
    origins = {path: origin if own else kept for path, origin in device.provenance}
    origins |= {json_path(device, path): ("measured", says if text == "told" else text) for path, text in how.items()}
    if not own:
        device, origins = _without_printed(device, origins)
    target = _target(runtime, next(one for one in device.targets if one.language == NAME))
    exchanging = sub_groups(runtime)
    if exchanging is not None:
        device, target = _exchanging(device, target, exchanging)
        origins["costs.shuffle_clocks"] = ("assumed", f"as {EXCHANGING} has it")
    return replace(
        device, name=name, title=f"{runtime.facts.name} of {runtime.facts.platform}", verified=(), targets=(target,),
        provenance=tuple(sorted(origins.items())),
    )  # fmt: skip


def _without_printed(
    device: Device, origins: dict[str, tuple[str, str]]
) -> tuple[Device, dict[str, tuple[str, str]]]:
    """Without what the maker of another device prints of it: peaks, and bandwidths where this one's are measured."""
    kept = dict(origins)
    layers, instructions = list(device.layers), list(device.instructions)
    for number, layer in enumerate(layers):
        at = f"memory_layers[{number}].bandwidth"
        if origins.get(f"{at}_gb_s", ("",))[0] == "measured" and layer.bandwidth_nominal_gb_s:
            kept.pop(f"{at}_nominal_gb_s", None)
            layers[number] = replace(layer, bandwidth_nominal_gb_s=0.0)
    for number, one in enumerate(instructions):
        if one.peak_dense_tflop_s:
            kept.pop(f"instructions[{number}].peak_dense_tflop_s", None)
            instructions[number] = replace(one, peak_dense_tflop_s=0.0)
    return replace(device, layers=tuple(layers), instructions=tuple(instructions)), kept


def _exchanging(device: Device, target: Target, found: SubGroups) -> tuple[Device, Target]:
    """With registers exchanged within sub-groups, at the cost of the device that has one."""
    clocks = dict(load_device(EXCHANGING).costs)["shuffle_clocks"]
    costs = tuple(sorted({"shuffle_clocks": clocks, **dict(device.costs)}.items()))
    dialect = tuple(sorted({**dict(target.dialect), **found.dialect}.items()))
    return replace(device, costs=costs), replace(target, dialect=dialect)


def _target(runtime: BufferRuntime, base: Target) -> Target:
    """Found again by platform and name; by architecture and board where the name is that of the chip."""
    facts = runtime.facts
    if base.arch and base.arch == facts.architecture:
        return replace(base, dialect=tuple(sorted({**dict(base.dialect), GPU: facts.board or facts.name}.items())))
    return Target(NAME, "", tuple(sorted({GPU: facts.name, PLATFORM: facts.platform}.items())))


def driver_figures(runtime: BufferRuntime, base: Device) -> Iterator[tuple[str, float]]:
    """(path, value) of what the driver tells."""
    device = runtime.device
    threads, local = runtime.limits.threads, _rounded_down(int(device.local_mem_size))
    yield "units", int(device.max_compute_units)
    clock = float(device.max_clock_frequency)
    yield "clock_mhz", clock if clock >= _LEAST_CLOCK_MHZ else UNKNOWN_CLOCK_MHZ
    yield "execution_width", _width(runtime, base)
    yield "limits.threads_per_block", min(threads, MOST_THREADS)
    if min(threads, MOST_THREADS) > base.limits.threads_per_unit:
        yield "limits.threads_per_unit", min(threads, MOST_THREADS)
    yield "limits.block_memory_bytes", min(local, MOST_LOCAL_BYTES)
    if min(local, MOST_LOCAL_BYTES) > base.layer("shared").capacity_bytes or not describes(base, runtime.facts):
        yield "shared.capacity_bytes", min(local, MOST_LOCAL_BYTES)
    cache, line = int(device.global_mem_cache_size), int(device.global_mem_cacheline_size)
    if cache >= _LEAST_CACHE_BYTES and not describes(base, runtime.facts):
        yield "l2.capacity_bytes", cache
    if line >= _LEAST_LINE_BYTES and not line & (line - 1):
        yield "l2.transaction_bytes", line
    yield "dram.capacity_bytes", int(device.global_mem_size)


MOST_THREADS, MOST_WIDTH, MOST_LOCAL_BYTES = 1024, 64, 1 << 16
"""More serve no kernel, and the model's constants were fitted within them; a CPU's driver allows any number."""


def _rounded_down(size: int) -> int:
    return size // 1024 * 1024


def _width(runtime: BufferRuntime, base: Device) -> int:
    """Threads of a sub-group that exchanges registers; else those that run side by side, as the compiler plans a small
    kernel; as the base has it, where that is none."""
    exchanging = sub_groups(runtime)
    if exchanging is not None:
        return exchanging.width
    opencl: Any = runtime.opencl
    kernel = runtime.compile(_WIDTH_TEXT).kernel("width").raw
    multiple = opencl.kernel_work_group_info.PREFERRED_WORK_GROUP_SIZE_MULTIPLE
    width = int(kernel.get_work_group_info(multiple, runtime.device))
    return width if 1 < width <= MOST_WIDTH and not width & (width - 1) else base.execution_width
