"""Loading device specs: what is refused, and how; what is kept."""

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollergen.hal.errors import SpecError
from rollergen.hal.load import (
    device_hash,
    device_names,
    device_to_json,
    load_device,
    parse_device,
    save_device,
)
from rollergen.hal.spec_rules import MOST_UNITS
from tests.hal.small import REMOVED, SMALL, changed, refusal


def figure(value: object, **more: object) -> dict:
    return {"value": value, "source": "us", "kind": "measured", **more}


COUNT = "expected an integer of at least 1"


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["memory_layers", 1, "banks"], 0, f"memory_layers[1].banks is 0; {COUNT}"),
        (["memory_layers", 1, "banks"], figure(0), f"memory_layers[1].banks is 0; {COUNT}"),
        (["memory_layers", 1, "banks"], 2.5, f"memory_layers[1].banks is 2.5; {COUNT}"),
        (["memory_layers", 1, "banks"], "32", f'memory_layers[1].banks is "32"; {COUNT}'),
        (["memory_layers", 1, "banks"], True, f"memory_layers[1].banks is true; {COUNT}"),
        (["memory_layers", 1, "banks"], None, f"memory_layers[1].banks is null; {COUNT}"),
        (["memory_layers", 1, "banks"], [32], f"memory_layers[1].banks is a list of 1; {COUNT}"),
        (["memory_layers", 1, "banks"], figure(figure(32)), f"memory_layers[1].banks is an object of 3; {COUNT}"),
        (["units"], -3, f"units is -3; {COUNT}"),
        (["units"], 10**30, "units is 1000000000000000000000000000000; expected at most 9007199254740992"),
        (["clock_mhz"], 0, "clock_mhz is 0; expected a number above 0"),
        (["launch_us"], -1, "launch_us is -1; expected a number of at least 0"),
        (["costs", "walk_clocks"], -1, "costs.walk_clocks is -1; expected a number of at least 0"),
        (["format"], "rollergen.device.v9", 'format is "rollergen.device.v9"; expected "rollergen.device.v1"'),
        (["name"], "V 100", 'name is "V 100"; expected a name: a small letter'),
        (["name"], "v100\n", 'name is "v100\\n"; expected a name'),
        (["memory_layers", 1, "scope"], "chip", 'memory_layers[1].scope is "chip"; expected one of "thread", "unit", '),
        (["memory_layers", 1, "managed"], 1, "memory_layers[1].managed is 1; expected true or false"),
        (["memory_layers"], [], "memory_layers is a list of 0; expected a list of 2 to 16 memory layers"),
        (["targets", 0, "language"], "metal", 'targets[0].language is "metal"; expected one of "bsp", "cuda", "opencl"'),
        (["instructions", 0, "dtype"], "f32", 'instructions[0].dtype is "f32"; expected one of "float16"'),
        (["units"], REMOVED, f"units is missing; {COUNT}"),
        (["limits", "registers_per_unit"], REMOVED, f"limits.registers_per_unit is missing; {COUNT}"),
        (["units"], {"value": 2, "kind": "measured"}, "units.source is missing; expected a text that is not empty"),
        (["units"], figure(2, kind="guessed"), 'units.kind is "guessed"; expected one of "datasheet", "paper"'),
        (["units"], figure(2, source="them"), 'units.source is "them", no key of sources; expected one of us'),
        (["units"], figure(2, unit="SM"), "units.unit is no key of this format; expected one of kind, note, source"),
    ],
)
def test_a_bad_value_is_refused_with_its_path_and_what_would_be_accepted(path, value, message):
    assert refusal(changed(path, value)).startswith("v100.json: " + message)


@pytest.mark.parametrize(
    ("path", "key", "message"),
    [
        ([], "clock_mz", "clock_mz is no key of this format; did you mean clock_mhz?"),
        (["memory_layers", 1], "bank_byte", "memory_layers[1].bank_byte is no key of this format; did you mean bank_b"),
        (["costs"], "spil_clocks", "costs.spil_clocks is no key of this format; did you mean spill_clocks?"),
        (["limits"], "x", "limits.x is no key of this format; expected one of accumulation_registers, block_memory_bytes, "),
    ],
)
def test_an_unknown_key_is_refused_and_the_nearest_known_one_named(path, key, message):
    assert refusal(changed([*path, key], 1)).startswith("v100.json: " + message)


