"""Construction of chains of two contractions (attention): with rows in lanes, where a block is one thread; by matrix
instructions, where accumulators of these are factors of the next."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod
from operator import itemgetter

from rollergen.construct.candidate import Candidate, assembled, candidate, candidates, prices
from rollergen.construct.ledger import Ledger
from rollergen.construct.lone_rows import with_rows
from rollergen.construct.reductions import combine_stage
from rollergen.dropped import as_far_as_possible
from rollergen.expr.chain_splitting import split_chain
from rollergen.expr.tensor_op import TensorOp
from rollergen.hal.spec import Device, Instruction
from rollergen.program.assemble.chain import chain_stage, matrix_chain_stage
from rollergen.program.chains import ChainRoles, ChainTile, chain_roles, steps_of
from rollergen.program.matrix import QUAD_PAIRS, ROW_BYTES
from rollergen.program.matrix_chains import MatrixChainTile, fits_instruction, keys_problem
from rollergen.program.model import registers_of, registers_of_chain, registers_of_thread
from rollergen.program.rprogram import Stage
from rollergen.tile.rules import AlignmentRules

_VECTORS = (1, 2, 3, 4)
_SIDE_BY_SIDE = (1, 2, 3, 4, 6, 8, 12, 16)
_KEYS = (16, 32, 64, 128, 256)


_GROUPS = (4, 8, 2, 1)
_ROW_TILES = (1, 2)
_BLOCKS_OF_KEYS = (32, 64, 128)
_CHUNK = 64
"""Keys of which chunks are multiples."""
_TURNS = (1, 2, 4)
"""Blocks of chunks for each unit."""
_KEPT = 4
"""Programs of each number of chunks."""
_BESIDE = "products beside the program"
"""Variants of asynchronous instructions: of the few programs that are measured some are by others."""
_GROUPS_BESIDE = (2, 3, 1, 4)
"""Of the execution widths of an asynchronous instruction."""


def runs_chains(device: Device) -> bool:
    """Whether chains may be one stage on the device: where a block is one thread, whose instructions have lanes, or
    where a matrix instruction's accumulators become factors in registers."""
    return device.kind.machine is None and (_runs_in_lanes(device) or bool(_matrices(device)))


def runs_lone_rows(device: Device) -> bool:
    """Whether these may be of a single row: tiles of matrix instructions are then nearly empty, but read keys once."""
    return device.kind.machine is None and bool(_matrices(device))


def _runs_in_lanes(device: Device) -> bool:
    return _instruction(device) is not None and not device.kind.threads


def _matrices(device: Device, *, copies: bool = True, beside: bool = True) -> list[Instruction]:
    """Those whose accumulators become factors in registers; ``copies``: those that need asynchronous ones too, and
    ``beside`` those that are asynchronous themselves."""
    layer, kind = device.kind.block_layer, device.kind
    if layer is None or not kind.matrix_instructions:
        return []
    copied = copies and kind.asynchronous_copies and device.layer(layer).asynchronous_copy_bytes >= ROW_BYTES
    layouts = [QUAD_PAIRS, *["quads"] * copied, *["warpgroup"] * (copied and beside)]
    return [one for one in device.instructions if one.layout in layouts]


def chain_candidates(op: TensorOp, device: Device, rules: AlignmentRules, ledger: Ledger) -> Iterator[Candidate]:
    """A candidate of each tile whose accumulators stay in registers; rows fill whole vectors, or whole tiles of a
    matrix instruction."""
    op = with_rows(op) if runs_lone_rows(device) else op
    roles, instruction = chain_roles(op), _instruction(device)
    if roles is None or not runs_chains(device):
        return
    shapes = rules.shapes
    every = _matrices(device, copies=shapes.asynchronous_copies, beside=shapes.asynchronous_products)
    for one in every if shapes.matrix_instructions else []:
        if fits_instruction(op, roles, one):
            variant = f"fused, {_BESIDE}" if one.is_asynchronous else "fused"
            yield from candidates(variant, _matrix_stages(op, roles, one, device), device)
        yield from as_far_as_possible(_split_candidates(op, roles, one, device, rules), "split chains")
    single = all(load.dtype not in ("float16", "bfloat16") for load in op.loads()) and op.output.dtype == "float32"
    if instruction is None or not _runs_in_lanes(device) or not single:
        return
    make = lambda tile: chain_stage(op, roles, tile, instruction, shapes.prefetch)
    stages = assembled(list(_tiles(op, roles, instruction, device)), make, "fused")
    yield from candidates("fused", stages, device)


