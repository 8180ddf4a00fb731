"""Tensor maps: their bytes are what NVIDIA's compiler writes for the same fields."""

from __future__ import annotations

import re

import numpy as np
import pytest

from rollergen.hal.compilers import nvrtc
from rollergen.hal.compilers.sass import disassembled
from rollergen.hal.tensor_maps import WORDS, TensorMap

MAP = TensorMap(2, (1001, 2002, 3003, 4004, 5005), (0x7000000010, 0x9000000020, 0x30, 0x40), (64, 128, 3, 2, 1))


def halves(words):
    return [half for word in words for half in (word & 0xFFFFFFFF, word >> 32)]


def test_the_first_word_is_left_for_the_address():
    assert len(MAP.words) == WORDS and MAP.words[0] == 0
    assert all(0 <= word < 1 << 64 for word in MAP.words)


def _replaced(field, value, at=None, width=32):
    place = "" if at is None else f"{at}, "
    return f'asm volatile("tensormap.replace.tile.{field}.shared::cta.b1024.b{width} [%0], {place}{value};" :: "r"(at));'


def _fields(one):
    yield _replaced("rank", len(one.extents) - 1)
    yield from (_replaced("box_dim", side, at) for at, side in enumerate(one.box))
    yield from (_replaced("global_dim", extent, at) for at, extent in enumerate(one.extents))
    yield from (_replaced("global_stride", stride, at, 64) for at, stride in enumerate(one.strides))
    yield from (_replaced("element_stride", 1, at) for at in range(len(one.extents)))
    yield _replaced("elemtype", {1: 0, 2: 1, 4: 2}[one.itemsize])
    yield _replaced("swizzle_mode", 3)


_STORE = re.compile(r"STS \[UR\d+\+0x([0-9a-f]+)\], (R\w+)")
_MOVE = re.compile(r"(?:IMAD\.)?MOV(?:\.U32)? (R\d+),(?: RZ, RZ,)? (-?0x[0-9a-f]+)")
_LOAD = re.compile(r"LDS (R\d+), \[UR\d+\+0x([0-9a-f]+)\]")
_LOGIC = re.compile(r"LOP3\.LUT (R\d+), (R\d+), (-?0x[0-9a-f]+), (R\w+), (0x[0-9a-f]+), !PT")
_HALVES = re.compile(r"HFMA2(?:\.MMA)? (R\d+), -RZ, RZ, (\S+), (\S+) ;")


def _chosen(table, *words):
    """Each bit by its bits of three words (PTX ISA, "lop3")."""
    rows = (table >> sum((word >> bit & 1) << 2 - at for at, word in enumerate(words)) & 1 for bit in range(32))
    return sum(row << bit for bit, row in enumerate(rows))


@pytest.mark.skipif(not nvrtc.is_installed(), reason="no NVRTC")
def test_the_compiler_writes_the_same_fields_into_zeros():
    """The machine code of all fields of a map is followed, in memory of zeros."""
    text = 'extern "C" __global__ void fields(unsigned int at)\n{\n' + "\n".join(_fields(MAP)) + "\n}"
    listing = disassembled(nvrtc.compile_cuda(text, "sm_90a").code)
    if listing is None:
        pytest.skip("no disassembler")
    memory, registers = [0] * 2 * WORDS, {"RZ": 0}
    for line in listing.splitlines():
        if found := _HALVES.search(line):
            registers[found[1]] = int(np.array([found[3], found[2]], np.float16).view(np.uint32)[0])
        elif found := _MOVE.search(line):
            registers[found[1]] = int(found[2], 16) & 0xFFFFFFFF
        elif found := _LOAD.search(line):
            registers[found[1]] = memory[int(found[2], 16) // 4]
        elif found := _LOGIC.search(line):
            words = registers[found[2]], int(found[3], 16) & 0xFFFFFFFF, registers[found[4]]
            registers[found[1]] = _chosen(int(found[5], 16), *words)
        elif found := _STORE.search(line):
            memory[int(found[1], 16) // 4] = registers[found[2]]
    assert memory == halves(MAP.words)
