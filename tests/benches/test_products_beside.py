"""Machine code of products laid side by side: what is counted of a listing, and who is absent."""

import pytest

from benches import bench_products_beside as beside
from benches.peers.offline import COMPILERS, Offline, Product

PRODUCT = Product(512, beside.TILE, "float16")


def listing(products, width, spill=""):
    """A kernel with a loop that multiplies and one that copies."""
    lines = [
        ".section .text.k",
        ".L_x_0:",
        *products * [f" /*0000*/ HGMMA.64x{width}x16.F32 R24, gdesc[UR24].tnspB, R24 ;"],
        " /*0010*/ UIADD3 UR4, UR4, 0x1, URZ ;",
        " /*0020*/ @P0 BRA `(.L_x_0) ;",
        ".L_x_1:",
        " /*0030*/ UTMALDG.2D [UR8], [UR6] ;",
        " /*0040*/ @P0 BRA `(.L_x_1) ;",
        spill or " /*0050*/ STG.E.128 [R2], R4 ;",
    ]
    return "\n".join(lines)


@pytest.mark.parametrize(("products", "width", "steps"), [(4, 256, 1), (8, 128, 1), (16, 256, 4), (4, 128, 0.5)])
def test_a_step_is_of_the_tile_whatever_shape_its_products_have(monkeypatch, products, width, steps):
    monkeypatch.setattr(beside, "disassembled", lambda code: listing(products, width))
    row = beside.row(PRODUCT, Offline(beside.OURS, "", b""))
    assert (row["steps"], row["instructions"]) == (steps, (products + 2) / steps)
    assert (row["copying"], row["local"], row["stores"]) == (2, 0, {"STG.128": 1})


def test_more_than_the_aim_and_each_spill_are_missed(monkeypatch):
    monkeypatch.setattr(beside, "disassembled", lambda code: listing(4, 256))
    row = beside.row(PRODUCT, Offline(beside.OURS, "", b""))
    monkeypatch.setattr(beside, "disassembled", lambda code: listing(4, 256, " /*0050*/ STL [R1], R4 ;"))
    spilling = beside.row(PRODUCT, Offline(beside.OURS, "", b""))
    long = {**row, "instructions": beside.MOST + 1}
    cases = ([row], [row, long], [row, spilling], [{**long, "kernel": "Triton"}])
    assert [aim.met for rows in cases for aim in beside.aims(rows)] == [True, False, False, True]


def test_a_kernel_without_products_of_warpgroups_is_an_error(monkeypatch):
    monkeypatch.setattr(beside, "disassembled", lambda code: listing(0, 256))
    with pytest.raises(SystemExit, match=r"Triton for Product.* has no HGMMA"):
        beside.row(PRODUCT, Offline("Triton", "", b""))


@pytest.mark.parametrize("name", COMPILERS)
@pytest.mark.parametrize("dtype", beside.DTYPES)
def test_other_libraries_products_compile_without_a_gpu_and_spill_nothing(name, dtype):
    absent, made = COMPILERS[name]
    if absent() is not None:
        pytest.skip(absent())
    for kernel in made(Product(512, beside.TILE, dtype)):
        row = beside.row(PRODUCT, kernel)
        assert row["steps"] == 1 and row["local"] == 0 and row["instructions"] < 120
