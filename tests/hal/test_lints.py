"""What is legal and likely wrong is reported: each lint on a spec that breaks only it."""

import json
from dataclasses import replace

import pytest

from rollergen.hal.dtypes import DTYPES
from rollergen.hal.lints import LINTS, NOTE, WARNING, lint
from rollergen.hal.load import device_names, load_device, parse_device
from rollergen.hal.spec import Device, Target


def with_layer(device: Device, name: str, **figures) -> Device:
    layers = tuple(replace(layer, **figures) if layer.name == name else layer for layer in device.layers)
    return replace(device, layers=layers)


def with_limits(device: Device, **figures) -> Device:
    return replace(device, limits=replace(device.limits, **figures))


def sparse_rate(device: Device) -> Device:
    fixed = tuple(replace(i, per_clock=2 * i.per_clock) if i.name == "mma" else i for i in device.instructions)
    return replace(device, instructions=fixed)


def counted_in_multiply_adds(device: Device) -> Device:
    """As NVIDIA prints it, and no printed peak to hold it against."""
    wrong = tuple(
        replace(i, per_clock=512, peak_dense_tflop_s=0.0) if i.name == "wmma" else i for i in device.instructions
    )
    return replace(device, instructions=wrong)


def with_instruction(device: Device, name: str, **figures) -> Device:
    changed = tuple(replace(i, **figures) if i.name == name else i for i in device.instructions)
    return replace(device, instructions=changed)


def with_costs(device: Device, **figures) -> Device:
    return replace(device, costs=tuple({**dict(device.costs), **figures}.items()))


V100, A100 = load_device("v100"), load_device("a100")
WIDE = "__attribute__((min_vector_width(512)))"
BROKEN = {
    "outer_layers_are_slower": (
        with_layer(V100, "dram", bandwidth_nominal_gb_s=9000), WARNING, "memory_layers[4]",
        "dram moves 9000 GB/s, l2 2826",
    ),
    "rates_agree": (
        with_layer(V100, "shared", bytes_per_clock=256, bank_bytes=8), WARNING, "memory_layers[1].bytes_per_clock",
        "makes 28262 GB/s of 80 units at 1380 MHz, 14131 are stated",
    ),
    "peaks_agree": (
        sparse_rate(A100), WARNING, "instructions[3].per_clock", "makes 623.7 TFLOP/s of mma, 312 are printed",
    ),
    "instructions_are_those_of_the_architecture": (
        replace(load_device("l4"), targets=(Target("cuda", "sm_86"),)), WARNING,
        f"instructions[{[i.name for i in load_device('l4').instructions].index('mma_e4m3')}]",
        "is mma_e4m3 of 16 x 8 x 32 float8_e4m3fn, for sm_86",
    ),
    "matrix_units_go_together": (
        with_instruction(A100, "mma_tf32", per_clock=1.0, peak_dense_tflop_s=0.0), WARNING,
        f"instructions[{[i.name for i in A100.instructions].index('mma_tf32')}].per_clock",
        "makes 1 multiply-adds of mma_tf32 for one of float16's",
    ),
    "lanes_are_issued": (
        replace(V100, schedulers=1), NOTE, "instructions[0].per_clock",
        "is 64 of fma; 1 instructions of 32 threads start 32 in a clock",
    ),
    "latencies_rise_outward": (
        with_layer(V100, "shared", latency_clocks=600), WARNING, "memory_layers[2].latency_clocks",
        "is 28, that of shared 600",
    ),
    "latencies_are_given": (
        with_layer(V100, "l1", latency_clocks=0), NOTE, "memory_layers[2].latency_clocks", "is 0 or missing, that of l1",
    ),
    "waiting_costs": (
        with_costs(V100, exposed_direct_clocks=0.0, exposed_stream_clocks=0.0), NOTE, "costs.exposed_direct_clocks",
        "is 0, as is costs.exposed_stream_clocks: a block waits for no tile or load",
    ),
    "launches_take_microseconds": (replace(V100, launch_us=1700.0), WARNING, "launch_us", "is 1700"),
    "registers_are_as_many_as_bytes": (
        with_layer(V100, "registers", capacity_bytes=512), WARNING, "limits.registers_per_thread",
        "is 255, and registers has 512 bytes",
    ),
    "threads_have_registers_left": (
        with_limits(V100, registers_per_thread=40), WARNING, "costs.reserved_registers", "is 24 of the 40 registers",
    ),
    "functions_cost": (
        replace(V100, costs=tuple((name, value) for name, value in V100.costs if not name.startswith("op_"))), NOTE,
        "costs.op_exp", "divisions and roots are free",
    ),
    "spilling_costs": (
        replace(V100, costs=tuple((name, value) for name, value in V100.costs if name != "spill_accesses")), NOTE,
        "costs.spill_accesses", "registers too many are free",
    ),
    "instructions_are_counted_and_not_multiply_adds": (
        counted_in_multiply_adds(V100), WARNING,
        f"instructions[{[i.name for i in V100.instructions].index('wmma')}].per_clock",
        "2.097e+06 multiply-adds of wmma in a clock of a unit, 1.638e+04 times the plain",
    ),
    "all_threads_have_registers": (
        with_limits(V100, register_allocation=64), WARNING, "limits.registers_per_unit", "need 131072",
    ),
    "outer_layers_are_larger": (
        with_layer(V100, "l2", capacity_bytes=1 << 40), WARNING, "memory_layers[4].capacity_bytes", "is 17179869184",
    ),
    "transactions_divide": (
        with_layer(V100, "l2", transaction_bytes=48), WARNING, "memory_layers[3].transaction_bytes", "is 48",
    ),
    "banks_make_the_rate": (
        with_layer(load_device("k80"), "shared", bank_bytes=4), NOTE, "memory_layers[1].bytes_per_clock",
        "32 banks of 4 bytes serve 128",
    ),
    "the_clock_is_in_mhz": (replace(V100, clock_mhz=1.38), WARNING, "clock_mhz", "is 1.38"),
    "capacities_are_in_bytes": (
        with_layer(V100, "l2", capacity_bytes=6), WARNING, "memory_layers[3].capacity_bytes", "is 6: l2 has less than 1024",
    ),
    "the_backing_store_keeps_up": (
        with_layer(V100, "dram", bandwidth_gb_s=0.9, bandwidth_nominal_gb_s=0.9), WARNING,
        "memory_layers[4].bandwidth_gb_s", "makes dram bring a byte for every 1.57e+04 float32 operations, 0.9 GB/s",
    ),
    "achieved_is_near_nominal": (
        with_layer(V100, "dram", bandwidth_gb_s=90), NOTE, "memory_layers[4].bandwidth_gb_s", "is 10% of the nominal one",
    ),
    "wide_vectors_are_masked": (
        replace(V100, targets=(Target("opencl", dialect=(("kernel_attribute", WIDE),)),)), WARNING, "targets[0].dialect",
        "asks for vectors of 512 bits and has no masked_vectors",
    ),
    "figures_are_those_of_the_architecture": (
        with_layer(load_device("t4"), "shared", bytes_per_clock=128), WARNING, "memory_layers[1].bytes_per_clock",
        "is 128; every Turing has 64",
    ),
    "matrix_units_are_used": (
        replace(A100, targets=(Target("opencl", "sm_80"),)), NOTE, "instructions[3]", "mma of 16 x 8 x 16 is used by no program",
    ),
    "figures_are_known": (V100, NOTE, "instructions[4].latency_clocks", "is assumed beside instructions[5]"),
}  # fmt: skip


