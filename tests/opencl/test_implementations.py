"""A sample of the 119 operators on PoCL by buffers, and on Intel's runtime where pip has installed it (the extra `intel`)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.opencl.sample import problems

pytest.importorskip("pyopencl", reason="the extra [cpu] is not installed")
INTEL = Path(sys.prefix) / "lib" / "libintelocl.so"


def test_a_sample_is_right_on_pocl_with_memory_of_its_own():
    assert problems("pocl:0", 30)[0] == {}


@pytest.mark.skipif(not INTEL.exists(), reason="the extra [intel] is not installed")
def test_a_sample_is_right_on_intels_runtime(tmp_path):
    (tmp_path / "intel.icd").write_text(f"{INTEL}\n")  # the wheel's own names a folder of its maker's
    done = subprocess.run(
        [sys.executable, "-m", "tests.opencl.sample", "intel", "15"], cwd=Path(__file__).parents[2], text=True,
        env={**os.environ, "OCL_ICD_VENDORS": str(tmp_path)}, capture_output=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0 and "8 of 8 right on " in done.stdout, done.stdout + done.stderr