def _split_candidates(
    op: TensorOp, roles: ChainRoles, one: Instruction, device: Device, rules: AlignmentRules
) -> Iterator[Candidate]:
    """Keys in chunks that run side by side, put together by a second stage, where rows alone leave units idle."""
    extents = op.extents()
    blocks = prod(extents[axis] for axis in roles.batch) * steps_of(extents[roles.rows], one.m)
    most = extents[roles.key] // _CHUNK
    shares = {steps_of(turns * device.units, blocks) for turns in _TURNS} if rules.shapes.split_reductions else set()
    chunks = {steps_of(steps_of(extents[roles.key], parts), _CHUNK) * _CHUNK for parts in shares if 2 <= parts <= most}
    for chunk in sorted(chunks):
        pair = split_chain(op, roles.key, roles.column, chunk)
        own = chain_roles(pair[0]) if pair else None
        if pair is None or own is None or not fits_instruction(pair[0], own, one):
            continue
        first = sorted(prices(_matrix_stages(pair[0], own, one, device), device, "split"), key=itemgetter(1))
        second = combine_stage(pair[1], device, rules)
        parts = steps_of(extents[roles.key], chunk)
        for stage, _ in first[:_KEPT]:
            yield candidate(f"fused, split {parts}", (stage, second), (pair[0].output,), device, parts)


def _matrix_stages(op: TensorOp, roles: ChainRoles, one: Instruction, device: Device) -> list[Stage]:
    """Those whose accumulators and fragments stay in registers."""
    make = lambda tile: matrix_chain_stage(op, roles, tile, one, device)
    for least in (1, 2):  # of copies through registers two groups have half each
        stages = assembled(list(_matrix_tiles(op, roles, one, device, least)), make, "fused")
        fitting = [it for it in stages if registers_of_chain(it, device) <= registers_of_thread(it, device)]
        if fitting or one.layout != QUAD_PAIRS:
            break
    return fitting


def _matrix_tiles(
    op: TensorOp, roles: ChainRoles, one: Instruction, device: Device, least: int
) -> Iterator[MatrixChainTile]:
    """Blocks of a few execution widths; no more rows and keys at a time than there are, but for the smallest: of
    ``least`` groups."""
    extents = op.extents()
    rows, keys = extents[roles.rows], extents[roles.key]
    threads = device.limits.threads_per_block
    beside = _GROUPS_BESIDE if one.is_asynchronous else _GROUPS
    blocks = (one.k, *_BLOCKS_OF_KEYS) if one.layout == QUAD_PAIRS else _BLOCKS_OF_KEYS
    for groups, tiles, block in product(beside, _ROW_TILES, blocks):
        few_rows = groups * tiles == least or groups * tiles * one.m < 2 * rows
        few_keys = block == blocks[0] or block < 2 * keys
        if few_rows and few_keys and groups * one.lanes <= threads:
            for depth, held in product((1, 2), (False, True)):
                tile = MatrixChainTile(groups, tiles, block, depth, held, one.m)
                if not keys_problem(tile, one):
                    yield tile


def _instruction(device: Device) -> Instruction | None:
    """The widest vectors of float32."""
    found = [one for one in device.instructions if one.dtype == one.accumulator_dtype == "float32" and one.k == 1]
    wide = [one for one in found if one.lanes > 1 and one.m == 1]
    return max(wide, key=lambda one: one.lanes) if wide else None


def _tiles(op: TensorOp, roles: ChainRoles, instruction: Instruction, device: Device) -> Iterator[ChainTile]:
    """Tiles whose registers suffice: the most keys and columns side by side for each number of vectors."""
    extents = op.extents()
    limit = device.limits.registers_per_thread
    keys, columns, rows = extents[roles.key], extents[roles.column], extents[roles.rows]
    for vectors in _VECTORS:
        if vectors > 1 and (vectors - 1) * instruction.lanes >= rows:
            continue  # a vector fewer holds all rows
        fitting = [side for side in _SIDE_BY_SIDE if registers_of(side, side, vectors) <= limit]
        for inner_keys in _largest(fitting, keys):
            for side in _largest(fitting, columns):
                for block in _KEYS:
                    if block == _KEYS[0] or block < 2 * keys:
                        held = -(-block // inner_keys) * inner_keys
                        yield ChainTile(instruction.lanes, vectors, held, inner_keys, side)


def _largest(sides: list[int], extent: int) -> list[int]:
    """The two largest that the extent has, and the largest that divides it."""
    within = [side for side in sides if side <= extent]
    even = [side for side in within if extent % side == 0]
    return sorted({*within[-2:], *even[-1:]})
