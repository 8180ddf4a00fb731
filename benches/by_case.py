"""The command line of benches that time cases beside libraries one by one, keep them together and judge them."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from benches.aims import Aim, verdict
from benches.results import keep

Row = dict[str, Any]
"""What is known of a case, with the ``ratios`` of each library's time to ours."""


class Named(Protocol):
    @property
    def name(self) -> str: ...


C = TypeVar("C", bound=Named)


def run(
    about: str, name: str, cases: Sequence[C], measure: Callable[[C, float], Row], said: Callable[[Row], str],
    aims: Callable[[list[Row]], Sequence[Aim]],
) -> int:  # fmt: skip
    """The exit status of the bench `name`: each case is measured and said in a line; all of them are kept in
    benches/results, of some (``--case``) nothing is."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--case", default="", help="only cases whose name contains this text")
    parser.add_argument("--seconds", type=float, default=1.0, help="least seconds of timing for each case")
    arguments = parser.parse_args()
    found = []
    for case in (one for one in cases if arguments.case in one.name):
        found.append(row := measure(case, arguments.seconds))
        every = " ".join(f"{library} {ratio:.2f}" for library, ratio in row["ratios"].items())
        print(f"{case.name}: {row['ours_seconds'] * 1e6:.0f} us, {said(row)}; {every}", flush=True)
    if not found:
        raise SystemExit(f"no case has {arguments.case!r} in its name")
    if arguments.case:
        return 0
    judged = aims(found)
    print(f"kept in {keep(name, {'headlines': [one.headline() for one in judged], 'cases': found})}")
    return verdict(judged)
