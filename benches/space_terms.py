"""What each term of the model is worth on a measured space of a GPU: it is left out, and the space ranked again.

A term is left out by a changed device (a rate that never binds, a constant of nothing) or, where it is a rule, by
another rule in its place.  Beside them two older models: ROLLER's, the largest of arithmetic, memory and shared
memory, and a bare roofline, which is the same for every program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from unittest.mock import patch

import numpy as np
from space_conv import FILTER, TAPS
from space_conv import SIZE as IMAGE

from rollergen.hal.spec import Device, MemoryLayer
from rollergen.program.model import access, block_windows, facts, lane_rows, prediction, services, together, work
from rollergen.program.model.limiters import paths
from rollergen.program.model.waiting import Waiting
from rollergen.program.model.wavefronts import wavefronts
from rollergen.program.rprogram import RProgram
from rollergen.program.windows import of_block

NEVER = 1e9
"""A rate at which nothing binds."""
LATENCIES = (
    "exposed_staging_clocks", "exposed_direct_clocks", "exposed_managed_clocks", "exposed_stream_clocks",
    "window_step_clocks",
)  # fmt: skip


def with_costs(device: Device, **costs: float) -> Device:
    return replace(device, costs=tuple(sorted((dict(device.costs) | costs).items())))


def with_layers(device: Device, change: Callable[[MemoryLayer], MemoryLayer]) -> Device:
    return replace(device, layers=tuple(change(layer) for layer in device.layers))


def free_layer(name: str) -> Callable[[Device], Device]:
    """The layer delivers as much as anybody asks for."""

    def change(layer: MemoryLayer) -> MemoryLayer:
        rates = {"bytes_per_clock": NEVER if layer.bytes_per_clock else 0.0, "bandwidth_gb_s": 0.0}
        return replace(layer, **rates) if layer.name == name else layer

    return lambda device: with_layers(device, change)


def full_width(device: Device) -> Device:
    """All banks in each clock."""
    return with_layers(device, lambda x: replace(x, bytes_per_clock=x.banks * x.bank_bytes) if x.banks else x)


DEVICES: Mapping[str, Callable[[Device], Device]] = {
    "bytes per clock (all banks at once)": full_width,
    "load/store lanes": lambda d: with_costs(d, load_store_lanes=0),
    "spills": lambda d: with_costs(d, spill_accesses=0),
    "fragments of two steps (one)": lambda d: with_costs(d, fragment_registers=1),
    "latency": lambda d: with_costs(d, **dict.fromkeys(LATENCIES, 0.0)),
    "issue": lambda d: with_costs(d, issue_per_clock=NEVER, thread_issue_clocks=0),
    "norm (the largest instead)": lambda d: with_costs(d, norm_exponent=32),
    "L2": free_layer("l2"),
    "memory": free_layer("dram"),
}


def conflict_free(addresses: np.ndarray, width_bytes: int, layer: MemoryLayer, *, merge_pairs: bool) -> int:
    """As if lanes always read neighbours."""
    return -(-len(addresses) * width_bytes // (layer.banks * layer.bank_bytes))


def one_phase(addresses: np.ndarray, width_bytes: int, layer: MemoryLayer, *, merge_pairs: bool) -> int:
    """As if a wide access were one phase: the most distinct words in a bank, over all lanes."""
    words = addresses[:, None] // layer.bank_bytes + np.arange(-(-width_bytes // layer.bank_bytes))
    return int(np.bincount(np.unique(words) % layer.banks).max())


def no_merge(addresses: np.ndarray, width_bytes: int, layer: MemoryLayer, *, merge_pairs: bool) -> int:
    return wavefronts(addresses, width_bytes, layer, merge_pairs=False)


def of_rows(rule: Callable[..., int]) -> Callable[..., list[int]]:
    """The rule for each of several accesses."""

    def every(addresses: np.ndarray, width_bytes: int, layer: MemoryLayer, *, merge_pairs: bool) -> list[int]:
        return [rule(one, width_bytes, layer, merge_pairs=merge_pairs) for one in addresses]

    return every


WAVEFRONTS = {
    "bank conflicts and coalescing": conflict_free,
    "phases (a wide access as one)": one_phase,
    "lane pairs that merge": no_merge,
}

ROLES: Mapping[str, Callable[[Device, access.Access], bool]] = {
    "direct reads": lambda d, one: one.role == "read" and one.layer == d.backing.name,
    "shared reads": lambda d, one: one.role == "read" and one.layer != d.backing.name,
    "staging": lambda d, one: one.role.startswith(("fill", "through")),
}


@contextmanager
def clean_slate() -> Iterator[None]:
    """Nothing that is kept of earlier predictions is used, or used later."""

    def forget() -> None:
        facts.facts_of.cache_clear()
        lane_rows.known_of.cache_clear()
        together.price_cache.clear()

    forget()
    try:
        yield
    finally:
        forget()


def seconds(programs: Sequence[RProgram], device: Device) -> list[float]:
    return [float(prediction.predict(program, device).seconds) for program in programs]


def without(programs: Sequence[RProgram], device: Device) -> Iterator[tuple[str, list[float]]]:
    """(term, predicted seconds of every program without it)."""
    for term, change in DEVICES.items():
        with clean_slate():
            yield term, seconds(programs, change(device))
    for term, rule in WAVEFRONTS.items():
        with ExitStack() as stack:
            stack.enter_context(clean_slate())
            for module in (services, block_windows):
                stack.enter_context(patch.object(module, "wavefronts_of_rows", of_rows(rule)))
            yield term, seconds(programs, device)
    if any(of_block(copy) for program in programs for stage in program.stages for copy in stage.copies):
        yield from _without_windows(programs, device)
    plain = paths.access_clocks
    for term, chosen in ROLES.items():

        def clocks(nest, device, costs, layer, one, chosen=chosen):  # type: ignore[no-untyped-def]
            return 0 if chosen(device, one) else plain(nest, device, costs, layer, one)

        with ExitStack() as stack:
            stack.enter_context(clean_slate())
            stack.enter_context(patch.object(paths, "access_clocks", clocks))
            own = with_costs(device, staging_instructions=0) if term == "staging" else device
            yield term, seconds(programs, own)


def every_read(row: tuple[int, ...]) -> block_windows.Reuse:
    """As if a thread read an element as often as its points use it."""
    return block_windows.Reuse(int(np.prod(row[: len(row) // 2])), 0, 0, 0)


def _without_windows(programs: Sequence[RProgram], device: Device) -> Iterator[tuple[str, list[float]]]:
    """What only programs have whose blocks stage windows."""
    with clean_slate(), patch.object(block_windows, "_reuse", every_read):
        yield "reuse of window elements", seconds(programs, device)
    with clean_slate(), patch.object(work, "waiting_of", lambda nest, costs: Waiting(0, 0, 0, 0)):
        yield "window elements that wait", seconds(programs, device)


def roller_seconds(row: Mapping[str, str], device: Device) -> float:
    """ROLLER's estimate of a row: the largest of arithmetic, what tiles bring from memory, and what threads bring from
    shared memory, each at its rate."""
    per_second = device.units * device.clock_mhz * 1e6
    shared = next(layer for layer in device.layers if layer.managed and layer.scope == "unit")
    rates = device.instruction("fma").per_clock * per_second, shared.banks * shared.bank_bytes * per_second
    points, memory, read = _convolution(row) if "tile_size_x" in row else _product(row)
    return max(points / rates[0], memory / (device.backing.bandwidth_nominal_gb_s * 1e9), read / rates[1])


def _convolution(row: Mapping[str, str]) -> tuple[float, float, float]:
    """(multiply-adds, bytes from memory, bytes from shared memory): windows of blocks; what a thread's outputs, a block
    apart, share along y is read once."""
    bx, by, tx, ty = (int(row[n]) for n in ("block_size_x", "block_size_y", "tile_size_x", "tile_size_y"))
    blocks = -(-IMAGE // (bx * tx)) * -(-IMAGE // (by * ty))
    window = (bx * tx + FILTER - 1) * (by * ty + FILTER - 1)
    rows = min(FILTER * ty, FILTER + (ty - 1) * by)
    return TAPS * IMAGE**2, 4 * (blocks * window + IMAGE**2), 4 * blocks * bx * by * rows * FILTER * tx


def _product(row: Mapping[str, str]) -> tuple[float, float, float]:
    """The same of the GEMM space; SA = SB = 0 brings nothing from shared memory."""
    size = 4096
    m, n = int(row["MWG"]), int(row["NWG"])
    wm, wn = m // int(row["MDIMC"]), n // int(row["NDIMC"])
    read = int(row["SA"]) / wn + int(row["SB"]) / wm
    return size**3, 4 * size**3 * (1 / m + 1 / n), 4 * size**3 * read
