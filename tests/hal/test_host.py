"""Completing the cpu spec from a host: what is read, what is measured, what is kept."""

import json
from dataclasses import asdict, replace

import pytest

from rollergen.hal.errors import BuildError
from rollergen.hal.load import device_hash, load_device, save_device
from rollergen.hal.probes import host, host_probe
from rollergen.hal.probes.host import complete, completed, completed_on
from rollergen.hal.probes.host_facts import (
    CacheLevel,
    cache_levels,
    cpu_model,
    highest_clock_mhz,
    vector_registers,
    widest_bits,
)
from rollergen.hal.probes.host_probe import Probe, choose_dialect, falling, working_sets
from rollergen.hal.probes.microbench import Dialect, dialects

CACHES = (CacheLevel(1, 49152, 64, 12), CacheLevel(2, 2 << 20, 64, 16), CacheLevel(3, 32 << 20, 64, 16))
LAYERS = ("l1", "l2", "l3", "dram")
PROBE = Probe(
    runtime="a runtime",
    units=8,
    clock_mhz=3700.0,
    peak_gflop_s=215.0,
    lanes=16,
    attribute="__attribute__((min_vector_width(512)))",
    read_bytes_per_clock=dict(zip(LAYERS, (112.0, 48.0, 8.0, 4.3), strict=True)),
    write_bytes_per_clock=dict(zip(LAYERS, (60.0, 40.0, 8.0, 3.0), strict=True)),
    read_gb_s=dict(zip(LAYERS, (3000.0, 1400.0, 200.0, 60.0), strict=True)),
    launch_us=6.0,
    wake_us=40.0,
    spread={"clock": 0.01, "peak": 0.02, "launch": 0.5, "wake": 0.2, "l1": 0.1},
)
CPU = load_device("cpu")


@pytest.fixture
def own_cache(monkeypatch, tmp_path):
    """A cache directory that nobody else writes, and a measurement that counts its runs."""
    runs = []
    monkeypatch.setattr(host_probe, "kept_in", lambda: tmp_path / "deep" / "host.json")
    monkeypatch.setattr(host_probe, "measure", lambda *_: runs.append(1) or PROBE)
    return runs, tmp_path / "deep" / "host.json"


def test_no_layer_is_slower_than_one_beyond_it():
    assert falling({"l1": 100.0, "l2": 30.0, "l3": 5.4, "dram": 5.8}) == {"l1": 100.0, "l2": 30.0, "l3": 5.8, "dram": 5.8}
    assert falling({"l1": 3.0, "l2": 30.0, "dram": 4.0}) == {"l1": 30.0, "l2": 30.0, "dram": 4.0}


def test_the_same_figures_give_the_same_completed_spec():
    one, other = completed(CPU, CACHES, PROBE), completed(CPU, CACHES, replace(PROBE))
    assert one == other and device_hash(one) == device_hash(other)