def test_a_misspelt_key_is_told_before_the_key_that_it_left_missing():
    document = json.loads(changed(["units"], REMOVED))
    document["unts"] = 2
    first, second = refusal(json.dumps(document).encode()).split("\n")
    assert first == "v100.json: unts is no key of this format; did you mean units?"
    assert second.startswith("v100.json: units is missing; ")


def test_all_that_breaks_the_format_is_told_at_once():
    document = json.loads(changed(["units"], REMOVED))
    document["limits"] = {"threads_per_block": 0}
    document["memory_layers"][1]["scope"] = "chip"
    lines = refusal(json.dumps(document).encode()).split("\n")
    assert len(lines) == 9 and all(line.startswith("v100.json: ") for line in lines)
    assert [line for line in lines if "units is missing" in line or ".scope is" in line or "_block is 0" in line] == [
        'v100.json: limits.threads_per_block is 0; expected an integer of at least 1',
        'v100.json: memory_layers[1].scope is "chip"; expected one of "thread", "unit", "device"',
        'v100.json: units is missing; expected an integer of at least 1',
    ]


def test_a_part_that_is_missing_is_told_with_all_that_it_must_state():
    text = refusal(json.dumps({"format": "rollergen.device.v1", "name": "mine", "title": "Mine"}).encode())
    assert "v100.json: limits is missing; expected an object of limits with threads_per_block, threads_per_unit, " in text
    layers = "a list of 2 to 16 memory layers, from registers outward with name, scope, managed, capacity_bytes"
    assert f"memory_layers is missing; expected {layers}, transaction_bytes" in text
    assert text.count("\n") == 8


def test_all_that_contradicts_itself_is_told_at_once():
    document = json.loads(changed(["execution_width"], 48))
    document["limits"]["threads_per_unit"] = 512
    document["memory_layers"][1]["banks"] = figure(32, source="nobody")
    lines = refusal(json.dumps(document).encode()).split("\n")
    assert [line.split(" is ")[0] for line in lines] == [
        "v100.json: memory_layers[1].banks.source", "v100.json: limits.threads_per_block", "v100.json: execution_width",
    ]


def test_an_unknown_language_is_told_with_what_else_contradicts_itself():
    document = json.loads(changed(["targets", 0, "language"], "metal"))
    document["limits"]["threads_per_block"] = 4096
    message = refusal(json.dumps(document).encode())
    assert 'targets[0].language is "metal"; expected one of' in message
    assert "limits.threads_per_block is 4096; expected at most threads_per_unit, 2048" in message


def test_of_many_findings_the_first_are_told():
    document = {**SMALL, "instructions": [{**SMALL["instructions"][0], "m": 0} for _ in range(60)]}
    lines = refusal(json.dumps(document).encode()).split("\n")
    assert len(lines) == 51 and lines[-1] == "v100.json: and 10 more"