@pytest.mark.parametrize("rule", [rule.__name__ for rule in LINTS])
def test_each_lint_finds_what_it_is_for_with_severity_path_and_reason(rule):
    device, severity, path, text = BROKEN[rule]
    finding = next(f for f in lint(device) if f.path == path and text in f.message)
    assert finding.severity == severity
    assert finding.reason
    assert str(finding).startswith(f"{severity}: {path} ")


@pytest.mark.parametrize("dtype", sorted(DTYPES.keys() - {"float16"}))
def test_matrix_units_of_every_dtype_are_checked(dtype):
    one = replace(A100.instruction("mma_s8"), name="one", dtype=dtype, per_clock=100.0, peak_dense_tflop_s=0.0)
    found = lint(replace(A100, instructions=(*A100.instructions, one)))
    assert any("multiply-adds of one for one of float16's" in f.message for f in found)


def test_a_rate_below_its_peak_is_noted_unless_another_instruction_makes_that():
    below, h100 = lambda device: [f.path for f in lint(device) if "are printed" in f.message], load_device("h100")
    assert below(h100) == []
    names = [one.name for one in h100.instructions]
    paths = [f"instructions[{names.index(one)}].per_clock" for one in ("mma", "wgmma")]
    assert below(with_instruction(h100, "wgmma", per_clock=0.01)) == paths
    assert below(with_instruction(A100, "mma", per_clock=0.25)) == ["instructions[3].per_clock"]


@pytest.mark.parametrize(
    ("wrong", "path"),
    [
        (replace(V100, launch_us=0.0017), "launch_us"),
        (with_instruction(V100, "fma_f64", latency_clocks=0), "instructions[1].latency_clocks"),
        (replace(load_device("k80"), schedulers=2), "instructions[0].per_clock"),
    ],
)
def test_lints_find_the_other_ways_of_being_wrong(wrong, path):
    assert path in {finding.path for finding in lint(wrong)}


def test_units_that_start_several_instructions_reach_their_rates():
    paths = lambda device: [f.path for f in lint(device) if "start" in f.message]
    k80 = load_device("k80")
    assert paths(k80) and not paths(with_costs(k80, issue_per_clock=6.0))  # of 192 lanes


