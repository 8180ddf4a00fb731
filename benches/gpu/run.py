"""All that a machine with an NVIDIA GPU is to measure, the most important first: ``python benches/gpu/run.py``.

The pieces, each a script of this folder in a process of its own: predictions (which must be there and committed, and
then take no time), correctness of the whole list, timings of its core beside torch, its core beside compilers, the
same of the rest, programs collected for the learned rankers; then the page, from whatever there is.

Stops after ``--budget-s`` seconds (default: nine minutes) and exits with 3 where something is left: call it again,
until it exits with 0 (1: an operator is wrong or failed; 2: it cannot go on, and says why).  Options that are not
every script's go to `compare.py`.  ``--dry-run`` goes all the way without a GPU, in small.  README.md says what to do
when.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benches.gpu import machine
from benches.gpu.rows import LOST, UNFINISHED

HERE = Path(__file__).resolve().parent
MOST_RESTARTS = 20
"""Processes that one call may start for a piece whose GPU answers no more."""


@dataclass(frozen=True)
class Piece:
    """``script`` with ``options``; ``core``: of the core of the list alone."""

    script: str
    options: tuple[str, ...] = ()
    core: bool = False

    @property
    def title(self) -> str:
        return " ".join((self.script, *self.options, *("--core",) * self.core))


PIECES = (
    Piece("predict.py"),
    Piece("check.py"),
    Piece("compare.py", core=True),
    Piece("compare.py", ("--peers",), core=True),
    Piece("compare.py"),
    Piece("compare.py", ("--peers",)),
    Piece("collect.py"),
)
PAGE = Piece("report.py")
ENDS = (0, 1)
"""Exit codes after which the next piece makes sense: 1 says that an operator is wrong, or failed."""


def main(words: list[str] | None = None) -> int:
    given, others = machine.parser(__doc__).parse_known_args(words)
    end, worst = time.perf_counter() + given.budget_s, 0
    for piece in PIECES:
        code = performed(piece, given, others, end)
        worst = max(worst, code)
        if code not in ENDS:
            break
    performed(PAGE, given, others, end)
    return worst


def performed(piece: Piece, given: argparse.Namespace, others: Sequence[str], end: float) -> int:
    """The exit code of the piece; one whose GPU answers no more goes on in another process."""
    for _ in range(MOST_RESTARTS):
        left = end - time.perf_counter()
        if left <= 0 and piece != PAGE:
            print(f"no time left for {piece.title}; call it again", flush=True)
            return UNFINISHED
        print(f"== {piece.title}", flush=True)
        words = [*options(piece, given, others), "--budget-s", f"{left:.0f}"]
        code = subprocess.run([sys.executable, str(HERE / piece.script), *words], check=False).returncode
        if code == -signal.SIGINT:
            return UNFINISHED
        if code != LOST and code >= 0:  # a signal, such as that of an operator's fault, ends the process alone
            return code
    return LOST


def options(piece: Piece, given: argparse.Namespace, others: Sequence[str]) -> list[str]:
    """Those of a piece: only `compare.py` has others than the common ones."""
    words = ["--device", given.device, "--suite", *given.suite, *piece.options]
    words += ["--only", *given.only] if given.only else []
    words += ["--results", str(given.results)] if given.results else []
    flags = {"--core": piece.core or given.core, "--again": given.again, "--retry": given.retry}
    flags["--dry-run"] = given.dry_run
    words += [name for name, wanted in flags.items() if wanted]
    return words + (list(others) if piece.script == "compare.py" else [])


if __name__ == "__main__":
    raise SystemExit(main())
