"""Correctness at full size: ``python benches/bench_full_size.py [DEVICE ...] [--json FILE]``.

For each operator of tests/agreement/full_size.py and each device's first program: the interpreter on
sampled blocks of every edge class (values and traffic), and the emitted source through PoCL in full,
both against the float64 definition at sampled points, on small integers (tolerance 0; softmax 1e-6).
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from rich.console import Console
from rich.table import Table

from tests.agreement.full_size import FULL_SIZE, run_case
from tests.agreement.readers import DEVICES


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("devices", nargs="*", default=DEVICES)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    table = Table("operator", "device", "blocks interpreted", "interpreter s", "PoCL s", "state")
    rows = []
    for device_name in arguments.devices:
        for name in FULL_SIZE:
            row = run_case(name, device_name)
            rows.append(row)
            print(f"{device_name}: {name}: {row['state']}", file=sys.stderr, flush=True)
            cells = [row.get(key, "") for key in ("blocks", "interpreted_s", "opencl_s", "state")]
            table.add_row(name, device_name, *map(str, cells))
    Console(width=140).print(table)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1))
    return 0 if all(not row["state"].startswith("wrong") for row in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
