"""What a well-formed spec may still get wrong: figures that contradict each other.  One function a rule."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from rollergen.hal import exchanges, masked_stores
from rollergen.hal.dtypes import DTYPES
from rollergen.hal.files.bounded import shown
from rollergen.hal.languages import language
from rollergen.hal.spec import Device

_ATTRIBUTES = r"(?a)(__attribute__\(\([a-z_]\w*(\([\w, ]*\))?\)\) ?)*"
MOST_UNITS = 1 << 20
"""Beyond every chip there is (a wafer has 900,000 cores): predictions keep an account of each unit's memory."""
_OPAQUE = ((16, 16, 16), (32, 8, 16), (8, 32, 16))
"""m, n, k of wmma fragments (CUDA C++ Programming Guide, "Element Types and Matrix Sizes")."""
_REACH = {"thread": 0, "unit": 1, "device": 2}


def contradictions(device: Device) -> Iterator[str]:
    """What every rule finds, a line each, beginning with a JSON path; none where the device keeps them all."""
    for rule in RULES:
        yield from rule(device)


def names_are_distinct(device: Device) -> Iterator[str]:
    for key, named in (("memory_layers", device.layers), ("instructions", device.instructions)):
        names = [item.name for item in named]
        for number, name in enumerate(names):
            if name in names[:number]:
                first = f"{key}[{names.index(name)}]"
                yield f'{key}[{number}].name is "{name}", as that of {first}; expected distinct names'


def layers_run_from_registers_outward(device: Device) -> Iterator[str]:
    first, last, end = device.layers[0], device.layers[-1], len(device.layers) - 1
    if first.name != "registers" or first.scope != "thread" or not first.managed:
        yield f'memory_layers[0] is "{first.name}"; expected registers, managed, of scope thread'
    for number in range(1, len(device.layers)):
        inner, outer = device.layers[number - 1].scope, device.layers[number].scope
        if _REACH[outer] < _REACH[inner]:
            yield f'memory_layers[{number}].scope is "{outer}"; expected "{inner}" or wider, as the layer before has'
    if last.scope != "device" or not last.managed:
        yield f'memory_layers[{end}] is "{last.name}"; expected a managed backing store of scope device'


def units_can_be_counted(device: Device) -> Iterator[str]:
    if device.units > MOST_UNITS:
        yield f"units is {device.units}; expected at most {MOST_UNITS}"


def layers_have_a_rate(device: Device) -> Iterator[str]:
    """Registers feed the arithmetic at its own rate."""
    for number, layer in enumerate(device.layers):
        if number and not (layer.bytes_per_clock or layer.bandwidth_gb_s):
            yield f"memory_layers[{number}].bytes_per_clock is 0, as is bandwidth_gb_s; expected one of them above 0"


def pairs_are_whole(device: Device) -> Iterator[str]:
    for number, layer in enumerate(device.layers):
        for one, other in (("banks", "bank_bytes"), ("sets", "ways")):
            for given, absent in ((one, other), (other, one)):
                if getattr(layer, given) and not getattr(layer, absent):
                    yield f"memory_layers[{number}].{absent} is missing; expected it beside {given}"


def sets_and_ways_make_the_capacity(device: Device) -> Iterator[str]:
    for number, layer in enumerate(device.layers):
        product = layer.sets * layer.ways * layer.transaction_bytes
        if product and product != layer.capacity_bytes:
            yield (
                f"memory_layers[{number}].capacity_bytes is {layer.capacity_bytes}; expected {product}: "
                f"{layer.sets} sets x {layer.ways} ways x {layer.transaction_bytes} bytes"
            )


def reserved_memory_leaves_some(device: Device) -> Iterator[str]:
    for number, layer in enumerate(device.layers):
        if layer.reserved_bytes >= layer.capacity_bytes:
            yield f"memory_layers[{number}].reserved_bytes is {layer.reserved_bytes}; expected less than the capacity"


