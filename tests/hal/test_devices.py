"""The built-in devices: complete, documented, and in agreement with the figures that their sources state."""

import json
import re
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

import rollergen
from rollergen.expr.primitives import PRIMITIVES
from rollergen.hal import spec_schema
from rollergen.hal.costs import COSTS, OPERATIONS
from rollergen.hal.declared import declarations
from rollergen.hal.extending import completed
from rollergen.hal.load import device_names, device_to_json, load_device, parse_device
from rollergen.hal.spec import Device, Instruction, Limits, MemoryLayer, Tlb

FOLDER = Path(spec_schema.__file__).parents[1] / "devices"
SHIPPED = [*device_names(), "template"]
PUBLISHED = jsonschema.Draft202012Validator(spec_schema.schema())


def document(name: str) -> dict:
    return json.loads((FOLDER / f"{name}.json").read_text())


def bare_numbers(node: object, path: str = "") -> list[str]:
    """Paths of figures that say nothing about where they come from."""
    if isinstance(node, dict):
        if "value" in node:
            return []
        return [found for key, item in node.items() for found in bare_numbers(item, f"{path}.{key}")]
    if isinstance(node, list):
        return [found for i, item in enumerate(node) for found in bare_numbers(item, f"{path}[{i}]")]
    return [path] if isinstance(node, (int, float)) and not isinstance(node, bool) else []


def figures(node: object) -> list[dict]:
    if isinstance(node, dict):
        return [node] if "value" in node else [found for item in node.values() for found in figures(item)]
    return [found for item in node for found in figures(item)] if isinstance(node, list) else []


def test_the_built_in_devices_are_listed():
    embedded = {"cortex-a53", "mali-g71"}
    assert {*GPUS, "cpu", "ipu", "ipu2"} | embedded == set(device_names())
    assert "template" not in device_names()


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_file_loads(name):
    device = load_device(FOLDER / f"{name}.json")
    assert device.name == name or name == "template"


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_file_meets_the_published_schema_as_it_stands(name):
    """With a validator that resolves the references itself, as an editor's; then together with its parent."""
    content = document(name)
    assert list(PUBLISHED.iter_errors(content)) == []
    named = content.get("extends")
    whole = completed(content, name, name, lambda *_: (document(named), named, named))
    assert list(PUBLISHED.iter_errors(whole)) == []


MINE = {"name": "mine", "title": "mine", "extends": "v100"}


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"clock_mhz": 1500},
        {"memory_layers": [{"name": "dram", "bandwidth_gb_s": 800}], "instructions": [{"name": "fma", "per_clock": 128}]},
        {"limits": {"threads_per_block": 512}, "costs": {"norm_exponent": 2}},
    ],
)
def test_the_published_schema_takes_files_that_state_what_differs(more):
    assert list(PUBLISHED.iter_errors(MINE | more)) == []


@pytest.mark.parametrize(
    ("more", "path"),
    [
        ({"clock_mhz": "fast"}, ["clock_mhz"]),
        ({"clock_mz": 1500}, []),
        ({"memory_layers": [{"bandwidth_gb_s": 800}]}, ["memory_layers", 0]),
        ({"memory_layers": [{"name": "dram", "banks": 0}]}, ["memory_layers", 0, "banks"]),
        ({"limits": {"threads": 512}}, ["limits"]),
        ({"title": ""}, ["title"]),
    ],
)
def test_the_published_schema_refuses_what_no_parent_mends(more, path):
    assert [list(error.absolute_path) for error in PUBLISHED.iter_errors(MINE | more)] == [path]


@pytest.mark.parametrize(
    ("owner", "key"),
    [([], "units"), ([], "memory_layers"), (["memory_layers", 1], "scope"), (["instructions", 0], "m"), (["limits"], "x")],
)
def test_the_published_schema_refuses_a_file_without_a_parent_that_is_not_complete(owner, key):
    content = document("v100")
    part = content
    for step in owner:
        part = part[step]
    part.pop(key) if key in part else part.clear()
    errors = list(PUBLISHED.iter_errors(content))
    assert errors and all(error.validator == "required" and list(error.absolute_path) == owner for error in errors)


def test_the_published_schema_is_what_the_declarations_say():
    """After a change of fields: ``python -m rollergen.hal.schema > hal/schema.json``."""
    published = Path(spec_schema.__file__).parent / "schema.json"
    assert json.loads(published.read_text("utf-8")) == json.loads(json.dumps(spec_schema.schema()))


