"""The bench of single functions runs: a part of it, each function once."""

import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).resolve().parent.parent.parent / "benches" / "bench_functions.py"


def test_functions_of_the_pipeline_can_be_timed(tmp_path):
    words = ["--benchmark-disable", "-k", "launch or expression or (relu and v100)"]
    done = subprocess.run([sys.executable, str(BENCH), *words], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "kept in" not in done.stdout
