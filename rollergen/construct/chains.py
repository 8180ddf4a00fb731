"""Construction of chains of two contractions (attention) on devices whose blocks are one thread."""

from __future__ import annotations

from collections.abc import Iterator

from rollergen.construct.candidate import Candidate, assembled, candidates
from rollergen.construct.ledger import Ledger
from rollergen.expr.tensor_op import TensorOp
from rollergen.hal.spec import Device, Instruction
from rollergen.program.assemble.chain import chain_stage
from rollergen.program.chains import ChainRoles, ChainTile, chain_roles
from rollergen.program.model import registers_of
from rollergen.tile.rules import AlignmentRules

_VECTORS = (1, 2, 3, 4)
_SIDE_BY_SIDE = (1, 2, 3, 4, 6, 8, 12, 16)
_KEYS = (16, 32, 64, 128, 256)


def runs_chains(device: Device) -> bool:
    """Whether chains are one stage on the device: where a block is one thread, whose instructions have lanes."""
    return _instruction(device) is not None and not device.kind.threads and device.kind.machine is None


def chain_candidates(op: TensorOp, device: Device, rules: AlignmentRules, ledger: Ledger) -> Iterator[Candidate]:
    """A candidate of each tile whose rows fill whole vectors and whose accumulators stay in registers."""
    roles, instruction = chain_roles(op), _instruction(device)
    if roles is None or instruction is None or not runs_chains(device):
        return
    make = lambda tile: chain_stage(op, roles, tile, instruction)
    stages = assembled(list(_tiles(op, roles, instruction, device)), make, "fused")
    yield from candidates("fused", stages, device)


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
