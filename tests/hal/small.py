"""A small spec whose parts tests change."""

import json

import pytest

from rollergen.hal.errors import SpecError
from rollergen.hal.load import parse_device

SMALL = {
    "format": "rollergen.device.v1",
    "name": "small",
    "title": "A small device",
    "units": {"value": 2, "source": "us", "kind": "measured", "note": "counted twice"},
    "execution_width": 32,
    "schedulers": 1,
    "clock_mhz": 1000,
    "memory_layers": [
        {"name": "registers", "scope": "thread", "managed": True, "capacity_bytes": 1020, "transaction_bytes": 4},
        {
            "name": "shared", "scope": "unit", "managed": True, "capacity_bytes": 65536, "transaction_bytes": 128,
            "bytes_per_clock": 128, "banks": 32, "bank_bytes": 4,
        },
        {
            "name": "l2", "scope": "device", "managed": False, "capacity_bytes": 1 << 20, "transaction_bytes": 32,
            "bandwidth_gb_s": 500, "sets": 2048, "ways": 16,
        },
        {
            "name": "dram", "scope": "device", "managed": True, "capacity_bytes": 1 << 30, "transaction_bytes": 32,
            "bandwidth_gb_s": 100, "bandwidth_nominal_gb_s": 120,
        },
    ],
    "instructions": [
        {
            "name": "fma", "dtype": "float32", "accumulator_dtype": "float32", "m": 1, "n": 1, "k": 1, "lanes": 1,
            "per_clock": 64, "latency_clocks": 4,
        },
    ],
    "limits": {
        "threads_per_block": 1024, "threads_per_unit": 2048, "blocks_per_unit": 16, "registers_per_thread": 255,
        "registers_per_unit": 65536, "register_allocation": 8, "block_memory_bytes": 49152,
    },
    "launch_us": 2.5,
    "targets": [{"language": "opencl", "arch": "", "dialect": {"b": "2", "a": "1"}}],
    "costs": {"norm_exponent": 2, "keep_below": 0.6, "keep_above": 2.5},
    "sources": {"us": "counted by us"},
}  # fmt: skip

REMOVED = object()


def changed(path: list, value: object) -> bytes:
    """SMALL with the item at `path` replaced, or taken out."""
    document = json.loads(json.dumps(SMALL))
    node = document
    for step in path[:-1]:
        node = node[step]
    if value is REMOVED:
        del node[path[-1]]
    else:
        node[path[-1]] = value
    return json.dumps(document).encode()


def refusal(content: bytes) -> str:
    with pytest.raises(SpecError) as caught:
        parse_device(content, "v100.json")
    return str(caught.value)
