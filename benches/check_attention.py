"""Random attentions as one kernel on a V100, an A100, an H200 and this CPU: ``python benches/check_attention.py
[--count N] [--first N]``.

Shapes with tails, masks, grouped heads, dtypes, hostile scores and tiles are those of tests/attention_cases.py.  The
interpreter and the text (CUDA on the stand-in of tests/cuda, OpenCL by PoCL) have to give NumPy's definition in
float64, and the interpreter's bytes are those of the closed forms.  Rows are kept as they come, in
results/check_attention_<cpu>_<day>.json.  Exits with 1 where one is wrong.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benches.aims import Aim, verdict
from benches.results import keep
from rollergen.errors import RollergenError
from tests.attention_cases import DEVICES, assert_right, drawn
from tests.cuda.host import HostError

NAME = "check_attention"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200, help="attentions in all, as many for each device")
    parser.add_argument("--first", type=int, default=0, help="number of the first one")
    rows: list[dict[str, Any]] = []
    given = parser.parse_args()
    for number in range(given.first, given.first + given.count):
        case, kernels, state = drawn(number), 0, "right"
        try:
            kernels = len(assert_right(case).stages)
        except (AssertionError, HostError, RollergenError) as error:
            state = f"wrong: {str(error)[:200]}"
        rows.append({"number": number, "case": case.text, "device": case.device, "kernels": kernels, "state": state})
        print(number, case.text, state, flush=True)
        right = Counter(row["device"] for row in rows if row["state"] == "right")
        figure = f"{right.total()} of {len(rows)} right: " + ", ".join(f"{right[name]} {name}" for name in DEVICES)
        what = "Random attentions as one kernel, or two, beside float64"
        aim = Aim(what, figure, "all right", right.total() == len(rows))
        keep(NAME, {"headlines": [aim.headline()], "rows": rows})
    return verdict([aim])


if __name__ == "__main__":
    sys.exit(main())
