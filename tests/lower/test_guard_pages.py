"""No program reads or writes an element outside its buffers: the pages beside them are forbidden."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run(*arguments):
    command = [sys.executable, "-m", "tests.lower.guard_pages", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)


def test_programs_touch_nothing_outside_their_buffers():
    done = run()
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert done.stdout.rstrip().endswith("done")


def test_a_read_past_the_end_would_be_noticed():
    assert run("fault").returncode < 0
