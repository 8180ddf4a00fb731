"""The bench of launches starts its cases on all cores of the machine, though it takes one core for itself."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
import os
before = os.sched_getaffinity(0)
from benches import bench_launch
def seen(*words):
    raise SystemExit(0 if os.sched_getaffinity(0) == before else "the cases have fewer cores")
bench_launch.alone = seen
bench_launch.main()
"""


def test_cases_on_all_cores_are_started_with_all_cores():
    done = subprocess.run([sys.executable, "-c", SCRIPT], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
