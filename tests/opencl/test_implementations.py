"""A sample of the 119 operators on PoCL by buffers, and on Intel's runtime where pip has installed it (the extra `intel`)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rollergen.hal.exchanges import EXTENSIONS
from tests.opencl.sample import problems

pytest.importorskip("pyopencl", reason="the extra [cpu] is not installed")
INTEL = Path(sys.prefix) / "lib" / "libintelocl.so"
needs_intel = pytest.mark.skipif(not INTEL.exists(), reason="the extra [intel] is not installed")


def test_a_sample_is_right_on_pocl_with_memory_of_its_own():
    assert problems("pocl:0", 30)[0] == {}


def on_intel(folder, module, *words):
    """A module of the tests with Intel's platform visible."""
    (folder / "intel.icd").write_text(f"{INTEL}\n")  # the wheel's own names a folder of its maker's
    done = subprocess.run(
        [sys.executable, "-m", f"tests.opencl.{module}", "intel", *words], cwd=Path(__file__).parents[2], text=True,
        env={**os.environ, "OCL_ICD_VENDORS": str(folder)}, capture_output=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@needs_intel
def test_a_sample_is_right_on_intels_runtime(tmp_path):
    assert "36 of 36 right on " in on_intel(tmp_path, "sample", "15")


@needs_intel
@pytest.mark.parametrize("extension", EXTENSIONS)
def test_reductions_exchange_registers_within_intels_sub_groups(extension, tmp_path):
    assert "registers exchanged within 32 threads" in on_intel(tmp_path, "exchanges", extension)
