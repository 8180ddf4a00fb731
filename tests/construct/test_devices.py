"""Every built-in device gets programs for small operators, and they give what the definition says."""

from pathlib import Path

import numpy as np
import pytest

import rollergen as rg
from rollergen.hal.load import device_names, load_device
from rollergen.targets import resolve

BENCH = Path(__file__).parents[2] / "benches" / "devices"
DEVICES = [*device_names(), str(BENCH / "a100-pcie-40gb.json")]

OPERATORS = {
    "matmul": lambda: rg.ops.matmul(rg.tensor("A", (48, 40)), rg.tensor("B", (40, 56))),
    "conv2d": lambda: rg.ops.conv2d(rg.tensor("X", (2, 6, 10, 10)), rg.tensor("W", (8, 6, 3, 3)), padding=1),
    "softmax": lambda: rg.ops.softmax(rg.tensor("X", (12, 70))),
}


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("name", DEVICES, ids=lambda name: Path(name).stem)
@pytest.mark.every(13)
def test_small_operators_are_constructed_and_interpreted(name, operator):
    expression = OPERATORS[operator]()
    kernel = rg.build(expression, name, top_k=1, profile=False)
    arrays = [np.random.default_rng(n).standard_normal(b.shape, "float32") for n, b in enumerate(kernel.program.inputs)]
    np.testing.assert_allclose(kernel.interpret(*arrays), expression.evaluate(*arrays), rtol=1e-4, atol=1e-4)
    assert 0 < kernel.predicted_time < 1


def test_a_faster_card_is_predicted_to_be_faster():
    expression = rg.ops.matmul(rg.tensor("A", (2048, 2048)), rg.tensor("B", (2048, 2048)))
    cards = ("k80", "v100", "v100-sxm2", "a100", "h200")
    times = [rg.predict(rg.construct(expression, name, top_k=1)[0], resolve(name)).seconds for name in cards]
    assert times == sorted(times, reverse=True)
    fma = [(d.units * d.clock_mhz, d.instruction("fma").per_clock) for d in map(load_device, cards)]
    peaks = [2e6 * clocks * per_clock for clocks, per_clock in fma]
    assert all(seconds * peak > 2 * 2048**3 for seconds, peak in zip(times, peaks, strict=True))
