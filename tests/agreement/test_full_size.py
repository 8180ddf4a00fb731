"""Full-size operators are right in the interpreter and through PoCL; benches/bench_full_size.py runs every pair."""

import pytest

from tests.agreement.full_size import FULL_SIZE, run_case

SLOW_TO_INTERPRET = {"matmul 128x4096x4096", "matmul 997^3"}
MI50 = ("matmul 1024^3", "conv 3x3", "conv 7x7 stride 2", "sum over the first axis", "softmax", "transpose")
IPU = ("matmul 997^3", "matmul 127x511x1023", "conv 7x7 stride 2", "conv 1x1", "batch matmul", "softmax")
PAIRS = [
    *(("cpu", name) for name in FULL_SIZE if name not in SLOW_TO_INTERPRET),
    *(("v100", name) for name in FULL_SIZE),
    *(("mi50", name) for name in MI50),
    *(("ipu", name) for name in IPU),
]


@pytest.mark.parametrize(("device_name", "name"), PAIRS)
@pytest.mark.every(19)
def test_a_full_size_operator_is_right_on_sampled_blocks_and_through_pocl(device_name, name):
    assert run_case(name, device_name)["state"] == "right"
