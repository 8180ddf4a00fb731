"""What a manifest says of the device that a kernel was built for."""

from dataclasses import replace

from rollergen.bundle.manifest import _device
from rollergen.hal.load import load_device


def test_a_device_is_recognised_by_its_architecture_or_by_card_and_platform():
    spec = load_device("mi50")
    assert _device(spec)["names"] == ["gfx906"] and "platform" not in _device(spec)
    card = replace(spec.targets[0], arch="", dialect=(("gpu", "Xeon"), ("platform", "Intel(R) OpenCL")))
    found = _device(replace(spec, targets=(card,)))
    assert (found["names"], found["platform"], found["type"]) == (["Xeon"], "Intel(R) OpenCL", "other")