def test_too_much_of_something_is_told_alone():
    unknown = refusal(json.dumps({**SMALL, "units": 0, "costs": {f"unknown_{n}": 1 for n in range(1000)}}).encode())
    assert unknown.startswith("v100.json: costs.unknown_0 is no key of this format") and "\n" not in unknown
    layers = refusal(json.dumps({**SMALL, "units": 0, "memory_layers": [0] * 17}).encode())
    assert layers == "v100.json: memory_layers is a list of 17; expected at most 16 items"


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["memory_layers", 1, "name"], "l2", 'memory_layers[2].name is "l2", as that of memory_layers[1]'),
        (["units"], 1 << 31, "units is 2147483648; expected at most 1048576"),
        (["memory_layers", 0, "name"], "regs", 'memory_layers[0] is "regs"; expected registers'),
        (["memory_layers", 1, "scope"], "device", None),
        (["memory_layers", 2, "scope"], "thread", 'memory_layers[2].scope is "thread"; expected "unit" or wider'),
        (["memory_layers", 3, "managed"], False, 'memory_layers[3] is "dram"; expected a managed backing store'),
        (["memory_layers", 1, "bytes_per_clock"], 0, "memory_layers[1].bytes_per_clock is 0, as is bandwidth_gb_s"),
        (["memory_layers", 1, "bank_bytes"], REMOVED, "memory_layers[1].bank_bytes is missing; expected it beside"),
        (["memory_layers", 2, "ways"], REMOVED, "memory_layers[2].ways is missing; expected it beside sets"),
        (["memory_layers", 2, "ways"], 8, "memory_layers[2].capacity_bytes is 1048576; expected 524288: 2048 sets"),
        (["memory_layers", 2, "block_reserved_bytes"], 8, "memory_layers[2].block_reserved_bytes is 8; expected 0, or a"),
        (["memory_layers", 1, "box_extent"], 256, "memory_layers[1].box_extent is 256; expected 0, or a layer with"),
        (["memory_layers", 1, "cluster_blocks"], 8, "memory_layers[1].cluster_blocks is 8; expected 0, or a layer with"),
        (["memory_layers", 3, "reserved_bytes"], 1 << 30, "memory_layers[3].reserved_bytes is 1073741824; expected"),
        (["memory_layers", 3, "bandwidth_gb_s"], 130, "memory_layers[3].bandwidth_gb_s is 130.0; expected at most the"),
        (["limits", "threads_per_block"], 4096, "limits.threads_per_block is 4096; expected at most threads_per_unit"),
        (["limits", "registers_per_unit"], 64, "limits.registers_per_thread is 255; expected at most"),
        (["limits", "block_memory_bytes"], 65537, "limits.block_memory_bytes is 65537; expected at most the 65536"),
        (["limits", "block_memory_bytes"], 1023, "limits.block_memory_bytes is 1023; expected at least 1024: 32 for each"),
        (["targets", 0], {"language": "cuda", "arch": "ada"}, 'targets[0].arch is "ada"; expected sm_ and the compute'),
        (["targets", 0], {"language": "cuda", "arch": "89"}, 'targets[0].arch is "89"; expected sm_ and the compute'),
        (["targets", 0], {"language": "cuda", "arch": "sm_90a"}, None),
        (["targets", 0], {"language": "opencl", "arch": "ada"}, None),
        (["costs", "keep_below"], 3, "costs.keep_below is 3.0; expected at most keep_above, 2.5"),
        (["costs", "warm_below"], 1, "costs.warm_below is 1.0; expected at most warm_above, 0.0"),
    ],
)
def test_figures_that_contradict_each_other_are_refused(path, value, message):
    if message is None:
        parse_device(changed(path, value), "v100.json")
    else:
        assert refusal(changed(path, value)).startswith("v100.json: " + message)


@pytest.mark.parametrize(
    "text", ["__attribute__((x))\n", "*/", "__kernel", "__attribute__((a(1))) ; int x", '__attribute__((a("b")))', "#define"]
)
def test_code_in_place_of_an_attribute_is_refused(text):
    message = refusal(changed(["targets", 0, "dialect", "kernel_attribute"], text))
    assert message.startswith("v100.json: targets[0].dialect.kernel_attribute is ")


@pytest.mark.parametrize("text", ["0", "-4", "four", "4.0", "1000", "4\n"])
def test_steps_of_unrolled_loops_are_a_number(text):
    message = refusal(changed(["targets", 0, "dialect", "unrolled_steps"], text))
    assert message.startswith("v100.json: targets[0].dialect.unrolled_steps is ")


@pytest.mark.parametrize("key", ["written_out", "written_out_tested", "rolled_run"])
def test_what_a_compiler_writes_out_is_a_number(key):
    message = refusal(changed(["targets", 0, "dialect", key], "many"))
    assert f'targets[0].dialect.{key} is "many"; expected nothing, or a number such as 1800' in message


def test_attributes_are_taken():
    for text in ("", "__attribute__((min_vector_width(512)))", "__attribute__((a)) __attribute__((b(1, 2)))"):
        parse_device(changed(["targets", 0, "dialect", "kernel_attribute"], text), "small.json")


def test_a_figure_is_a_number_or_a_number_with_its_origin():
    device = parse_device(json.dumps(SMALL).encode(), "small.json")
    assert device.units == 2 and device.execution_width == 32
    assert dict(device.provenance) == {"units": ("measured", "counted by us; counted twice")}


def test_numbers_have_the_type_that_the_field_states():
    device = parse_device(changed(["memory_layers", 1, "banks"], 32.0), "small.json")
    assert type(device.layer("shared").banks) is int and type(device.clock_mhz) is float
    assert type(device.instruction("fma").per_clock) is float


def test_the_dialect_is_sorted():
    assert parse_device(json.dumps(SMALL).encode(), "small.json").targets[0].dialect == (("a", "1"), ("b", "2"))


