"""What a compiler made of the measured convolutions is a fact of the device's target."""

from pathlib import Path

from benches.space_conv import AS_WRITTEN, FILTER, TAPS, compiled_by, conv_program
from rollergen.hal.load import load_device

DEVICES = Path(__file__).parents[2] / "benches" / "devices"
ROW = {
    "block_size_x": "32", "block_size_y": "4", "tile_size_x": "4", "tile_size_y": "4", "use_shmem": "1",
    "use_padding": "0",
}  # fmt: skip


def test_the_target_says_what_its_compiler_writes_out():
    hip, cuda = (compiled_by(load_device(DEVICES / f"{name}.json")) for name in ("mi50-hip", "a100-pcie-40gb"))
    assert (hip.written_out, hip.tested, hip.run, hip.sinks) == (8 * TAPS, 8 * TAPS, 5, True)
    assert (cuda.written_out, cuda.tested, cuda.run, cuda.sinks) == (0, FILTER * TAPS, 1, False)
    assert compiled_by(load_device("mi50")) == AS_WRITTEN


def test_what_is_not_written_out_is_a_loop_of_the_filters_rows():
    kinds = lambda compiled: [one.kind for one in conv_program(ROW, compiled).stages[0].loops if one.axis == "ky"]
    assert kinds(AS_WRITTEN) == ["unroll"]
    assert kinds(compiled_by(load_device(DEVICES / "mi50-hip.json"))) == ["serial", "unroll"]
