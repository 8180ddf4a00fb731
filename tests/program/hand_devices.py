"""Devices written by hand: tests of the model do not depend on the shipped specs."""

from rollergen.hal.spec import Device, Instruction, Limits, MemoryLayer, Target, Tlb

TURING = Device(
    name="turing",
    title="TITAN RTX, public figures",
    units=72,
    execution_width=32,
    schedulers=4,
    clock_mhz=1770.0,
    layers=(
        MemoryLayer("registers", "thread", True, 255 * 4, 4),
        MemoryLayer("shared", "unit", True, 65536, 128, bytes_per_clock=64, banks=32, bank_bytes=4),
        MemoryLayer("l1", "unit", False, 98304, 32, bytes_per_clock=64, banks=32, bank_bytes=4),
        MemoryLayer("l2", "device", False, 6 << 20, 32, bytes_per_clock=20),
        MemoryLayer("dram", "device", True, 24 << 30, 32, bandwidth_gb_s=672 * 0.85, bandwidth_nominal_gb_s=672),
    ),
    instructions=(Instruction("fma", "float32", "float32", 1, 1, 1, 1, 64, 4),),
    limits=Limits(1024, 1024, 16, 255, 65536, 8, 65536),
    launch_us=3.0,
    targets=(Target("opencl"),),
    costs=(
        ("norm_exponent", 2), ("thread_issue_clocks", 1),
        ("loop_instructions", 10), ("staging_instructions", 12), ("fragment_registers", 2),
        ("reserved_registers", 24), ("spill_accesses", 2), ("load_store_lanes", 16), ("exposed_staging_clocks", 450),
        ("exposed_prefetched_clocks", 60), ("exposed_direct_clocks", 250), ("exposed_managed_clocks", 30),
        ("exposed_stream_clocks", 450), ("keep_below", 0.6), ("keep_above", 2.5), ("combine_clocks", 30),
        ("op_exp", 4), ("op_div", 8), ("guard_instructions", 2),
    ),
)  # fmt: skip

AVX512 = Device(
    name="avx512",
    title="one AVX-512 core",
    units=1,
    execution_width=16,
    schedulers=1,
    clock_mhz=3700.0,
    layers=(
        MemoryLayer("registers", "thread", True, 32 * 64, 64),
        MemoryLayer("l1", "unit", False, 48 << 10, 64, bytes_per_clock=128, write_bytes_per_clock=64, sets=64, ways=12),
        MemoryLayer("l2", "unit", False, 2 << 20, 64, bytes_per_clock=48, write_bytes_per_clock=16, sets=64, ways=512),
        MemoryLayer("l3", "device", False, 96 << 20, 64, bytes_per_clock=8),
        MemoryLayer("dram", "device", True, 64 << 30, 64, bytes_per_clock=4.3),
    ),
    instructions=(
        Instruction("vfma", "float32", "float32", 1, 16, 1, 16, 2, 4),
        Instruction("fma", "float32", "float32", 1, 1, 1, 1, 2, 4),
    ),
    limits=Limits(4096, 4096, 1, 32, 32, 1, 2 << 20),
    launch_us=4.0,
    targets=(Target("opencl"),),
    tlbs=(Tlb(96, 4096, 2), Tlb(2048, 4096, 16)),
    costs=(
        ("norm_exponent", 2), ("issue_per_clock", 6), ("loop_instructions", 4), ("memory_operands", 1),
        ("reserved_registers", 2), ("spill_margin", 1), ("spill_unrolled", 12), ("spill_clocks", 2),
        ("spill_narrow_clocks", 0.65), ("reorder_window", 512), ("load_ports", 3), ("store_ports", 1),
        ("keep_below", 0.6), ("keep_above", 2.5), ("write_allocate", 1), ("warm_cache", 1), ("walk_clocks", 18),
        ("walk_far_clocks", 28), ("walk_rows", 96), ("walk_sets", 8), ("miss_buffers", 16), ("miss_window", 200),
        ("tile_clocks", 25), ("block_clocks", 11), ("edge_clocks", 2), ("gather_clocks", 1.2),
        ("op_exp", 12), ("op_div", 8), ("op_shr", 0.5), ("op_lookup", 0.5), ("guard_instructions", 2),
    ),
)  # fmt: skip
