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


def test_what_waking_takes_is_taken_off_where_threads_were_woken():
    sys.path.insert(0, str(ROOT))
    try:
        from benches.bench_launch import without
    finally:
        sys.path.remove(str(ROOT))
    case = {"kind": "a", "ours_seconds": 100e-6, "roofline_share": 0.4, "ratio": 0.8, "launches": 1}
    cases = [{**case, "case": "woken", "woken": 1}, {**case, "case": "alone", "woken": 0, "kind": "b"}]
    found = without(cases, launch_s=10e-6, wake_s=40e-6)
    assert abs(found["ratio"] - 0.8) < 1e-12
    assert abs(found["classes without waking"]["a"] - 0.8 / 0.6) < 1e-12 and found["classes without waking"]["b"] == 0.8
    assert abs(found["roofline share"] - 0.4) < 1e-12
    assert abs(found["without launches"] - (0.8 * 0.4 / 0.9) ** 0.5) < 1e-12