def test_completion_takes_lanes_registers_caches_and_dialect_from_the_host():
    device = completed(CPU, CACHES, PROBE)
    assert [layer.name for layer in device.layers] == ["registers", *LAYERS]
    assert device.execution_width == 16 and device.units == 8
    assert {i.name: i.lanes for i in device.instructions} == {"vfma": 16, "vfma_f64": 8, "fma": 1}
    assert dict(device.targets[0].dialect) == {
        "completed": cpu_model(), "vector_width": "16", "kernel_attribute": PROBE.attribute,
        "masked_vectors": "512",
    }  # fmt: skip
    assert device.limits.registers_per_thread == vector_registers()
    l1, l2 = device.layer("l1"), device.layer("l2")
    assert (l1.sets, l1.ways) == (64, 12)
    assert (l2.sets, l2.ways) == (4096 // 64, (2 << 20) // 4096)  # those within a page; pages randomise the rest
    assert device.layer("l3").sets == 0 and device.layer("l3").scope == "device"


@pytest.mark.parametrize(("measured", "per_clock"), [(1.8, 2), (1.4, 2), (0.9, 1), (0.12, 0), (0.0, 0)])
def test_dot_products_are_an_instruction_where_they_run_at_an_instructions_rate(measured, per_clock):
    """Beside multiply-adds that reach 1.82 of 2 a clock; 28 instructions in its place reach 0.07."""
    device = completed(CPU, CACHES, replace(PROBE, dot_products_per_clock={"vpdpbusd": measured}))
    found = [(one.name, one.lanes, one.k, one.per_clock) for one in device.instructions if one.is_dot_product]
    assert found == ([("vpdpbusd", 16, 4, per_clock)] if per_clock else [])
    assert bool(device.kind.dot_products) == bool(per_clock)


@pytest.mark.parametrize(("measured", "per_clock"), [(1.8, 2), (1.31, 1.5), (0.9, 1), (0.6, 0), (0.2, 0)])
def test_pairs_take_two_instructions_that_share_pipes(measured, per_clock):
    device = completed(CPU, CACHES, replace(PROBE, dot_products_per_clock={"vpmaddwd": measured}))
    found = [(one.name, one.lanes, one.k, one.per_clock, one.issued) for one in device.instructions if one.is_dot_product]
    assert found == ([("vpmaddwd", 16, 2, per_clock, 2)] if per_clock else [])
    assert device.kind.dot_products == ({("int16", "int16")} if per_clock else set())


@pytest.mark.parametrize(("measured", "per_clock"), [(1.8, 2), (0.9, 1), (0.2, 0)])
def test_pairs_of_bfloat16_are_added_up_in_float32(measured, per_clock):
    device = completed(CPU, CACHES, replace(PROBE, dot_products_per_clock={"vdpbf16ps": measured}))
    found = [(one.name, one.accumulator_dtype, one.k, one.per_clock) for one in device.instructions if one.is_dot_product]
    assert found == ([("vdpbf16ps", "float32", 2, per_clock)] if per_clock else [])
    assert device.kind.dot_products == ({("bfloat16", "bfloat16")} if per_clock else set())


def test_the_measured_peak_is_units_times_rate_times_clock_within_5_percent():
    device = completed(CPU, CACHES, replace(PROBE, peak_gflop_s=2 * 2 * 16 * 3.7 * 0.96))
    wide = device.instruction("vfma")
    assert 2 * wide.lanes * wide.per_clock * device.clock_mhz * 1e-3 == pytest.approx(2 * 2 * 16 * 3.7 * 0.96, rel=0.05)
    assert device.instruction("vfma_f64").lanes * 2 == wide.lanes


@pytest.mark.parametrize("measured, ports", [(112.0, 2), (84.0, 2), (60.0, 1), (52.0, 1), (176.0, 3)])
def test_ports_of_the_first_cache_move_whole_vectors(measured, ports):
    probe = replace(PROBE, read_bytes_per_clock={**PROBE.read_bytes_per_clock, "l1": measured})
    assert completed(CPU, CACHES, probe).layer("l1").bytes_per_clock == ports * 64


def test_a_completed_spec_comes_back_as_it_is():
    device = completed(CPU, CACHES, PROBE)
    assert complete(device) is device


@pytest.mark.parametrize("name", ["v100", "mi50", "ipu"])
def test_a_device_that_is_not_the_host_comes_back_as_it_is(name):
    assert complete(load_device(name)) is load_device(name)
    assert completed_on(load_device(name)) is None


@pytest.mark.parametrize("probe", [PROBE, None], ids=["probed", "no runtime"])
@pytest.mark.parametrize("caches", [CACHES, ()], ids=["caches", "no caches"])
def test_every_completed_spec_can_be_saved_and_loads_as_the_same_value(probe, caches, tmp_path):
    if probe and not caches:
        probe = replace(PROBE, read_gb_s={"dram": 60.0})
    device = completed(CPU, caches, probe)
    save_device(device, tmp_path / "mine.json")
    assert load_device(tmp_path / "mine.json") == device


def test_every_figure_of_a_completed_spec_says_where_it_is_from(tmp_path):
    device = completed(CPU, CACHES, PROBE)
    save_device(device, tmp_path / "mine.json")
    document = json.loads((tmp_path / "mine.json").read_text())
    bare = [
        f"memory_layers[{n}].{key}"
        for n, layer in enumerate(document["memory_layers"])
        for key, value in layer.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool)
    ]
    assert bare == []
    kinds = dict(device.provenance)
    assert kinds["clock_mhz"][0] == "measured" and "1%" in kinds["clock_mhz"][1]
    assert kinds["tlbs[0].entries"][0] == "assumed"


def test_what_was_kept_is_looked_at_again_only_where_its_file_changed(own_cache, monkeypatch):
    looks, (_, file) = [], own_cache
    monkeypatch.setattr(host, "kept_in", lambda: file)
    monkeypatch.setattr(host, "probe", lambda caches: looks.append(1) or host_probe.probe(CACHES))
    first = complete(CPU)  # no file yet
    assert complete(CPU) is complete(CPU) and complete(CPU) == first and len(looks) == 2
    key, kept = next(iter(json.loads(file.read_text()).items()))
    file.write_text(json.dumps({key: kept | {"clock_mhz": 12.5}}))
    assert complete(CPU).clock_mhz == 12.5 and len(looks) == 3


def test_without_a_runtime_the_spec_is_derived_and_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(host, "kept_in", lambda: tmp_path / "none.json")
    monkeypatch.setattr(host, "probe", lambda caches: None)
    device = complete(CPU)
    assert completed_on(device) == cpu_model()
    assert dict(device.provenance)["clock_mhz"][0] == "derived"
    assert dict(device.targets[0].dialect)["kernel_attribute"] == f"__attribute__((min_vector_width({widest_bits()})))"
    assert device == complete(CPU)


def test_figures_are_measured_once_and_kept(own_cache):
    runs, file = own_cache
    first = host_probe.probe(CACHES)
    assert host_probe.probe(CACHES) == first == PROBE and len(runs) == 1
    assert list(file.parent.iterdir()) == [file]


def test_other_caches_or_another_version_are_measured_anew(own_cache, monkeypatch):
    runs, _ = own_cache
    host_probe.probe(CACHES)
    host_probe.probe(CACHES[:2])
    monkeypatch.setattr(host_probe, "VERSION", -1)
    host_probe.probe(CACHES)
    assert len(runs) == 3


