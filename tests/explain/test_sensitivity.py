"""Every figure of a built-in spec moves something, or the schema says why it need not."""

import jsonschema
import pytest

from rollergen.explain.representative import representative
from rollergen.explain.sensitivity import sensitivity, stated_figures, variants
from rollergen.hal.changes import changed, paths
from rollergen.hal.informational import KEYWORD, informational
from rollergen.hal.load import device_names, load_device
from rollergen.hal.spec_schema import schema
from tests.unalike import UNALIKE

OPERATORS = representative()
SOME = {
    name: OPERATORS[name]
    for name in ("matmul", "matmul beyond caches", "matmul, bfloat16", "matmul, float64", "functions", "sum of rows")
}
ROWS = {"sum of rows": OPERATORS["sum of rows"]}


@pytest.mark.parametrize("name", ["v100", "mi50", "cpu", "ipu"])
@pytest.mark.every(7)
def test_no_figure_is_dead_without_a_reason(name):
    """All figures of the other devices, with all operators: benches/bench_sensitivity.py --quick."""
    chosen = {**SOME, **{one: OPERATORS[one] for one in ("conv2d, float16", "depthwise conv2d", "softmax", "matmul, float16", "conv2d", "attention, float16")}}
    effects = sensitivity(load_device(name), chosen, thorough=False)
    assert [effect.path for effect in effects if effect.unexplained] == []
    assert sum(effect.moves for effect in effects) > 40


@pytest.mark.parametrize("name", sorted({*UNALIKE} - {"v100", "mi50"}))
def test_figures_that_all_devices_state_are_dead_on_none(name):
    device = load_device(name)
    asked = ("units", "clock_mhz", "launch_us", "costs.op_exp", f"{device.backing.name}.bandwidth_gb_s")
    effects = sensitivity(device, {one: OPERATORS[one] for one in ("functions", "sum of rows")}, thorough=False, paths=asked)
    assert {effect.path for effect in effects} >= {"units", "clock_mhz"}
    assert [effect.path for effect in effects if effect.unexplained] == []


def test_lines_walked_down_a_column_cost_where_the_tensor_stays_in_the_cache():
    """Two figures: beyond half of the outermost cache such a line costs more."""
    device, columns = load_device("cortex-a53"), {"sum of columns": OPERATORS["sum of columns"]}
    (effect,) = sensitivity(device, columns, thorough=False, paths=("costs.walk_clocks",))
    assert effect.moves


@pytest.mark.parametrize("name", device_names())
def test_most_figures_are_not_merely_declared(name):
    """But for peaks as printed and what a device keeps for its readers, a figure must move something to pass."""
    device = load_device(name)
    stated, declared = stated_figures(device), informational(device)
    counted = [path for path in stated if not path.endswith((".peak_dense_tflop_s", ".m", ".n", ".k", ".lanes"))]
    assert sum(path in declared for path in counted) < 0.4 * len(counted), sorted(declared)


def test_progress_tells_how_many_figures_have_been_tried():
    asked, told = ("clock_mhz", "launch_us"), []
    sensitivity(load_device("v100"), ROWS, thorough=False, paths=asked, sampled=False, progress=lambda *one: told.append(one))
    assert told == [("figures", 0, 2), ("figures", 1, 2), ("figures", 2, 2)]


def test_a_figure_that_nothing_reads_is_found():
    asked = ("limits.blocks_per_unit", "dram.bandwidth_gb_s")
    widened = changed(load_device("v100"), {"limits.blocks_per_unit": 1_000_000})
    effects = {e.path: e for e in sensitivity(widened, ROWS, thorough=False, paths=asked)}
    assert effects["limits.blocks_per_unit"].unexplained
    assert not effects["dram.bandwidth_gb_s"].unexplained


def test_thorough_effects_name_what_moves_and_how_far():
    device = load_device("v100")
    asked = ("dram.bandwidth_gb_s", "dram.capacity_bytes", "l2.latency_clocks")
    found = {e.path: e for e in sensitivity(device, ROWS, paths=asked)}
    memory = found["dram.bandwidth_gb_s"]
    assert "sum of rows" in memory.predictions and 0.1 < memory.largest < 0.25 and memory.factor == 1.2
    assert found["dram.capacity_bytes"].choices == ("copy that fills the memory",)
    assert found["l2.latency_clocks"].informational and not found["l2.latency_clocks"].moves


@pytest.mark.parametrize("name", UNALIKE)
@pytest.mark.every(11)
def test_every_figure_can_be_varied(name):
    """Tied figures move together: but for a shape of 1 and powers of two no figure is refused in both directions."""
    device = load_device(name)
    for path in stated_figures(device):
        if path.rpartition(".")[2] not in ("m", "n", "k", "lanes", "execution_width", "asynchronous_copy_bytes"):
            assert not all(isinstance(variant, Exception) for variant in variants(device, path)), path


@pytest.mark.parametrize("name", device_names())
def test_informational_figures_are_figures_with_a_reason(name):
    device = load_device(name)
    declared = informational(device)
    assert set(declared) <= set(paths(device))
    assert all(len(reason) > 20 for reason in declared.values())


def test_declarations_are_well_formed():
    def entries(node):
        if isinstance(node, dict):
            yield from node.get(KEYWORD, ())
            for item in node.values():
                yield from entries(item)
        elif isinstance(node, list):
            for item in node:
                yield from entries(item)

    found = list(entries(schema()))
    assert found
    for entry in found:
        assert set(entry) <= {"because", "where", "device"} and entry["because"]
        for condition in (entry.get("where", {}), entry.get("device", {})):
            jsonschema.Draft202012Validator.check_schema(condition)
