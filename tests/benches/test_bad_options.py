"""Benches and probes answer wrong options with a line that says what is expected, and never with a traceback."""

import gzip
import subprocess
import sys
from pathlib import Path

import pytest

from rollergen.hal.probes import unrolling

ROOT = Path(__file__).parents[2]
GPU_ROW = "MWG,NWG,KWG,time_ms\n64,64,16,1.0\n"


def error_of(*words, cwd=ROOT):
    done = subprocess.run([sys.executable, *map(str, words)], capture_output=True, text=True, cwd=cwd)
    assert done.returncode and "Traceback" not in done.stderr, done.stdout + done.stderr
    return done.stderr.strip().split("\n")[-1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["bench_leave_one_out.py", "nowhere"], "gemm_rtx_titan.csv.gz cannot be read: "),
        (["bench_leave_one_out.py", "nowhere", "--sample", "-1"], "--sample is -1; expected how many programs, 0: all"),
        (["measured_spaces.py", "--data", "benches"], "benches cannot be read: "),
        (["measured_spaces.py", "--data", "README.md"], "README.md cannot be read: Not a gzipped file"),
        (["measured_spaces.py", "--device", "nosuch"], '--device: "nosuch" is no known device; expected one of'),
        (["measured_spaces.py", "--device", "v100"], "--device is v100; expected a CPU, whose programs the rows are"),
        (["measured_spaces.py", "--sample", "-1"], "--sample or --terms is below 0; expected how many rows"),
        (["bench_odd.py", "--device", "nosuch"], '"nosuch" is no known device; expected one of'),
        (["bench_odd.py", "--dtype", "float8"], "argument --dtype: invalid choice: 'float8' (choose from"),
        (["bench_odd.py", "--sizes", "0"], "--sizes or --jobs is below 1; expected how many"),
        (["bench_sass.py", "--device", "nosuch"], '"nosuch" is no known device; expected one of'),
        (["bench_sass.py", "--device", "mi50"], "expected a device whose spec has a target in cuda"),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, list) else "",
)
@pytest.mark.every(4)
def test_wrong_options_of_a_bench_are_told_in_a_line(words, said):
    assert said in error_of(f"benches/{words[0]}", *words[1:])


def test_a_space_of_a_gpu_asks_for_its_device(tmp_path):
    for name, text, said in (("gpu", GPU_ROW, "; expected a GPU, whose programs"), ("none", "a,b\n1,2\n", "MR or MWG")):
        file = tmp_path / f"{name}.csv.gz"
        file.write_bytes(gzip.compress(text.encode()))
        assert said in error_of("benches/measured_spaces.py", "--data", file)


@pytest.mark.parametrize(
    ("words", "said"), [([], "the following arguments are required: arch"), (["nosuch"], "nosuch: arch is 'nosuch'")]
)
def test_wrong_architectures_are_told_in_a_line(words, said, capsys):
    with pytest.raises(SystemExit) as raised:
        unrolling.main(words)
    assert said in f"{raised.value}{capsys.readouterr().err}"