@pytest.mark.parametrize(
    "change", [{"clock_mhz": "fast"}, {"clock_mhz": -1.0}, {"read_gb_s": 3}, {"extra": 1}, {"runtime": None}]
)
def test_a_damaged_entry_is_measured_anew(own_cache, change):
    runs, file = own_cache
    host_probe.probe(CACHES)
    kept = json.loads(file.read_text())
    file.write_text(json.dumps({key: {**entry, **change} for key, entry in kept.items()}))
    assert host_probe.probe(CACHES) == PROBE and len(runs) == 2


@pytest.mark.parametrize("content", ["", "[]", "{", "\0"])
def test_a_damaged_file_is_replaced(own_cache, content):
    _, file = own_cache
    file.parent.mkdir()
    file.write_text(content)
    assert host_probe.probe(CACHES) == PROBE
    assert next(iter(json.loads(file.read_text()).values())) == asdict(PROBE)


def test_a_cache_directory_that_cannot_be_written_is_no_error(own_cache, monkeypatch):
    runs, file = own_cache
    file.parent.write_text("in the way")
    assert host_probe.probe(CACHES) == host_probe.probe(CACHES) == PROBE and len(runs) == 2


def test_a_process_that_was_faster_decides(own_cache, monkeypatch):
    theirs = replace(PROBE, clock_mhz=1234.0)
    mine = replace(PROBE, clock_mhz=4321.0)

    def measured_meanwhile(*_):
        monkeypatch.setattr(host_probe, "measure", lambda *_: theirs)
        host_probe.probe(CACHES)
        return mine

    monkeypatch.setattr(host_probe, "measure", measured_meanwhile)
    assert host_probe.probe(CACHES) == theirs


def test_a_runtime_that_compiles_nothing_is_as_good_as_none(own_cache, monkeypatch):
    def refuse(*_):
        raise BuildError("no")

    monkeypatch.setattr(host_probe, "measure", refuse)
    assert host_probe.probe(CACHES) is None


def test_caches_are_read_from_the_system_without_instruction_caches(tmp_path):
    told = [
        ("1", "Data", "48K", "12"),
        ("1", "Instruction", "32K", "8"),
        ("2", "Unified", "1M", "16"),
        ("3", "Unified", "0K", "0"),
    ]
    for number, (level, kind, size, ways) in enumerate(told):
        folder = tmp_path / "cache" / f"index{number}"
        folder.mkdir(parents=True)
        for name, text in (("level", level), ("type", kind), ("size", size), ("ways_of_associativity", ways)):
            (folder / name).write_text(text + "\n")
        (folder / "coherency_line_size").write_text("64\n")
    (tmp_path / "cache" / "index9").mkdir()
    assert cache_levels(tmp_path) == (CacheLevel(1, 49152, 64, 12), CacheLevel(2, 1 << 20, 64, 16))


def test_a_system_that_says_nothing_gives_no_caches_and_no_clock(tmp_path):
    assert cache_levels(tmp_path) == ()
    assert highest_clock_mhz(tmp_path) == 0


@pytest.mark.parametrize(
    "flags, bits, registers", [("sse2", 128, 16), ("sse2 avx2 fma", 256, 16), ("avx2 avx512f", 512, 32)]
)
def test_vector_width_and_registers_follow_from_the_flags(flags, bits, registers):
    assert widest_bits(frozenset(flags.split())) == bits
    assert vector_registers(frozenset(flags.split())) == registers


def test_working_sets_lie_well_inside_and_well_outside_of_caches():
    sizes = working_sets(CACHES, memory=64 << 30)
    assert sizes == {"l1": 24576, "l2": 1 << 20, "l3": 16 << 20, "dram": 128 << 20}
    huge = (*CACHES[:2], CacheLevel(3, 512 << 20, 64, 16))
    assert working_sets(huge, memory=64 << 30)["dram"] == 1 << 30
    assert working_sets(huge, memory=1 << 30)["dram"] == 1 << 27


def test_the_fastest_dialect_is_chosen_and_among_equals_one_that_states_its_width():
    narrow, plain, stated = Dialect(8, "a(256)"), Dialect(16, ""), Dialect(16, "a(512)")
    assert choose_dialect({narrow: 113.0, plain: 114.0, stated: 212.0}) == stated
    assert choose_dialect({narrow: 113.0, plain: 212.0, stated: 205.0}) == stated
    assert choose_dialect({narrow: 60.0, plain: 212.0, stated: 100.0}) == plain
    assert choose_dialect({narrow: 113.0, plain: 90.0, stated: 90.0}) == narrow


def test_dialects_are_the_widest_vectors_and_half_as_wide_ones():
    assert {d.lanes for d in dialects(512)} == {8, 16}
    assert {d.lanes for d in dialects(128)} == {4}
    assert {d.attribute for d in dialects(256)} == {
        "", "__attribute__((min_vector_width(128)))", "__attribute__((min_vector_width(256)))",
    }  # fmt: skip
