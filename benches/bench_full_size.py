"""Correctness at full size: ``python benches/bench_full_size.py [DEVICE ...] [--suite NAME] [--json FILE]``.

Without ``--suite``: for each operator of tests/agreement/full_size.py and each device's first program: the
interpreter on sampled blocks of every edge class (values and traffic), and the emitted source through PoCL in
full, both against the float64 definition at sampled points, on small integers (tolerance 0; softmax 1e-6).

With ``--suite``: every operator of the suite, as tests/agreement/suite_cases.py says (PoCL on sizes of a few
seconds).  Rows are kept as they come, in results/full_size_<suite>_<cpu>_<day>.json; what is there and right is
not run again by the same code (`--again` does).
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from rich.console import Console
from rich.table import Table

from benches.results import begun, keep, result_path
from rollergen.bench.suites import suite, suite_names
from tests.agreement.full_size import FULL_SIZE, run_case
from tests.agreement.readers import DEVICES, device
from tests.agreement.suite_cases import READERS, run_entry


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("devices", nargs="*", default=DEVICES)
    parser.add_argument("--suite", choices=suite_names())
    parser.add_argument("--only", nargs="+", help="identifiers of entries")
    parser.add_argument("--readers", nargs="+", default=list(READERS), choices=list(READERS))
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    return _suite(arguments) if arguments.suite else _listed(arguments)


def _listed(arguments: argparse.Namespace) -> int:
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


def _suite(arguments: argparse.Namespace) -> int:
    name = f"full_size_{arguments.suite}"
    before = begun(result_path(name)).get("rows", [])
    rows: dict[Any, Any] = {(row["id"], row["device"]): row for row in before}
    for device_name in arguments.devices:
        for entry in suite(arguments.suite).entries:
            if arguments.only and entry.id not in arguments.only:
                continue
            row = rows.setdefault(
                (entry.id, device_name),
                {"suite": entry.suite, "id": entry.id, "kind": entry.kind, "device": device_name},
            )
            for reader in arguments.readers:
                if arguments.again or not _state(row, reader).startswith(("right", "does not fit")):
                    row[reader] = run_entry(entry, device(device_name), reader)
                    print(device_name, entry.id, reader, row[reader], file=sys.stderr, flush=True)
                    keep(name, {"summary": _summary(list(rows.values())), "rows": list(rows.values())})
    table = Table("device", "reader", "right", "do not fit", "not run", "wrong", title=arguments.suite)
    for line in _summary(list(rows.values())):
        table.add_row(*map(str, line.values()))
    Console(width=140).print(table)
    return 0 if all(_passed(row) for row in rows.values()) else 1


def _passed(row: Any) -> bool:
    return not any(_state(row, reader).startswith("wrong") for reader in READERS)


def _state(row: Any, reader: str) -> str:
    return row[reader]["state"] if reader in row else "not run"


def _summary(rows: list[Any]) -> list[dict[str, Any]]:
    lines = []
    for device_name in dict.fromkeys(row["device"] for row in rows):
        for reader in READERS:
            states = [_state(row, reader) for row in rows if row["device"] == device_name]
            starts = {
                s: sum(state.startswith(s) for state in states) for s in ("right", "does not fit", "not run", "wrong")
            }
            lines.append({"device": device_name, "reader": reader, **starts})
    return lines


if __name__ == "__main__":
    raise SystemExit(main())
