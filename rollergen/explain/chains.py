"""Chains of two contractions, explained."""

from __future__ import annotations

from rollergen.program.chains import tile_of_chain
from rollergen.program.rprogram import Stage


def chain_text(stage: Stage) -> list[str]:
    """What a chain of two contractions does, block by block."""
    assert stage.inner is not None
    roles, tile = tile_of_chain(stage)
    beside = f"{tile.inner_keys} {roles.key} and then {tile.columns} {roles.column} side by side"
    said = [f"{tile.rows} {roles.rows} in lanes; {tile.keys} {roles.key} at a time, {beside}"]
    if stage.inner.first or stage.inner.last:
        said.append("blocks of keys that no row of theirs sees are left out")
    return said
