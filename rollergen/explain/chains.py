"""Chains of two contractions, explained."""

from __future__ import annotations

from math import prod

from rollergen.program.chains import tile_of_chain
from rollergen.program.matrix_chains import is_matrix_chain, tile_of_matrix_chain
from rollergen.program.rprogram import GROUP, Stage


def chain_text(stage: Stage) -> list[str]:
    """What a chain of two contractions does, block by block."""
    assert stage.inner is not None
    if is_matrix_chain(stage):
        return [*_matrix_text(stage), *_left_out(stage)]
    roles, tile = tile_of_chain(stage)
    beside = f"{tile.inner_keys} {roles.key} and then {tile.columns} {roles.column} side by side"
    asked = [f"the next {roles.rows}, and where results will be written, are asked for while scores are computed"]
    return [
        f"{tile.rows} {roles.rows} in lanes; {tile.keys} {roles.key} at a time, {beside}",
        *(asked if stage.prefetch >= 0 else []),
        *_left_out(stage),
    ]


def _matrix_text(stage: Stage) -> list[str]:
    roles, tile = tile_of_matrix_chain(stage)
    queries = "stay in registers" if tile.held else "are read again for each block of keys"
    beside = sum(loop.kind == GROUP for loop in stage.loops) > 1
    widths = prod(loop.extent for loop in stage.loops if loop.kind == GROUP) // tile.groups
    groups = f"groups of {widths} execution widths" if beside else "execution widths"
    return [
        f"{tile.groups} {groups} of {tile.tiles * tile.m} {roles.rows}; {tile.keys} {roles.key} at a time in "
        f"{tile.depth} buffers; {stage.compute.instruction} makes scores, which become weights in its registers",
        f"{roles.rows} {queries}",
    ]


def _left_out(stage: Stage) -> list[str]:
    assert stage.inner is not None
    ruled_out = stage.inner.first or stage.inner.last
    return ["blocks of keys that no row of theirs sees are left out"] if ruled_out else []
