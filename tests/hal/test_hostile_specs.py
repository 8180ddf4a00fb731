"""Specs from anywhere: whatever they hold, they are loaded or refused quickly, in a short message."""

import json
import os
import socket
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollergen.hal.errors import SpecError
from rollergen.hal.load import load_device, parse_device
from tests.hal.small import SMALL, changed, refusal


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_numbers_that_are_not_finite_are_refused_with_their_path(number):
    content = changed(["memory_layers", 3, "bandwidth_gb_s"], "HERE").replace(b'"HERE"', number.encode())
    assert refusal(content).startswith("v100.json: memory_layers[3].bandwidth_gb_s is ")
    assert refusal(content).endswith("; expected a finite number")


def test_a_key_that_stands_twice_is_refused():
    content = json.dumps(SMALL).encode().replace(b'"schedulers": 1', b'"schedulers": 1, "schedulers": 2')
    assert refusal(content) == 'v100.json: the key "schedulers" stands twice in one object'


HOSTILE = {
    "nested lists": b"[" * 400_000,
    "nested objects": b'{"a":' * 150_000,
    "a nested value": json.dumps(SMALL).encode()[:-1] + b', "notes": ' + b"[" * 300_000 + b"]" * 300_000 + b"}",
    "quotes that never close": b'\\"' * 450_000,
    "a text that never closes": b'{"' + b"a" * 900_000,
    "a number of many digits": b'{"units": ' + b"9" * 900_000 + b"}",
    "a hundred thousand unknown keys": json.dumps({f"k{i}": 0 for i in range(70_000)}).encode(),
    "a hundred thousand layers": changed(["memory_layers"], [0] * 300_000),
    "a large file": b" " * 1_000_001,
    "a hundred thousand layers beside a parent's": json.dumps(
        {"name": "x", "title": "x", "extends": "v100", "memory_layers": [{"name": f"l{i}"} for i in range(60_000)]}
    ).encode(),
    "a parent's name that never ends": b'{"name": "x", "title": "x", "extends": "' + b"v" * 900_000 + b'"}',
    "a parent with quotes and newlines": changed(["extends"], 'v"100\n\u2028'),
    "a name with quotes and newlines": changed(["name"], 'a"\n"; int main() {} //'),
    "a name that ends in a newline": changed(["name"], "small\n"),
    "a layer's name with a quote": changed(["memory_layers", 1, "name"], 'shared"'),
    "an instruction's name with a newline": changed(["instructions", 0, "name"], "fma\n*/"),
    "no text": bytes(range(128, 256)) * 1000,
    "nothing": b"",
    "no object": b"[]",
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_files_are_refused_quickly_and_in_a_short_message(content):
    parse_device(json.dumps(SMALL).encode(), "small.json")
    start = time.process_time()
    message = refusal(content)
    assert time.process_time() - start < 2
    assert len(message) < 600


def test_a_file_of_a_gigabyte_is_refused_without_reading_it(tmp_path):
    path = tmp_path / "huge.json"
    with path.open("wb") as file:
        file.truncate(1 << 30)  # sparse: takes no room
    start = time.process_time()
    with pytest.raises(SpecError, match=r"^huge\.json: the file has .* bytes; expected at most 1000000"):
        load_device(path)
    child = tmp_path / "child.json"
    child.write_text('{"name": "x", "title": "x", "extends": "huge.json"}')
    with pytest.raises(SpecError, match=r"^huge\.json: the file has"):
        load_device(child)
    assert time.process_time() - start < 1


def a_pipe(path):
    os.mkfifo(path)


def a_socket(path):
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
@pytest.mark.parametrize("make", [a_pipe, a_socket, Path.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_what_is_no_file_is_refused_without_waiting_for_it(make, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # paths of sockets are short
    make(Path("x.json"))
    with pytest.raises(SpecError, match=r"^x\.json: cannot be read: .*; expected the file of a spec, or one of a100, "):
        load_device("x.json")
    Path("child.json").write_text('{"name": "child", "title": "child", "extends": "x.json"}')
    with pytest.raises(SpecError, match=r'^child\.json: extends is "x\.json"; expected a file that can be read'):
        load_device("child.json")


@pytest.mark.parametrize("digits", [401, 10_000])
@pytest.mark.parametrize("sign", ["", "-"])
def test_an_integer_of_thousands_of_digits_is_refused_with_its_path(digits, sign):
    content = changed(["memory_layers", 1, "banks"], "HERE").replace(b'"HERE"', f"{sign}{'7' * digits}".encode())
    shown = (sign + "7" * 20)[:20]
    assert refusal(content) == (
        f"v100.json: memory_layers[1].banks is {shown}... ({digits} digits); expected a finite number"
    )


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200) | st.text(alphabet='{}[]":,0123456789truefalsn', max_size=200).map(str.encode))
def test_any_bytes_are_either_a_device_or_a_spec_error(content):
    assert refusal(content).startswith("v100.json: ")


KEYS = st.sampled_from(["value", "source", "kind", "x"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner),
    max_leaves=6,
)
PATHS = [
    ["units"], ["memory_layers"], ["memory_layers", 1], ["memory_layers", 1, "banks"], ["memory_layers", 1, "name"],
    ["instructions", 0], ["limits"], ["targets"], ["targets", 0, "dialect"], ["costs"], ["costs", "op_exp"], ["tlbs"],
    ["sources"], ["provenance"], ["notes"], ["title"],
]  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(PATHS), VALUES)
def test_any_value_anywhere_gives_a_device_or_a_spec_error_and_nothing_else(path, value):
    try:
        device = parse_device(changed(path, value), "small.json")
    except SpecError as error:
        assert str(error).startswith("small.json: ")
    else:
        assert device.name == "small"


def test_texts_named_like_the_parts_of_a_figure_are_texts():
    texts = {"kind": "", "source": "", "value": ""}
    device = parse_device(changed(["targets", 0, "dialect"], texts), "v100.json")
    assert dict(device.targets[0].dialect) == texts
    figure = {"value": "many", "kind": "assumed", "source": "a guess"}
    message = 'v100.json: memory_layers[1].banks is "many"; expected an integer of at least 1'
    assert refusal(changed(["memory_layers", 1, "banks"], figure)) == message