FIGURES = [
    (kind, key)
    for kind in (Device, MemoryLayer, Instruction, Limits, Tlb)
    for key, (one, _) in declarations(kind).items()
    if one.type in ("int", "float")
]


@pytest.mark.parametrize("module", ["declared", "schema", "spec_schema", "load", "extending", "informational", "field_reference"])
def test_a_figure_stands_in_its_declaration_alone(module):
    """So that a new one is a declaration, the spec that has it and the place that reads it."""
    text = (Path(spec_schema.__file__).parent / f"{module}.py").read_text("utf-8")
    code = re.sub(r'^VECTORS = .*$|^(SUPERSTEPS|CUDA) = .*$', "", re.sub(r'""".*?"""', "", text, flags=re.S), flags=re.M)
    named = {key for _, key in FIGURES if re.search(rf'["\'.]{key}\b', code)}
    assert named <= {"peak_dense_tflop_s"}  # which `device_hash` leaves out


def test_a_declared_field_is_in_the_schema_and_loads_and_is_written():
    for kind, key in FIGURES:
        names = {Device: (), MemoryLayer: ("memory_layers", "items"), Instruction: ("instructions", "items")}
        part = spec_schema.complete_schema()["properties"]
        for step in names.get(kind, ("limits",) if kind is Limits else ("tlbs", "items")):
            part = part[step] if step in part else part["properties"][step]
        assert key in (part if kind is Device else part["properties"])
    device = load_device("cpu")
    other = replace(device, wake_us=7.0, layers=(*device.layers[:-1], replace(device.layers[-1], reserved_bytes=64)))
    again = parse_device(json.dumps(device_to_json(other)).encode(), "other")
    assert again.wake_us == 7.0 and again.layers[-1].reserved_bytes == 64


def test_the_schema_is_one():
    jsonschema.Draft202012Validator.check_schema(spec_schema.schema())


def test_the_model_reads_every_cost_of_the_schema_and_primitives_name_only_these():
    package = Path(rollergen.__file__).parent
    text = "".join(path.read_text("utf-8") for one in ("program/model", "bsp") for path in (package / one).rglob("*.py"))
    assert {row.cost for row in PRIMITIVES.values() if row.cost} <= set(OPERATIONS)
    operations = {f"op_{name}" for name in OPERATIONS}
    assert [name for name in set(COSTS) - operations if not re.search(rf"\b{name}\b", text)] == []


@pytest.mark.parametrize("name", device_names())
def test_every_figure_of_a_built_in_device_has_a_kind_and_a_source(name):
    assert bare_numbers(document(name)) == []


@pytest.mark.parametrize("name", device_names())
def test_every_source_that_a_file_lists_is_used(name):
    content = document(name)
    assert set(content["sources"]) == {figure["source"] for figure in figures(content)}


@pytest.mark.parametrize("name", device_names())
def test_what_is_assumed_is_not_called_anything_better(name):
    for figure in figures(document(name)):
        if figure["source"] in ("assumed", "typical"):
            assert figure["kind"] == "assumed", figure


GPUS = ("a100", "h100", "h200", "k80", "l4", "mi50", "mi210", "mi300x", "rtx4090", "t4", "v100", "v100-sxm2")

