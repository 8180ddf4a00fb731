"""Which architecture has which matrix instruction and dot product."""

from dataclasses import replace

import pytest

from rollergen.hal.load import device_names, load_device
from rollergen.hal.matrix_units import WAVEFRONTS, lacks


@pytest.mark.parametrize(
    ("arch", "device", "name", "lacking"),
    [
        ("sm_86", "rtx4090", "mma_e4m3", True),
        ("sm_89", "rtx4090", "mma_e4m3", False),
        ("sm_75", "a100", "mma", True),  # k of 16
        ("sm_86", "a100", "mma_tf32", False),
        ("sm_80", "h100", "wgmma", True),
        ("sm_100", "h100", "wgmma", True),
        ("sm_90a", "h100", "wgmma", False),
        ("sm_75", "v100", "mma", True),  # Volta's quad pairs
        ("sm_75", "v100", "wmma", False),
        ("sm_70", "v100", "dp4a", False),
        ("sm_60", "v100", "dp4a", True),
        ("gfx908", "mi210", "mfma", False),
        ("gfx908", "mi210", "mfma_bf16", True),  # k of 16
        ("gfx942", "mi210", "mfma_s8", True),  # k of 16, there 32
        ("gfx1100", "mi210", "mfma", True),
        ("gfx1100", "mi50", "dot4", True),
        ("gfx906", "rtx4090", "mma", True),
        ("sm_86", "rtx4090", "fma", False),
        ("", "rtx4090", "mma_e4m3", False),
    ],
)
def test_an_architecture_has_the_instructions_of_its_generation(arch, device, name, lacking):
    assert lacks(arch, load_device(device).instruction(name)) == lacking


@pytest.mark.parametrize(
    ("arch", "device", "name", "shape", "lacking"),
    [
        ("gfx908", "mi210", "mfma_bf16", {"k": 8}, False),
        ("gfx90a", "mi210", "mfma_bf16", {"k": 8}, True),
        ("gfx942", "mi210", "mfma_s8", {"k": 32}, False),
        ("gfx90a", "mi210", "mfma_s8", {"k": 32}, True),
        ("sm_70", "v100", "wmma", {"dtype": "int8"}, True),
        ("sm_72", "v100", "wmma", {"dtype": "int8"}, False),
        ("sm_75", "v100", "wmma", {"dtype": "bfloat16"}, True),
        ("sm_80", "v100", "wmma", {"dtype": "bfloat16"}, False),
        ("sm_70", "a100", "mma", {"k": 8}, True),
        ("sm_75", "a100", "mma", {"k": 8}, False),
    ],
)
def test_shapes_and_dtypes_came_with_generations_of_their_own(arch, device, name, shape, lacking):
    assert lacks(arch, replace(load_device(device).instruction(name), **shape)) == lacking


@pytest.mark.parametrize("name", device_names())
def test_built_in_devices_have_what_their_specs_say(name):
    device = load_device(name)
    assert [one.name for one in device.instructions if lacks(device.targets[0].arch, one)] == []


def test_every_matrix_instruction_of_wavefronts_has_words():
    from rollergen.emit.wavefronts import BUILTINS

    assert BUILTINS.keys() == WAVEFRONTS.keys()
