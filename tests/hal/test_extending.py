"""A spec that extends another one: what it states, what it takes, what is refused."""

import json

import pytest

from rollergen.hal.errors import SpecError
from rollergen.hal.extending import MOST_PARENTS
from rollergen.hal.load import device_hash, device_to_json, load_device, parse_device, save_device

HEAD = {"format": "rollergen.device.v1", "name": "mine", "title": "my card"}


def child(**rest):
    return {**HEAD, "extends": "v100", **rest}


def write(folder, name, content):
    path = folder / name
    path.write_text(json.dumps(content))
    return path


def loaded(content):
    return parse_device(json.dumps(content).encode(), "mine.json")


def refusal(content):
    with pytest.raises(SpecError) as caught:
        loaded(content)
    return str(caught.value)


def test_what_a_file_does_not_state_is_its_parents():
    parent, device = load_device("v100"), loaded(child(clock_mhz=1500))
    assert (device.name, device.title, device.clock_mhz) == ("mine", "my card", 1500)
    assert (device.layers, device.instructions, device.limits) == (parent.layers, parent.instructions, parent.limits)


def test_layers_and_instructions_are_merged_by_name_wherever_they_stand():
    layers, instructions = [{"name": "dram", "bandwidth_gb_s": 790}], [{"name": "wmma", "per_clock": 1}]
    parent, device = load_device("v100"), loaded(child(memory_layers=layers, instructions=instructions))
    assert device.layer("dram").bandwidth_gb_s == 790
    assert device.layer("dram").capacity_bytes == parent.layer("dram").capacity_bytes
    assert device.layers[:-1] == parent.layers[:-1]
    assert device.instruction("wmma").per_clock == 1


def test_a_new_layer_stands_behind_the_one_before_it():
    new = {"name": "l3", "scope": "device", "managed": False, "capacity_bytes": 2**26, "transaction_bytes": 32}
    new["bandwidth_gb_s"] = 1000
    device = loaded(child(memory_layers=[{"name": "l2"}, new]))
    assert [layer.name for layer in device.layers] == ["registers", "shared", "l1", "l2", "l3", "dram"]


def test_kind_and_source_stay_with_each_figure():
    figure = {"value": 1500, "source": "a stopwatch", "kind": "measured"}
    origins = dict(loaded(child(clock_mhz=figure, sources={"a stopwatch": "the clock on the wall"})).provenance)
    assert origins["clock_mhz"] == ("measured", "the clock on the wall")
    assert origins["units"] == dict(load_device("v100").provenance)["units"]
    assert "clock_mhz" not in dict(loaded(child(clock_mhz=1500)).provenance)  # a bare number has no source


def test_a_completed_spec_is_the_same_device_however_it_was_written(tmp_path):
    device = load_device("v100-sxm2")
    save_device(device, tmp_path / "whole.json")
    assert load_device(tmp_path / "whole.json") == device
    assert device_hash(load_device(tmp_path / "whole.json")) == device_hash(device)
    shuffled = dict(reversed(device_to_json(device).items()))
    assert device_hash(parse_device(json.dumps(shuffled).encode(), "shuffled.json")) == device_hash(device)


def test_files_extend_files_beside_them(tmp_path):
    (tmp_path / "base").mkdir()
    write(tmp_path / "base", "one.json", child(name="one", clock_mhz=1000))
    write(tmp_path, "two.json", {**HEAD, "extends": "base/one.json", "units": 40})
    device = load_device(tmp_path / "two.json")
    assert (device.name, device.clock_mhz, device.units) == ("mine", 1000, 40)


def test_a_line_that_comes_back_to_itself_is_refused(tmp_path):
    write(tmp_path, "a.json", {**HEAD, "extends": "b.json"})
    write(tmp_path, "b.json", {**HEAD, "extends": "a.json"})
    with pytest.raises(SpecError, match=r"^b\.json: extends comes back to .*a\.json"):
        load_device(tmp_path / "a.json")


def test_a_line_of_many_files_is_refused(tmp_path):
    for n in range(MOST_PARENTS + 1):
        write(tmp_path, f"f{n}.json", {**HEAD, "extends": f"f{n + 1}.json"})
    write(tmp_path, f"f{MOST_PARENTS + 1}.json", child())
    with pytest.raises(SpecError, match=f"more than {MOST_PARENTS} files"):
        load_device(tmp_path / "f0.json")


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ("v1000", "expected one of a100, cortex-a53, cpu"),
        ("nowhere.json", "expected a path relative to the file's own folder"),
        ("", "expected the name of a device"),
        (7, "expected the name of a device"),
        (["v100"], "expected the name of a device"),
        ('v"1\n00', "expected one of a100, cortex-a53, cpu"),
        ("x\0.json", "expected a path relative"),
    ],
)
def test_a_parent_that_cannot_be_had_is_refused_with_its_path(named, expected):
    message = refusal(child(extends=named))
    assert message.startswith("mine.json: extends is ")
    assert expected in message
    assert "\n" not in message


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(SpecError, match=r'^a\.json: extends is "nowhere\.json"; expected a file that can be read'):
        load_device(write(tmp_path, "a.json", child(extends="nowhere.json")))


def test_name_and_title_are_each_files_own():
    content = child()
    del content["title"]
    assert refusal(content).startswith("mine.json: title is missing")


def test_one_key_of_sources_means_one_thing():
    assert refusal(child(sources={"roller": "a rumour"})).startswith("mine.json: sources.roller is another text")


@pytest.mark.parametrize("key", ["memory_layers", "instructions", "limits", "costs"])
@pytest.mark.parametrize("item", [7, None, "text", [7], {"name": []}])
def test_what_cannot_be_merged_meets_the_schema_with_its_path(key, item):
    assert refusal(child(**{key: item})).startswith(f"mine.json: {key}")
