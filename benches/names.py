"""Names of a table, read from its source: what its rows need (torch) takes seconds to import."""

from __future__ import annotations

import ast
from pathlib import Path


def network_names() -> tuple[str, ...]:
    """The keys of `benches.networks.NETWORKS`."""
    tree = ast.parse((Path(__file__).parent / "networks" / "__init__.py").read_text(encoding="utf-8"))
    named = {ast.unparse(one.target): one.value for one in tree.body if isinstance(one, ast.AnnAssign)}
    return tuple(ast.literal_eval(key) for key in named["NETWORKS"].keys)
