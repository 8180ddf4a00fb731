"""What kind of device there is, is decided in one file; what its language is called, matters to no file but a printer's."""

from dataclasses import replace

import pytest

from benches.house import KIND, LANGUAGE
from rollergen.hal.errors import SpecError
from rollergen.hal.load import load_device
from rollergen.hal.spec import Target
from rollergen.hal.spec_rules import contradictions
from tests.imports import modules

MASKED = ("masked_vectors", "512")
V100, A100, H200, CPU, IPU = map(load_device, ("v100", "a100", "h200", "cpu", "ipu"))


def without_managed_layers(device):
    return replace(device, layers=tuple(one for one in device.layers if not one.managed or one.scope != "unit"))


def test_one_file_derives_the_kind_of_a_device():
    asking = [name for name, path in modules().items() if KIND.search(path.read_text())]
    assert asking == ["rollergen.hal.kind"]


def test_no_file_outside_emit_compares_names_of_languages():
    others = {name: path for name, path in modules().items() if not name.startswith("rollergen.emit")}
    assert [name for name, path in others.items() if LANGUAGE.search(path.read_text())] == []


@pytest.mark.parametrize(
    ("device", "capabilities"),
    [
        (V100, "threads lockstep exchanges matrix_instructions bounds_registers"),
        (A100, "threads lockstep exchanges matrix_instructions asynchronous_copies bounds_registers"),
        (H200, "threads lockstep exchanges matrix_instructions asynchronous_copies box_copies bounds_registers"),
        (replace(H200, targets=(Target("opencl"),)), "threads lockstep exchanges"),
        (replace(A100, targets=(Target("opencl"),)), "threads lockstep exchanges"),
        (replace(A100, execution_width=1), "threads matrix_instructions asynchronous_copies bounds_registers"),
        (without_managed_layers(A100), "exchanges bounds_registers"),
        (CPU, "vectors"),
        (IPU, "threads vectors machine"),
    ],
    ids=["v100", "a100", "h200", "h200 in OpenCL C", "a100 in OpenCL C", "threads by themselves", "nothing managed", "cpu", "ipu"],
)
def test_capabilities_follow_from_the_spec_and_its_languages(device, capabilities):
    names = (
        "threads", "lockstep", "vectors", "exchanges", "matrix_instructions", "asynchronous_copies",
        "box_copies", "bounds_registers", "machine",
    )  # fmt: skip
    assert [name for name in names if getattr(device.kind, name)] == capabilities.split()


@pytest.mark.parametrize("dialect", [(), (("kernel_attribute", "__attribute__((min_vector_width(512)))"),)])
def test_vectors_are_masked_where_the_target_says_so_whatever_its_attribute(dialect):
    bare, wide = (replace(CPU, targets=(Target("opencl", "", (*dialect, *more)),)) for more in ((), (MASKED,)))
    assert not bare.kind.masked_stores and not bare.kind.masked_loads
    assert ("float32", 16) in wide.kind.masked_stores and ("float32", 8) in wide.kind.masked_loads - wide.kind.masked_stores
    (found,) = contradictions(replace(CPU, targets=(Target("opencl", "", (("masked_vectors", "256"),)),)))
    assert found.startswith('targets[0].dialect.masked_vectors is "256"; expected nothing, or 512')


def test_a_device_without_targets_is_refused():
    with pytest.raises(SpecError, match="targets is a list of 0; expected a list of 1 to 16 targets"):
        replace(CPU, targets=())