# (device, instruction, TFLOP/s as printed by its source; a multiply-add counts as two)
PEAKS = [
    ("v100", "fma", 14.0),
    ("v100", "fma_f64", 7.0),
    ("v100", "hfma2", 28.0),
    ("v100", "wmma", 112),
    ("v100", "mma", 112),
    ("v100", "dp4a", 56.5),
    ("v100-sxm2", "fma", 15.7),
    ("v100-sxm2", "fma_f64", 7.8),
    ("v100-sxm2", "hfma2", 31.4),
    ("v100-sxm2", "wmma", 125),
    ("v100-sxm2", "mma", 125),
    ("v100-sxm2", "dp4a", 62.7),
    ("a100", "fma", 19.5),
    ("a100", "fma_f64", 9.7),
    ("a100", "hfma2", 78.0),
    ("a100", "mma", 312),
    ("a100", "mma_bf16", 312),
    ("a100", "mma_s8", 624),
    ("a100", "mma_tf32", 156),
    ("a100", "mma_f64", 19.5),
    ("h200", "fma", 66.9),
    ("h200", "fma_f64", 33.45),
    ("h200", "hfma2", 133.8),
    ("h200", "mma", 0.664 * 989.4),  # mma.sync reaches two thirds of what is printed, for wgmma
    ("h200", "mma_bf16", 0.664 * 989.4),
    ("h200", "mma_s8", 0.664 * 1979),
    ("h200", "mma_tf32", 0.664 * 494.7),
    ("h200", "mma_f64", 67),
    ("h200", "wgmma", 989.4),
    ("h200", "wgmma_bf16", 989.4),
    ("h200", "wgmma_s8", 1979),
    ("h200", "wgmma_e4m3", 1979),
    ("h200", "wgmma_e5m2", 1979),
    ("h200", "wgmma_tf32", 494.7),
    ("h100", "fma", 66.9),
    ("h100", "fma_f64", 33.45),
    ("h100", "hfma2", 133.8),
    ("h100", "mma", 0.664 * 989.4),
    ("h100", "mma_bf16", 0.664 * 989.4),
    ("h100", "mma_s8", 0.664 * 1979),
    ("h100", "mma_tf32", 0.664 * 494.7),
    ("h100", "mma_f64", 67),
    ("h100", "wgmma", 989.4),
    ("h100", "wgmma_bf16", 989.4),
    ("h100", "wgmma_s8", 1979),
    ("h100", "wgmma_e4m3", 1979),
    ("h100", "wgmma_e5m2", 1979),
    ("h100", "wgmma_tf32", 494.7),
    ("t4", "fma", 8.1),
    ("t4", "fma_f64", 8.1 / 32),
    ("t4", "hfma2", 16.2),
    ("t4", "dp4a", 32.6),
    ("t4", "wmma", 65),
    ("rtx4090", "fma", 82.6),
    ("rtx4090", "fma_f64", 82.6 / 64),
    ("rtx4090", "hfma2", 82.6),
    ("rtx4090", "mma", 165.2),
    ("rtx4090", "mma_bf16", 165.2),
    ("rtx4090", "mma_s8", 660.6),
    ("rtx4090", "mma_e4m3", 330.3),
    ("rtx4090", "mma_e5m2", 330.3),
    ("rtx4090", "mma_tf32", 82.6),
    ("l4", "fma", 30.3),
    ("l4", "fma_f64", 30.3 / 64),
    ("l4", "hfma2", 30.3),
    ("l4", "mma", 121),
    ("l4", "mma_bf16", 121),
    ("l4", "mma_s8", 242),
    ("l4", "mma_e4m3", 242),
    ("l4", "mma_e5m2", 242),
    ("l4", "mma_tf32", 60.5),
    ("mi210", "fma", 22.6),
    ("mi210", "fma_f64", 22.6),
    ("mi210", "pk_fma_f16", 45.3),
    ("mi210", "dot4", 90.5),
    ("mi210", "mfma", 181),
    ("mi210", "mfma_bf16", 181),
    ("mi210", "mfma_s8", 181),
    ("mi210", "mfma_f32", 45.3),
    ("mi210", "mfma_f64", 45.3),
    ("mi300x", "fma", 163.4 / 2),  # printed for packed instructions
    ("mi300x", "fma_f64", 81.7),
    ("mi300x", "pk_fma_f16", 163.4),
    ("mi300x", "dot4", 326.9),
    ("mi300x", "mfma", 1307.4),
    ("mi300x", "mfma_bf16", 1307.4),
    ("mi300x", "mfma_s8", 2614.9),
    ("mi300x", "mfma_f32", 163.4),
    ("mi300x", "mfma_f64", 163.4),
    ("k80", "fma", 4.37),
    ("k80", "fma_f64", 1.455),
    ("mi50", "fma", 13.41),
    ("mi50", "fma_f64", 6.705),
    ("mi50", "pk_fma_f16", 26.82),
    ("mi50", "dot2", 26.82),
    ("mi50", "dot4", 53.0),
    ("ipu", "amp_f32", 31.1),
    ("ipu", "amp_f16", 124.5),
    ("ipu2", "amp_f32", 62.5),
    ("ipu2", "amp_f16", 0.5 * 250),  # half of what is printed, which is with float16 partial results
    ("ipu2", "amp_f16_f16", 250),
]