def nothing_beats_its_nominal_bandwidth(device: Device) -> Iterator[str]:
    for number, layer in enumerate(device.layers):
        achieved, nominal = layer.bandwidth_gb_s, layer.bandwidth_nominal_gb_s
        if nominal and achieved > nominal:
            yield f"memory_layers[{number}].bandwidth_gb_s is {achieved}; expected at most the nominal {nominal}"


def a_block_fits_a_unit(device: Device) -> Iterator[str]:
    limits = device.limits
    for part, whole in (("threads_per_block", "threads_per_unit"), ("registers_per_thread", "registers_per_unit")):
        if getattr(limits, part) > getattr(limits, whole):
            yield f"limits.{part} is {getattr(limits, part)}; expected at most {whole}, {getattr(limits, whole)}"


def a_block_fits_the_managed_memory_of_a_unit(device: Device) -> Iterator[str]:
    if device.kind.block_layer is not None:
        managed = device.layer(device.kind.block_layer)
        room = managed.capacity_bytes - managed.reserved_bytes - managed.block_reserved_bytes
        asked = device.limits.block_memory_bytes
        if asked > room:
            yield f"limits.block_memory_bytes is {asked}; expected at most the {room} that {managed.name} has to give"


_STAGED_BYTES = 32
"""Of each thread of an execution width: a few elements of both operands of a product, of the widest dtype."""


def a_block_can_stage_its_operands(device: Device) -> Iterator[str]:
    """Programs of devices with managed memory read their operands through it."""
    if device.kind.threads:
        least, given = _STAGED_BYTES * device.execution_width, device.limits.block_memory_bytes
        if given < least:
            each = f"{_STAGED_BYTES} for each of the {device.execution_width} threads of an execution width"
            yield f"limits.block_memory_bytes is {given}; expected at least {least}: {each}"


def asynchronous_copies_fill_managed_memory(device: Device) -> Iterator[str]:
    for number, layer in enumerate(device.layers):
        widest = layer.asynchronous_copy_bytes
        if widest and (widest < 4 or widest & (widest - 1) or not layer.managed or layer.scope != "unit"):
            path = f"memory_layers[{number}].asynchronous_copy_bytes"
            yield f"{path} is {widest}; expected 0, or in a managed layer of a unit a power of 2 from 4"


def boxes_fill_what_asynchronous_copies_fill(device: Device) -> Iterator[str]:
    for number, layer in enumerate(device.layers):
        if layer.box_extent and not layer.asynchronous_copy_bytes:
            path = f"memory_layers[{number}].box_extent"
            yield f"{path} is {layer.box_extent}; expected 0, or a layer with asynchronous_copy_bytes"
        if layer.cluster_blocks and not layer.box_extent:
            path = f"memory_layers[{number}].cluster_blocks"
            yield f"{path} is {layer.cluster_blocks}; expected 0, or a layer with box_extent"


def blocks_reserve_managed_memory(device: Device) -> Iterator[str]:
    for number, layer in enumerate(device.layers):
        if layer.block_reserved_bytes and (not layer.managed or layer.scope != "unit"):
            path = f"memory_layers[{number}].block_reserved_bytes"
            yield f"{path} is {layer.block_reserved_bytes}; expected 0, or a managed layer of a unit"


def survival_falls_with_fill(device: Device) -> Iterator[str]:
    costs = dict(device.costs)
    below, above = costs.get("keep_below", 0.0), costs.get("keep_above", float("inf"))
    if below > above:
        yield f"costs.keep_below is {below}; expected at most keep_above, {above}"
    below, above = costs.get("warm_below", 0.0), costs.get("warm_above", 0.0)
    if below > above:
        yield f"costs.warm_below is {below}; expected at most warm_above, {above}"


def float32_is_multiplied(device: Device) -> Iterator[str]:
    """All programs fall back on it."""
    if not any((i.m, i.k) == (1, 1) and i.dtype == i.accumulator_dtype == "float32" for i in device.instructions):
        yield "instructions has no multiply-add of float32 with m 1 and k 1; expected one, such as fma"