def test_an_unknown_name_is_refused_with_the_nearest_and_all_names():
    with pytest.raises(SpecError) as caught:
        load_device("v10")
    assert str(caught.value).startswith('"v10" is no known device (did you mean v100?); expected one of a100, cortex-a53, cpu, ')


@pytest.mark.parametrize("name", ["", "../v100", "template", "v100\0", "devices/v100"])
def test_only_the_listed_names_are_names(name):
    with pytest.raises(SpecError, match="is no known device"):
        load_device(name)


@pytest.mark.parametrize("path", ["absent.json", Path("v100"), Path(".")])
def test_a_text_that_ends_in_json_and_a_path_are_files(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SpecError, match="cannot be read"):
        load_device(path)


def test_a_built_in_is_loaded_once():
    assert load_device("v100") is load_device("v100")


def test_loading_takes_less_than_30_ms():
    import rollergen.hal.load as load

    load_device("ipu")
    times = []
    for _ in range(5):
        load._built_in.cache_clear()
        start = time.process_time()
        load_device("v100")
        times.append(time.process_time() - start)
    assert min(times) < 0.030


@pytest.mark.parametrize("name", device_names())
def test_a_saved_device_loads_as_itself(name, tmp_path):
    device = load_device(name)
    save_device(device, tmp_path / "saved.json")
    assert load_device(tmp_path / "saved.json") == device
    assert [entry.name for entry in tmp_path.iterdir()] == ["saved.json"]


FREE_FIELDS = ["units", "clock_mhz", "launch_us", "schedulers"]


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(device_names()), st.sampled_from(FREE_FIELDS), st.integers(1, MOST_UNITS), st.booleans())
def test_a_changed_device_survives_saving_and_has_another_hash(tmp_path_factory, name, field, number, half):
    device = load_device(name)
    value = number + 0.5 if half and isinstance(getattr(device, field), float) else number
    other = replace(device, **{field: type(getattr(device, field))(value)})
    path = tmp_path_factory.mktemp("specs") / "other.json"
    save_device(other, path)
    assert load_device(path) == other
    assert (device_hash(other) == device_hash(device)) == (other == device)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(device_names()), st.data())
def test_a_changed_layer_survives_saving_and_has_another_hash(name, data):
    device = load_device(name)
    at = data.draw(st.integers(0, len(device.layers) - 1))
    latency = data.draw(st.floats(0, 1e6))
    layer = replace(device.layers[at], latency_clocks=latency)
    other = replace(device, layers=(*device.layers[:at], layer, *device.layers[at + 1 :]))
    assert parse_device(json.dumps(device_to_json(other)).encode(), "other.json") == other
    assert (device_hash(other) == device_hash(device)) == (other == device)


def test_origins_of_what_is_no_figure_survive_saving():
    device = load_device("cpu")
    origins = {**dict(device.provenance), "targets.dialect": ("measured", "a probe")}
    other = replace(device, provenance=tuple(sorted(origins.items())))
    assert parse_device(json.dumps(device_to_json(other)).encode(), "other.json") == other


def test_the_hash_is_of_the_machine_not_of_its_title_or_sources():
    device = load_device("v100")
    assert device_hash(replace(device, title="another", provenance=())) == device_hash(device)
    assert device_hash(replace(device, costs=tuple(reversed(device.costs)))) == device_hash(device)
    assert len({device_hash(load_device(name)) for name in device_names()}) == len(device_names())


def test_a_device_that_would_not_load_is_not_written(tmp_path):
    path = tmp_path / "bad.json"
    path.write_text("what was there before")
    for units, message in ((0, "units is 0"), (float("nan"), "units is nan")):
        with pytest.raises(SpecError, match=message):
            save_device(replace(load_device("v100"), units=units), path)
    assert path.read_text() == "what was there before"
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(
    ("path", "value", "text"),
    [
        (["execution_width"], 24, "execution_width is 24; expected a power of two"),
        (["execution_width"], 1 << 20, "execution_width is 1048576; expected at most limits.threads_per_block"),
        (["memory_layers", -1, "capacity_bytes"], 3, ".capacity_bytes is 3; expected at least"),
        (["costs", "norm_exponent"], 0.5, "costs.norm_exponent is 0.5; expected a number from 1 to 16"),
    ],
)
def test_what_no_program_can_be_made_for_is_refused(path, value, text):
    assert text in refusal(changed(path, value))
