"""The constants of the performance model that a device's ``costs`` hold, each declared once.

One that a spec does not name is neutral, which is 0 but for three: the mechanism does not exist there (a GPU has no
reorder window, a CPU no load/store lanes).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from rollergen.hal.declared import SUPERSTEPS, VECTORS, VECTORS_ALONE, Reason, without


class Cost(NamedTuple):
    """What a constant means, why it is informational on some devices, and its value where a spec does not name it."""

    meaning: str
    informational: tuple[Reason, ...]
    neutral: float


def cost(meaning: str, *informational: Reason, neutral: float = 0.0) -> Cost:
    return Cost(meaning, informational, neutral)


OPERATIONS = ("exp", "log", "sqrt", "rsqrt", "tanh", "erf", "pow", "div", "floor", "index", "shr", "lookup")
"""What devices are asked the time of: the ``cost`` of a primitive is one of these.  A lookup is of one of 16 floats,
which a vector holds, by four bits of an integer."""

_BY_HAND = Reason("windows are constructed in registers: it moves programs that are written by hand (rg.predict)")

COSTS: Mapping[str, Cost] = {
    "norm_exponent": cost("exponent that combines overlapping limiters (2: root of the sum of squares)", neutral=2.0),
    "matrix_exponent": cost("the same of a unit that computes by matrix instructions (default: norm_exponent)"),
    "memory_exponent": cost(
        "exponent that combines what a unit does with the memory beyond it, whose layers lines pass in series: the "
        "slowest of them counts (default: each layer is one of the overlapping limiters)",
    ),
    "ahead_exponent": cost("the same where all tiles are staged ahead of their use (default: memory_exponent)"),
    "beside_exponent": cost("the same where matrix instructions run beside the program, too (default: ahead_exponent)"),
    "issue_per_clock": cost("instructions that one unit issues in one clock (default: one for each scheduler)"),
    "vector_pipes": cost(
        "pipes of a unit that multiply and add vectors, together as wide as what it starts in a clock: a vector "
        "narrower than a pipe takes that pipe for a clock (default: one, as wide as the instruction)",
    ),
    "integer_per_clock": cost(
        "instructions of integer arithmetic that one unit executes in one clock, where tiles of a matrix "
        "instruction's factors are gathered, or converted from integers (default: as many as it issues)",
    ),
    "thread_issue_clocks": cost("clocks between two instructions of one thread (of the threads of one lockstep)"),
    "loop_instructions": cost("instructions of one iteration of a rolled loop beside its body"),
    "staging_instructions": cost("instructions of one staged element group: load, store and their addresses"),
    "decode_instructions": cost(
        "instructions of one division or remainder in the place of an element that is staged or, by a scalar thread or "
        "a vector, read in place",
    ),
    "window_step_clocks": cost(
        "one step of a block that stages a window, element by element, which nothing hides but blocks that stage at "
        "the same time",
        _BY_HAND,
    ),
    "reuse_registers": cost(
        "1: what a later unrolled step reads again of a block's window waits in registers (0: the compiler puts "
        "such steps together)",
    ),
    "uniform_loads": cost("1: what all threads of a block read at one address comes by a path of its own"),
    "asynchronous_instructions": cost("instructions of one asynchronous copy of a thread: itself and its addresses"),
    "asynchronous_guard_instructions": cost(
        "instructions of one bound that an asynchronous copy is tested for: its predicate (default: guard_instructions)"
    ),
    "memory_operands": cost("1: a value that is loaded for one use folds into the arithmetic instruction"),
    "fragment_registers": cost("registers held for each element of a register copy (2: two unrolled steps are live)"),
    "reserved_registers": cost(
        "registers of addresses, counters and a broadcast, for each thread",
        Reason(
            "programs of supersteps have no limit of registers: it moves only those that no grid of tiles "
            "holds, constructed as if all memories were one",
            device=SUPERSTEPS,
        ),
    ),
    "spill_margin": cost("registers spilled beyond the excess, once there is one"),
    "spill_unrolled": cost(
        "registers spilled beyond the excess where reduction steps are unrolled",
        Reason(
            "programs unroll a sum over the few taps of a window only, where registers are left: it moves "
            "programs that are written by hand (rg.predict)",
            device=VECTORS_ALONE,
        ),
    ),
    "spill_accesses": cost(
        "memory accesses of one wavefront (and issue slots) for each spilled register and step",
        Reason(
            "programs of supersteps have no registers to spill: it moves only those that no grid of tiles "
            "holds, constructed as if all memories were one",
            device=SUPERSTEPS,
        ),
        Reason(
            "of programs whose scalar threads spill none is constructed where others fit: it moves those, and "
            "programs that are written by hand (rg.predict)",
            device=without(VECTORS),
        ),
    ),
    "spill_clocks": cost("clocks added to the arithmetic for each spilled full-width register and step"),
    "spill_narrow_clocks": cost(
        "the same for a register that fills at most half of the vector width",
        Reason(
            "programs take whole vectors but of tensors narrower than half of one, which do not fill the "
            "registers: it moves programs that are written by hand (rg.predict)",
            device=VECTORS_ALONE,
        ),
    ),
    "reorder_window": cost("instructions in flight: how far a short reduction overlaps the next one"),
    "load_store_lanes": cost("lanes that the load/store unit serves in one clock (in order)"),
    "load_ports": cost("loads that start in one clock, of any width"),
    "store_ports": cost("stores that start in one clock"),
    "exposed_staging_clocks": cost(
        "latency of one staged step that its block cannot hide: load, barrier, store, barrier",
    ),
    "exposed_prefetched_clocks": cost("the same where the next tile is fetched while this one is used"),
    "exposed_direct_clocks": cost(
        "latency exposed by one iteration of the innermost rolled loop that reads through caches",
    ),
    "exposed_managed_clocks": cost("latency exposed by one such iteration that reads a managed layer"),
    "exposed_stream_clocks": cost("latency exposed by one round of independent loads of data that nobody has cached"),
    "keep_below": cost("fill of a set (lines over ways) up to which its lines survive", neutral=1.0),
    "keep_above": cost("fill of a set from which on none survives; linear between", neutral=1.0),
    "write_allocate": cost("1: a store reads its line first, unless it streams"),
    "warm_cache": cost("share of the data that fit the outermost cache which is there when the kernel starts (1: all)"),
    "warm_below": cost(
        "fill of the outermost cache (bytes that a call touches over its capacity) up to which all of it is there at "
        "the next call, or of a launch, up to which its temporary is there at the next launch; needs warm_above",
    ),
    "warm_above": cost(
        "fill of it from which on none is; linear between (default: keep_below and keep_above hold for it, too)"
    ),
    "walk_clocks": cost("exposed clocks of one line in a long column walk that no prefetcher follows"),
    "walk_far_clocks": cost("the same where the walked tensor exceeds half of the outermost cache"),
    "walk_far_rows": cost(
        "rows of such a tensor that prefetchers follow at once: further ones are exposed at any stride",
    ),
    "walk_panel_clocks": cost(
        "exposed clocks of one line from the outer cache in a panel that rows of tiles share, unless the panel before "
        "asked for it",
    ),
    "walk_short_lines": cost(
        "lines of a piece of a row up to which a reduction that walks down more rows than those waits for each "
        "line from the outer cache",
    ),
    "walk_piece_clocks": cost(
        "exposed clocks at least of one line from memory of pieces of more rows than prefetchers follow, however long "
        "the pieces are",
    ),
    "walk_rows": cost("rows up to which a column walk is harmless"),
    "walk_sets": cost("sets of the innermost cache: a stride that reaches more of them is harmless"),
    "miss_buffers": cost("line fills in flight"),
    "miss_window": cost("instructions within which misses overlap"),
    "tile_clocks": cost("clocks of entering and leaving one register tile"),
    "block_clocks": cost("clocks of starting one block on a unit"),
    "next_block_clocks": cost("clocks from the end of a block that has a unit for itself to the start of the next one"),
    "edge_clocks": cost("clocks for each element of a tile that overhangs its tensor, or result that goes out alone"),
    "nan_slots": cost(
        "multiply-add slots of each instruction by which a maximum of vectors keeps a NaN: three for each vector in "
        "one chain, one in separate chains",
    ),
    "guard_instructions": cost("instructions of one bound that an access is tested for"),
    "gather_clocks": cost("clocks for each element that a lane loop loads or stores by itself"),
    "array_alignment": cost("bytes at which the caller's arrays are sure to begin (0: on lines of the cache)"),
    "combine_clocks": cost(
        "exposed clocks of one step of a tree over the threads of a block",
        Reason(
            "programs of supersteps have no tree over the threads of a block: it moves only those that no grid"
            " of tiles holds, constructed as if all memories were one",
            device=SUPERSTEPS,
        ),
    ),
    "shuffle_clocks": cost(
        "exposed clocks of one exchange of registers within an execution width, and of what follows it",
    ),
    "exchange_clocks": cost("clocks of one copy phase from the other units' memories: synchronisation and set-up"),
    "fragment_clocks": cost("control clocks of one fragment that a tile receives in an exchange"),
    "home_copy_clocks": cost("clocks for each byte of its own data that a tile copies beside what it receives"),
    "vector_call_clocks": cost("issue slots of a worker that calls an elementwise vertex"),
    "vector_loop_clocks": cost("issue slots of one vector of an elementwise vertex"),
    "vector_end_clocks": cost("clocks of the end of an elementwise vertex"),
    "dot_call_clocks": cost("issue slots of one output of a vertex that reduces"),
    "partial_call_clocks": cost("issue slots of a worker that calls the vertex that adds partial results"),
    "partial_input_clocks": cost("issue slots of it for each partial result of a vector of outputs"),
    "partial_output_clocks": cost("issue slots of it for each vector of outputs"),
    "partial_vector": cost("outputs of one such vector"),
    "amp_least_rows": cost("rows of a worker below which a matrix instruction's pipeline is no shorter"),
    "amp_call_clocks": cost("clocks of a call of the matrix vertex"),
    "amp_input_clocks": cost("clocks of it for each block of inputs"),
    "amp_block_clocks": cost("clocks of it for each block of weights, beside its loading"),
    "amp_weight_clocks": cost("clocks of loading a block of weights, workers idle"),
    "amp_zero_call_clocks": cost("issue slots of a worker that clears its partial results, for each block of outputs"),
    "amp_conv_call_clocks": cost("clocks of a call of the matrix vertex for windows"),
    "amp_conv_input_clocks": cost("clocks of it for each block of inputs"),
    "amp_conv_block_clocks": cost("clocks of it for each block of inputs and outputs"),
    "amp_conv_tap_clocks": cost("clocks of it for each tap, beside the loading of its weights"),
    "amp_conv_worker_clocks": cost("issue slots of a worker for each tap"),
    "amp_conv_piece_clocks": cost("issue slots of a worker for each piece of an image row, factors of 4 bytes"),
    "amp_conv_piece_half_clocks": cost("the same for factors of 2 bytes"),
    "amp_conv_zero_clocks": cost("issue slots of a worker that clears one row of partial results of windows"),
    **{f"op_{name}": cost(f"multiply-add slots of one {name}") for name in OPERATIONS},
    "op_exp_below": cost("multiply-add slots of one exp of a row's element less the largest one (0: as of any exp)"),
}