@pytest.mark.parametrize("name", ["ipu", "ipu2"])
def test_a_machine_of_tiles_reaches_what_is_printed_of_its_exchange(name):
    assert not any("of the nominal one" in one.message for one in lint(load_device(name)))


def test_more_than_a_stream_reaches_of_the_nominal_bandwidth_is_noted():
    (found,) = (one for one in lint(with_layer(V100, "dram", bandwidth_gb_s=895)) if "nominal" in one.message)
    assert (found.severity, found.path) == (NOTE, "memory_layers[4].bandwidth_gb_s") and "is 99% of the" in found.message


def test_rates_of_another_vendors_threads_are_found_by_the_architecture():
    found = lint(with_costs(V100, thread_issue_clocks=4.0))
    assert any(f.path == "costs.thread_issue_clocks" and "every Volta has 1" in f.message for f in found)


@pytest.mark.parametrize(
    ("wrong", "path"),
    [
        (with_costs(V100, exposed_staging_clocks=450_000), "costs.exposed_staging_clocks"),
        (with_costs(V100, op_exp=0.02), "costs.op_exp"),
        (with_instruction(V100, "fma", latency_clocks=4000), "instructions[0].latency_clocks"),
        (with_layer(V100, "l2", latency_clocks=193_000), "memory_layers[3].latency_clocks"),
        (with_layer(V100, "l2", capacity_bytes=6144), "memory_layers[3].capacity_bytes"),  # KB
        (with_layer(V100, "dram", capacity_bytes=1 << 44), "memory_layers[4].capacity_bytes"),
    ],
)
def test_figures_a_thousand_times_off_are_noted_by_those_of_other_devices(wrong, path):
    siblings = [load_device(other) for other in device_names()]
    noted = [f for f in lint(wrong, siblings) if "in the devices known" in f.message]
    assert [f.path for f in noted] == [path] and noted[0].severity == NOTE
    assert not any("in the devices known" in f.message for f in lint(V100, siblings))


@pytest.mark.parametrize("name", device_names())
def test_no_built_in_device_has_a_warning(name):
    siblings = [load_device(other) for other in device_names()]
    assert [str(f) for f in lint(load_device(name), siblings) if f.severity == WARNING] == []


def test_what_the_architecture_has_is_no_finding():
    """Turing's banks could serve twice what its shared memory and first cache do."""
    turing, path = load_device("t4"), "memory_layers[1].bytes_per_clock"
    assert not any(one.path == path for one in lint(turing))
    assert any(one.path == path for one in lint(with_layer(turing, "shared", bytes_per_clock=128)))
    unnamed = replace(turing, targets=(Target("opencl"),))
    assert [one.severity for one in lint(unnamed) if one.path == path] == [NOTE]  # of which nothing is known


def test_a_unit_may_read_more_than_its_share_of_a_layer_that_all_units_share():
    (found,) = (one for one in lint(load_device("mi50")) if one.path == "memory_layers[3].bytes_per_clock")
    assert found.severity == NOTE and found.reason.startswith("right if one unit alone reads more than its share of l2")


def test_warnings_come_first():
    found = lint(with_layer(replace(V100, clock_mhz=1.38), "dram", bandwidth_gb_s=90))
    assert [f.severity for f in found] == sorted((f.severity for f in found), key=[WARNING, NOTE].index)


def test_a_figure_copied_from_another_chip_is_noticed_unless_it_is_called_assumed():
    figure = {"value": 809, "source": "somebody ran it", "kind": "measured"}
    layer = {"name": "dram", "bandwidth_gb_s": figure}
    document = {"format": "rollergen.device.v1", "name": "mine", "title": "mine", "extends": "a100", "memory_layers": [layer]}
    document["sources"] = {"somebody ran it": "somebody ran it"}

    def copies():
        found = lint(parse_device(json.dumps(document).encode(), "mine.json"), [V100])
        return [str(f) for f in found if "as that of v100" in f.message]

    assert [line.split(" (")[0] for line in copies()] == ["note: memory_layers[4].bandwidth_gb_s is 809, as that of v100"]
    figure["kind"] = "assumed"
    assert copies() == []


def test_the_name_of_a_built_in_device_with_other_figures_is_noticed():
    siblings = [load_device(name) for name in device_names()]
    found = [str(one) for one in lint(replace(V100, units=81), siblings) if one.path == "name"]
    assert len(found) == 1 and found[0].startswith("note: name is v100, which is a built-in device with other figures")
    assert not any(one.path == "name" for device in (V100, replace(V100, name="mine", units=81)) for one in lint(device, siblings))


def test_cards_of_one_chip_may_have_the_same_figures():
    assert not any("as that of" in f.message for f in lint(load_device("v100-sxm2"), [V100]))
