"""The model's constants: every name that a device's ``costs`` may hold, with unit and meaning.

A cost that a spec does not name is 0: the mechanism does not exist there (a GPU has no reorder window, a
CPU no load/store lanes).  None of them has a value in code, except the two neutral ones below.
"""

from __future__ import annotations

from functools import lru_cache

from rollergen.expr.primitives import PRIMITIVES
from rollergen.hal.spec import Device

MEANINGS: dict[str, str] = {
    "norm_exponent": "exponent that combines overlapping limiters (2: root of the sum of squares)",
    "issue_per_clock": "instructions that one unit issues in one clock (default: one for each scheduler)",
    "thread_issue_clocks": "clocks between two instructions of one thread (of the threads of one lockstep)",
    "loop_instructions": "instructions of one iteration of a rolled loop beside its body",
    "staging_instructions": "instructions of one staged element group: load, store and their addresses",
    "window_step_clocks": "latency of one step of a block that stages a window, element by element, that overlaps with "
    "what other blocks do",
    "unhidden_step_clocks": "the same as far as nothing hides it but blocks that stage at the same time",
    "reuse_registers": "1: what a later unrolled step reads again of a block's window waits in registers (0: the "
    "compiler puts such steps together)",
    "uniform_loads": "1: what all threads of a block read at one address comes by a path of its own",
    "asynchronous_instructions": "instructions of one asynchronous copy of a thread: itself and its addresses",
    "decode_instructions": "instructions of one division or remainder in the place of an element that is staged",
    "memory_operands": "1: a value that is loaded for one use folds into the arithmetic instruction",
    "fragment_registers": "registers held for each element of a register copy (2: two unrolled steps are live)",
    "reserved_registers": "registers of addresses, counters and a broadcast, for each thread",
    "spill_margin": "registers spilled beyond the excess, once there is one",
    "spill_unrolled": "registers spilled beyond the excess where reduction steps are unrolled",
    "spill_accesses": "memory accesses of one wavefront (and issue slots) for each spilled register and step",
    "spill_clocks": "clocks added to the arithmetic for each spilled full-width register and step",
    "spill_narrow_clocks": "the same for a register that fills at most half of the vector width",
    "reorder_window": "instructions in flight: how far a short reduction overlaps the next one",
    "load_store_lanes": "lanes that the load/store unit serves in one clock (in order)",
    "load_ports": "loads that start in one clock, of any width",
    "store_ports": "stores that start in one clock",
    "exposed_staging_clocks": "latency of one staged step that its block cannot hide: load, barrier, store, barrier",
    "exposed_prefetched_clocks": "the same where the next tile is fetched while this one is used",
    "exposed_direct_clocks": "latency exposed by one iteration of the innermost rolled loop that reads through caches",
    "exposed_managed_clocks": "latency exposed by one such iteration that reads a managed layer",
    "exposed_stream_clocks": "latency exposed by one round of independent loads of data that nobody has cached",
    "keep_below": "fill of a set (lines over ways) up to which its lines survive",
    "keep_above": "fill of a set from which on none survives; linear between",
    "write_allocate": "1: a store reads its line first, unless it streams",
    "warm_cache": "share of the data that fit the outermost cache which is there when the kernel starts (1: all)",
    "walk_clocks": "exposed clocks of one line in a long column walk that no prefetcher follows",
    "walk_far_clocks": "the same where the walked tensor exceeds half of the outermost cache",
    "walk_far_rows": "rows of such a tensor that prefetchers follow at once: further ones are exposed at any stride",
    "walk_short_lines": "lines of a piece of a row up to which a reduction that walks down more rows than those waits "
    "for each line from the outer cache",
    "walk_rows": "rows up to which a column walk is harmless",
    "walk_sets": "sets of the innermost cache: a stride that reaches more of them is harmless",
    "miss_buffers": "line fills in flight",
    "miss_window": "instructions within which misses overlap",
    "tile_clocks": "clocks of entering and leaving one register tile",
    "block_clocks": "clocks of starting one block on a unit",
    "edge_clocks": "clocks for each element of a tile that overhangs its tensor, or result that goes out alone",
    "guard_instructions": "instructions of one bound that an access is tested for",
    "gather_clocks": "clocks for each element that a lane loop loads or stores by itself",
    "array_alignment": "bytes at which the caller's arrays are sure to begin (0: on lines of the cache)",
    "combine_clocks": "exposed clocks of one step of a tree over the threads of a block",
    "shuffle_clocks": "exposed clocks of one exchange of registers within an execution width, and of what follows it",
    "op_exp_below": "multiply-add slots of one exp of a row's element less the largest one (0: as of any exp)",
    "exchange_clocks": "clocks of one copy phase from the other units' memories: synchronisation and set-up",
    "fragment_clocks": "control clocks of one fragment that a tile receives in an exchange",
    "home_copy_clocks": "clocks for each byte of its own data that a tile copies beside what it receives",
    "vector_call_clocks": "issue slots of a worker that calls an elementwise vertex",
    "vector_loop_clocks": "issue slots of one vector of an elementwise vertex",
    "vector_end_clocks": "clocks of the end of an elementwise vertex",
    "dot_call_clocks": "issue slots of one output of a vertex that reduces",
    "partial_call_clocks": "issue slots of a worker that calls the vertex that adds partial results",
    "partial_input_clocks": "issue slots of it for each partial result of a vector of outputs",
    "partial_output_clocks": "issue slots of it for each vector of outputs",
    "partial_vector": "outputs of one such vector",
    "amp_least_rows": "rows of a worker below which a matrix instruction's pipeline is no shorter",
    "amp_call_clocks": "clocks of a call of the matrix vertex",
    "amp_input_clocks": "clocks of it for each block of inputs",
    "amp_block_clocks": "clocks of it for each block of weights, beside its loading",
    "amp_weight_clocks": "clocks of loading a block of weights, workers idle",
    "amp_zero_call_clocks": "issue slots of a worker that clears its partial results, for each block of outputs",
    "amp_conv_call_clocks": "clocks of a call of the matrix vertex for windows",
    "amp_conv_input_clocks": "clocks of it for each block of inputs",
    "amp_conv_block_clocks": "clocks of it for each block of inputs and outputs",
    "amp_conv_tap_clocks": "clocks of it for each tap, beside the loading of its weights",
    "amp_conv_worker_clocks": "issue slots of a worker for each tap",
    "amp_conv_piece_clocks": "issue slots of a worker for each piece of an image row, factors of 4 bytes",
    "amp_conv_piece_half_clocks": "the same for factors of 2 bytes",
    "amp_conv_zero_clocks": "issue slots of a worker that clears one row of partial results of windows",
    **{
        f"op_{name}": f"multiply-add slots of one {name}"
        for name in (*dict.fromkeys(row.cost for row in PRIMITIVES.values() if row.cost), "index")
    },
}

_NEUTRAL = {"norm_exponent": 2.0, "keep_above": 1.0, "keep_below": 1.0}


class Costs:
    """The constants of one device as attributes; see `MEANINGS`."""

    def __init__(self, values: dict[str, float]) -> None:
        self.__dict__.update(dict.fromkeys(MEANINGS, 0.0) | _NEUTRAL | values)
        self._named = values

    def __getattr__(self, name: str) -> float:
        raise AttributeError(f"{name} is no cost of the model; expected one of {sorted(MEANINGS)}")

    def operation(self, name: str) -> float:
        """Multiply-add slots of one operation; 1 where the spec names no other."""
        if name == "exp_below" and not self._named.get("op_exp_below"):
            name = "exp"
        return self._named.get("op_" + name, 1.0)


@lru_cache(maxsize=64)
def costs_of(device: Device) -> Costs:
    """Found by the device, which knows its hash: that of all constants takes longer than most terms."""
    return Costs(dict(device.costs))