def matrix_instructions_have_fragments(device: Device) -> Iterator[str]:
    """The threads that execute one hold all of each operand between them."""
    for number, one in enumerate(device.instructions):
        if not one.is_matrix:
            continue
        allowed = (256,) if one.dtype == "float64" else (128, 256)
        if one.layout == "quads" and ((one.m, one.n) != (16, 8) or one.k * DTYPES[one.dtype].bits not in allowed):
            shape, some = f"{one.m} x {one.n} x {one.k}", " or ".join(str(bits // 8) for bits in allowed)
            yield f"instructions[{number}].k: {shape} {one.dtype} in quads; expected 16 x 8, k of {some} bytes (PTX)"
        if one.layout == "quad_pairs" and (one.m, one.n, one.k, one.dtype) != (16, 16, 16, "float16"):
            shape = f"{one.m} x {one.n} x {one.k}"
            yield f"instructions[{number}].m: {shape} {one.dtype} in quad_pairs; expected 16 x 16 x 16 float16 (PTX)"
        if one.layout == "opaque" and (one.m, one.n, one.k) not in _OPAQUE:
            shape = f"{one.m} x {one.n} x {one.k}"
            expected = ", ".join(" x ".join(map(str, each)) for each in _OPAQUE)
            yield f"instructions[{number}].m: {shape} in opaque fragments; expected one of {expected} (CUDA's wmma)"
        factor = DTYPES[one.dtype].bits
        if one.is_asynchronous and ((one.m, one.n, one.lanes) != (64, 8, 128) or one.k * factor != 256):
            shape = f"{one.m} x {one.n} x {one.k} {one.dtype} by {one.lanes} lanes"
            yield f"instructions[{number}].m: {shape} in a warpgroup; expected 64 x 8, k of 32 bytes, by 128 (PTX)"
        wavefront = (one.m, one.n, one.lanes) == (16, 16, 64) and one.k * factor in (128, 256)
        if one.layout == "wavefront" and not wavefront:
            shape = f"{one.m} x {one.n} x {one.k} {one.dtype} by {one.lanes} lanes"
            yield f"instructions[{number}].m: {shape} in wavefronts; expected 16 x 16, k 16 or 32 bytes, by 64 (MFMA)"
        bits = {"a_registers": one.m * one.k * factor, "b_registers": one.k * one.n * factor}
        bits = {} if one.is_asynchronous else bits
        bits["accumulator_registers"] = one.m * one.n * DTYPES[one.accumulator_dtype].bits
        for name, needed in bits.items():
            if getattr(one, name) * 32 * one.lanes < needed:
                least = -(-needed // (32 * one.lanes))
                yield f"instructions[{number}].{name} is {getattr(one, name)}; expected at least {least}"


def walks_have_buffers(device: Device) -> Iterator[str]:
    """The misses of a column walk are held in buffers, of instructions that are in flight."""
    costs = dict(device.costs)
    if costs.get("walk_clocks") or costs.get("walk_far_clocks"):
        for name in ("miss_buffers", "miss_window"):
            if not costs.get(name):
                yield f"costs.{name} is 0 or missing; expected a number above 0 beside walk_clocks"


def architectures_are_those_of_the_language(device: Device) -> Iterator[str]:
    """Its compiler knows no other names, nor does the report of what it makes."""
    for number, target in enumerate(device.targets):
        one = language(target.language)
        if not one.takes(target.arch):
            yield f"targets[{number}].arch is {shown(target.arch)}; expected {one.arch_expected}"


def what_reaches_source_text_is_an_attribute(device: Device) -> Iterator[str]:
    """The only texts of a spec that are printed into kernels as it stands."""
    for number, target in enumerate(device.targets):
        text = dict(target.dialect).get("kernel_attribute", "")
        if text and not re.fullmatch(_ATTRIBUTES, text):
            path = f"targets[{number}].dialect.kernel_attribute"
            yield f"{path} is {shown(text)}; expected nothing, or such as __attribute__((min_vector_width(512)))"
        extension = dict(target.dialect).get(exchanges.KEY, "")
        if extension and extension not in exchanges.EXTENSIONS:
            path = f"targets[{number}].dialect.{exchanges.KEY}"
            yield f"{path} is {shown(extension)}; expected nothing, or one of {', '.join(exchanges.EXTENSIONS)}"
        masked = dict(target.dialect).get(masked_stores.KEY, "")
        if masked not in masked_stores.BITS:
            path = f"targets[{number}].dialect.{masked_stores.KEY}"
            yield f"{path} is {shown(masked)}; expected nothing, or 512, the bits of AVX-512's vectors"
        steps = dict(target.dialect).get("unrolled_steps", "")
        if steps and not re.fullmatch("[1-9][0-9]{0,2}", steps):
            path = f"targets[{number}].dialect.unrolled_steps"
            yield f"{path} is {shown(steps)}; expected nothing, or a number of steps such as 4"
        for key in ("written_out", "written_out_tested", "rolled_run"):
            count = dict(target.dialect).get(key, "")
            if count and not re.fullmatch("[1-9][0-9]{0,6}", count):
                yield f"targets[{number}].dialect.{key} is {shown(count)}; expected nothing, or a number such as 1800"


def widths_are_powers_of_two(device: Device) -> Iterator[str]:
    """Blocks of threads are made by doubling, and hold whole execution widths."""
    width, most = device.execution_width, device.limits.threads_per_block
    if width & (width - 1):
        yield f"execution_width is {width}; expected a power of two"
    if width > most:
        yield f"execution_width is {width}; expected at most limits.threads_per_block, {most}"


def layers_hold_a_transaction(device: Device) -> Iterator[str]:
    for number, layer in enumerate(device.layers):
        least, room = layer.transaction_bytes, layer.capacity_bytes
        if least > room:
            yield f"memory_layers[{number}].capacity_bytes is {room}; expected at least transaction_bytes, {least}"


_NORMS = (1, 16)


def limiters_combine_as_a_norm(device: Device) -> Iterator[str]:
    """From their sum to almost their maximum; below 1 it is no norm, and far above powers of clocks overflow."""
    for name, exponent in device.costs:
        if name.endswith("_exponent") and not _NORMS[0] <= exponent <= _NORMS[1]:
            yield f"costs.{name} is {exponent:g}; expected a number from {_NORMS[0]} to {_NORMS[1]}"


def threads_that_are_woken_run_blocks_alone(device: Device) -> Iterator[str]:
    """A block that needs threads beside each other is not for the calling thread."""
    if device.wake_us and not device.kind.vectors:
        yield f"wake_us is {device.wake_us:g}; expected 0 or nothing, but on cores whose instructions have lanes"


def threads_side_by_side_are_the_lanes(device: Device) -> Iterator[str]:
    """Programs of vectors are of blocks of one thread: they would be constructed for a device that runs none."""
    for number, one in enumerate(device.instructions if device.kind.lockstep else ()):
        if one.lanes > 1 and one.m == one.k == 1:
            beside = f"expected 1 where {device.execution_width} threads share an instruction"
            yield f"instructions[{number}].lanes is {one.lanes}; {beside}"


RULES: tuple[Callable[[Device], Iterator[str]], ...] = (
    names_are_distinct,
    units_can_be_counted,
    layers_run_from_registers_outward,
    layers_have_a_rate,
    pairs_are_whole,
    sets_and_ways_make_the_capacity,
    reserved_memory_leaves_some,
    nothing_beats_its_nominal_bandwidth,
    a_block_fits_a_unit,
    a_block_fits_the_managed_memory_of_a_unit,
    asynchronous_copies_fill_managed_memory,
    boxes_fill_what_asynchronous_copies_fill,
    blocks_reserve_managed_memory,
    survival_falls_with_fill,
    float32_is_multiplied,
    matrix_instructions_have_fragments,
    walks_have_buffers,
    widths_are_powers_of_two,
    a_block_can_stage_its_operands,
    layers_hold_a_transaction,
    limiters_combine_as_a_norm,
    architectures_are_those_of_the_language,
    what_reaches_source_text_is_an_attribute,
    threads_that_are_woken_run_blocks_alone,
    threads_side_by_side_are_the_lanes,
)
