"""What a runtime would die of is refused before it is compiled; large tensors are indexed with 64 bits."""

from dataclasses import replace

import numpy as np
import pytest

import rollergen as rg
from rollergen.emit import Launch, emit
from rollergen.errors import DeviceError
from rollergen.hal.runtimes.protocol import BLOCKS, POCL_PRIVATE_BYTES, LaunchLimits
from rollergen.lower.ir import LOCAL, PRIVATE, Allocate, For, Kernel, array_bytes
from rollergen.measure.profiler import measure, propose
from rollergen.runtime.executor import check_launches, executor_for
from tests import programs
from tests.lower.devices import DEVICES
from tests.measure.faulty import CPU, RIGHT
from tests.measure.test_profiler import gate

LIMITS = LaunchLimits(threads=1024, local_bytes=49152, private_bytes=1 << 20)
FITS = Launch("f", 8, 256, ("X",), private_bytes=4096, local_bytes=49152)


def test_a_launch_at_its_limits_is_accepted():
    check_launches([FITS, replace(FITS, blocks=BLOCKS)], LIMITS)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"blocks": 2**31}, "f takes 2147483648 blocks, the runtime at most 2147483647"),
        ({"threads": 2048, "private_bytes": 0}, "f takes 2048 threads in a block, the runtime at most 1024"),
        ({"local_bytes": 49156}, "f takes 49156 bytes of memory shared by a block, the runtime at most 49152"),
        ({"private_bytes": 4100}, "f takes 1049600 bytes of private arrays in a block, the runtime at most 1048576"),
    ],
)
def test_a_launch_beyond_a_limit_is_refused_with_what_it_takes(change, text):
    with pytest.raises(DeviceError, match="not launched: ") as caught:
        check_launches([FITS, replace(FITS, **change)], LIMITS)
    assert text in str(caught.value)


def test_all_arrays_of_a_kernel_count_wherever_they_are_made():
    inner = For("i", 0, 4, (Allocate("b", PRIVATE, "float32", (10,)), Allocate("c", LOCAL, "float16", (7, 3))))
    body = (Allocate("a", "register", "float32", (6, 2), lanes=16), Allocate("x", "register", "float32"), inner)
    kernel = Kernel("f", (), (), body, 1, 1, "block", "thread", {})
    private, local = array_bytes(kernel)
    assert private == 6 * 2 * 16 * 4 + 10 * 4
    assert local == 7 * 3 * 2


def test_a_programs_launches_say_what_they_take():
    (launch,) = emit(programs.gpu_matmul(padding=0), DEVICES["v100"]).launches
    assert launch.local_bytes == 2 * 64 * 8 * 4  # two operands, a step of 8 rows or columns of 64
    assert launch.private_bytes >= 16 * 4


def test_a_candidate_that_asks_for_too_much_is_never_compiled_and_the_next_one_wins():
    greedy, right = propose([RIGHT, RIGHT], CPU)
    launches = tuple(replace(one, private_bytes=POCL_PRIVATE_BYTES + 1) for one in greedy.source.launches)
    greedy = replace(greedy, source=replace(greedy.source, launches=launches, text="no OpenCL at all"))
    outcomes = measure([greedy, right], executor_for(CPU), gate())
    assert "not launched: relu takes 1048577 bytes of private arrays" in outcomes[0].problems[0]
    assert [one.state for one in outcomes] == ["failed", "passed"]


def test_the_limits_of_this_machine_are_those_its_runtime_tells():
    limits = executor_for(CPU).limits
    assert limits.threads >= 1024 and limits.local_bytes >= 32768 and limits.private_bytes == POCL_PRIVATE_BYTES


ROWS, COLUMNS = 65600, 32800
"""More than 2^31 elements; of the pages only those are there that were written."""


def test_a_kernel_finds_elements_beyond_2_to_the_31():
    x = rg.tensor("X", (ROWS, COLUMNS), "int8")
    kernel = rg.build(rg.compute((66, 9), lambda i, j: x[i * 1000 + 5, j * 4096 + 3]), "cpu", profile=False)
    whole, wanted = np.zeros((ROWS, COLUMNS), np.int8), np.random.default_rng(0).integers(-99, 99, (66, 9), np.int8)
    whole[5::1000, 3::4096] = wanted
    assert np.array_equal(kernel(whole), wanted)


@pytest.mark.parametrize(("device", "wide"), [("mi50", "(long)"), ("v100", "(long long)")])
def test_indices_that_may_pass_2_to_the_31_are_computed_with_64_bits(device, wide):
    sizes = [2**12, 2**31 + 2**12]
    sources = [rg.build(rg.ops.relu(rg.tensor("X", (n,), "int8")), device, profile=False).source for n in sizes]
    assert wide not in sources[0] and wide in sources[1]


def test_sources_for_more_than_2_to_the_31_elements_compile_for_this_machine_and_for_nvidia():
    expression = rg.ops.add(rg.tensor("X", (ROWS, COLUMNS), "int8"), rg.tensor("b", (COLUMNS,), "int8"))
    for device in ("cpu", "mi50"):
        source = rg.build(expression, device, profile=False).source
        executor_for(CPU).prepare(replace(emit(RIGHT, CPU), text=source, launches=()))
    pytest.importorskip("nvidia.cuda_nvrtc")
    assert rg.build(expression, "v100", profile=False).compile_report()