@pytest.mark.parametrize(("name", "instruction", "printed"), PEAKS)
def test_the_peak_is_within_5_percent_of_what_is_printed(name, instruction, printed):
    device = load_device(name)
    entry = device.instruction(instruction)
    multiply_adds = entry.m * entry.n * entry.k * entry.per_clock
    assert device.units * multiply_adds * 2 * device.clock_mhz * 1e-6 == pytest.approx(printed, rel=0.05)


@pytest.mark.parametrize("name", device_names())
def test_every_peak_but_that_of_a_generic_host_and_of_vectors_without_amp_is_held_against_print(name):
    checked = {instruction for device, instruction, _ in PEAKS if device == name}
    vectors, plain = {"vfma", "vfma_f64", "fma"}, {"fma", "fma_f16"}
    unprinted = {"cpu": vectors, "cortex-a53": vectors, "mali-g71": {"fma", "pk_fma_f16"}, "ipu": plain, "ipu2": plain}
    assert {entry.name for entry in load_device(name).instructions} == checked | unprinted.get(name, set())


@pytest.mark.parametrize(("name", "layer"), [*((gpu, "shared") for gpu in GPUS), ("ipu", "remote"), ("ipu2", "remote")])
def test_nominal_bandwidth_is_bytes_a_clock_of_all_units(name, layer):
    device = load_device(name)
    entry = device.layer(layer)
    rate = device.units * entry.bytes_per_clock * device.clock_mhz * 1e-3
    assert rate == pytest.approx(entry.bandwidth_nominal_gb_s, rel=0.01)


@pytest.mark.parametrize("name", ["ipu", "ipu2"])
def test_the_local_memory_of_the_ipu_reads_and_writes_what_is_printed_within_a_tenth(name):
    """Printed: 45 and 47.5 TB/s; two 64-bit loads and a store beside them: 46.7 and 47.0."""
    device = load_device(name)
    sram = device.layer("sram")
    rate = device.units * (sram.bytes_per_clock + sram.write_bytes_per_clock) * device.clock_mhz * 1e-3
    assert rate == pytest.approx(sram.bandwidth_nominal_gb_s, rel=0.1)


def test_banks_times_width_is_a_clock_of_shared_memory():
    for name in GPUS:
        shared = load_device(name).layer("shared")
        served = shared.bytes_per_clock * (2 if name == "t4" else 1)  # Turing's banks share half of what they could serve
        assert shared.banks * shared.bank_bytes == served == shared.transaction_bytes


def test_the_hierarchies_are_those_of_three_kinds_of_machine():
    names = {name: [layer.name for layer in load_device(name).layers] for name in device_names()}
    assert all(names[gpu] == ["registers", "shared", "l1", "l2", "dram"] for gpu in {*GPUS} - {"mi300x"})
    assert names["mi300x"] == ["registers", "shared", "l1", "l2", "l3", "dram"]
    assert names["ipu"] == names["ipu2"] == ["registers", "sram", "remote"]
    assert names["cpu"] == ["registers", "l1", "l2", "l3", "dram"]


@pytest.mark.parametrize(("name", "whole"), [("ipu", 1216 * 262144), ("ipu2", 1472 * 638976)])
def test_the_memory_of_all_tiles_backs_each_tile(name, whole):
    device = load_device(name)
    sram, remote = device.layer("sram"), device.backing
    assert remote.capacity_bytes == whole == device.units * sram.capacity_bytes
    assert remote.reserved_bytes == device.units * sram.reserved_bytes
    assert device.limits.block_memory_bytes == sram.capacity_bytes - sram.reserved_bytes


@pytest.mark.parametrize("name", device_names())
def test_registers_hold_what_the_limits_state(name):
    device = load_device(name)
    registers = device.layers[0]
    width = 4 * device.execution_width if name in ("cpu", "cortex-a53") else 4  # vector registers on a CPU
    assert registers.capacity_bytes == device.limits.registers_per_thread * width


@pytest.mark.parametrize("name", device_names())
def test_every_device_multiplies_float32(name):
    plain = [i for i in load_device(name).instructions if (i.m, i.k) == (1, 1)]
    assert any(i.dtype == i.accumulator_dtype == "float32" for i in plain)


def test_lanes_above_one_mark_vector_machines():
    """A thread of a GPU has one lane: the model tells lockstep threads from vectors by it."""
    for name in GPUS:
        assert all(i.lanes == 1 for i in load_device(name).instructions if (i.m, i.k) == (1, 1))
