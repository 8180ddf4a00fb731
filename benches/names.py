"""Names of a table, read from its source: what its rows need (torch) takes seconds to import."""

from __future__ import annotations

import argparse
import ast
from pathlib import Path


def network_names() -> tuple[str, ...]:
    """The keys of `benches.networks.NETWORKS`."""
    tree = ast.parse((Path(__file__).parent / "networks" / "__init__.py").read_text(encoding="utf-8"))
    named = {ast.unparse(one.target): one.value for one in tree.body if isinstance(one, ast.AnnAssign)}
    return tuple(ast.literal_eval(key) for key in named["NETWORKS"].keys)


def with_networks(parser: argparse.ArgumentParser, default: str = "all") -> argparse.Namespace:
    """The command line's options, ``names`` of networks among them; ``default``: which are taken where none is
    given.  One that no network has ends the run."""
    names = network_names()
    parser.add_argument("names", nargs="*", help=f"of {', '.join(names)}; {default} unless given")
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in names]:
        parser.error(f"{unknown[0]!r} is none of {', '.join(names)}")
    return options
