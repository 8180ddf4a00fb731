"""The ledger: what constraints rejected is counted, told, and named where nothing is left."""

from dataclasses import replace

import numpy as np
import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.construct.choose import choice
from rollergen.construct.ledger import Account, waste_of
from rollergen.construct.notes import construction_notes
from rollergen.construct.options import BuildOptions
from rollergen.errors import ConstructionError
from rollergen.expr.canonical import canonicalize
from rollergen.program.interpreter import interpret
from rollergen.space.rules import TENSOR_SHAPE
from rollergen.tile.rules import AlignmentRules
from tests.program.hand_devices import AVX512, TURING

DEVICES = [AVX512, TURING]


def matmul(m, n, k, dtype="float32"):
    return canonicalize(rg.ops.matmul(rg.tensor("A", (m, k), dtype), rg.tensor("B", (k, n), dtype)))


def account(graph, device, options=BuildOptions()):
    return choice(graph.tensor_ops[0], device, options.rules, 10).account


@pytest.mark.parametrize("device", DEVICES, ids=lambda d: d.name)
def test_no_more_tiles_are_rejected_than_considered(device):
    found = account(matmul(100, 72, 90), device)
    assert found.considered > 500 and 0 < sum(count for _, count in found.rejections) < found.considered


def test_each_limit_of_the_device_counts_its_own():
    graph = matmul(4096, 4096, 4096)
    usual = dict(account(graph, TURING).rejections)
    few = replace(TURING, limits=replace(TURING.limits, threads_per_block=64))
    assert dict(account(graph, few).rejections)["threads of a block"] > usual["threads of a block"]
    narrow = replace(TURING, limits=replace(TURING.limits, block_memory_bytes=2048))
    assert dict(account(graph, narrow).rejections)["block memory"] > usual.get("block memory", 0)


def test_a_rule_that_is_off_rejects_nothing():
    graph, off = matmul(100, 72, 90), BuildOptions(alignment=AlignmentRules(execution_unit=False, transaction=False))
    assert "execution unit" in dict(account(graph, TURING).rejections)
    assert not {"execution unit", "memory transaction"} & set(dict(account(graph, TURING, off).rejections))


@pytest.mark.parametrize("device", DEVICES, ids=lambda d: d.name)
@pytest.mark.parametrize(
    "expression",
    [
        lambda: rg.ops.matmul(rg.tensor("A", (991, 983)), rg.tensor("B", (983, 997))),
        lambda: rg.ops.relu(rg.tensor("X", (1009,))),
        lambda: rg.ops.softmax(rg.tensor("X", (7, 1009))),
        lambda: rg.ops.sum(rg.tensor("X", (7, 1009)), 1),
    ],
    ids=["matmul", "relu", "softmax", "sum"],
)
def test_limits_that_admit_nothing_name_the_constraint_and_the_nearest_that_admits_something(expression, device):
    graph = canonicalize(expression())
    for options, said in ((BuildOptions(padding=False), "padding=False"), (BuildOptions(epsilon=0.0), "epsilon=0")):
        try:
            ranked = construct(graph, device, options)
        except ConstructionError as error:
            text = str(error)
        else:
            assert all(waste_of(stage) == 0 for one in ranked for stage in one.program.stages)
            continue
        assert f"within {said}: " in text and "tensor shape" in text, text
        nearest = float(text.rsplit("epsilon=", 1)[1].split(" ")[0])
        admitted = construct(graph, device, BuildOptions(epsilon=nearest))
        assert all(waste_of(stage) <= nearest for one in admitted for stage in one.program.stages)
        with pytest.raises(ConstructionError):
            construct(graph, device, BuildOptions(epsilon=0.98 * nearest))


def test_a_matmul_of_primes_is_impossible_on_whole_warps_without_padding():
    with pytest.raises(ConstructionError, match=r"turing: no program for .* within padding=False: [\d,]+ tiles"):
        construct(matmul(991, 997, 983), TURING, BuildOptions(padding=False))


@pytest.mark.parametrize("device", DEVICES, ids=lambda d: d.name)
def test_without_padding_tiles_divide_the_axes(device):
    for one in construct(matmul(1024, 768, 512), device, BuildOptions(padding=False)):
        assert not any(stage.guards for stage in one.program.stages)


def test_a_device_too_small_for_any_tile_says_how_much_one_needs():
    none = replace(TURING, limits=replace(TURING.limits, block_memory_bytes=1))
    with pytest.raises(ConstructionError, match=r"block memory .*a device with \d+ bytes of block memory admits one"):
        construct(matmul(512, 512, 512), none)


def test_the_ledger_is_part_of_the_explanation():
    graph = matmul(100, 72, 90)
    assert "tiles considered; rejected: " in construction_notes(graph, TURING)[0]
    kernel = rg.build(rg.ops.matmul(rg.tensor("A", (64, 64)), rg.tensor("B", (64, 64))), "v100", profile=False)
    assert "tiles considered; rejected: " in kernel.explain()
    assert any("tiles considered" in line for line in kernel.explain(as_dict=True)["construction"])


def test_an_account_reads_as_a_sentence():
    one = Account(1404, (("registers", 1300), (TENSOR_SHAPE.name, 12)), least_waste=0.02706)
    assert one.text() == "1,404 tiles considered; rejected: registers 1,300, tensor shape 12"
    assert one.relaxation() == "epsilon=0.0271 (and padding=True) admits one"
    assert Account(3, ()).text().endswith("rejected: none") and not Account(3, ()).relaxation()


@pytest.mark.parametrize(("value", "dtype"), [(np.nan, "float32"), (5, "float32"), (7, "int8")])
def test_no_result_depends_on_the_pad_value(value, dtype):
    a, b = rg.tensor("A", (67, 19), dtype), rg.tensor("B", (61, 19), dtype)
    graph = canonicalize(rg.ops.matmul(a, b, transpose_b=True))  # lanes along n need B packed
    random = np.random.default_rng(0)
    arrays = {b.name: random.integers(-3, 4, b.shape).astype(b.dtype) for b in graph.inputs}
    want = arrays["A"].astype(np.int64) @ arrays["B"].astype(np.int64).T
    packed = 0
    for one in construct(graph, AVX512, BuildOptions(pad_value=value)):
        run = interpret(one.program, arrays, AVX512)
        assert np.array_equal(next(iter(run.outputs.values())), want)
        for name, panels in run.temporaries.items():
            if "packed" in name:
                packed += 1
                assert np.array_equal(
                    np.ravel(panels)[-1], np.array(value, panels.dtype), equal_nan=panels.dtype.kind == "f"
                )
    assert packed
