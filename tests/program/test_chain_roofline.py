"""The roofline of chains of contractions: bytes counted by hand, predictions above it."""

import pytest

import rollergen as rg
from rollergen.program.model import predict_stage
from rollergen.program.model.roofline import compulsory_bytes, multiply_add_rate, multiply_add_seconds, roofline_seconds

HEADS, DEPTH = 24, 64


def attention(rows: int, keys: int, causal: bool):
    tensors = (rg.tensor(name, (HEADS, length, DEPTH), "float16") for name, length in zip("qkv", (rows, keys, keys), strict=True))
    return rg.ops.scaled_dot_product_attention(*tensors, is_causal=causal)


def chains(device: str, *sizes):
    programs = rg.construct(attention(*sizes), device, 3)
    found = [one.stages[0] for one in programs if len(one.stages) == 1 and one.stages[0].inner is not None]
    assert found
    return found


@pytest.mark.parametrize("device", ["v100", "h200"])
@pytest.mark.parametrize(("rows", "keys", "causal", "seen"), [(192, 192, False, 192), (64, 1024, True, 64)])
def test_a_chain_touches_its_rows_and_the_keys_that_some_row_sees_once(device, rows, keys, causal, seen):
    for stage in chains(device, rows, keys, causal):
        assert compulsory_bytes(stage) == 2 * HEADS * DEPTH * (2 * rows + 2 * seen)


def test_a_chain_multiplies_for_scores_and_for_what_they_weigh():
    stage, device = chains("h200", 192, 192, False)[0], rg.load_device("h200")
    products = multiply_add_seconds(stage, device) * multiply_add_rate(stage, device)
    assert products == pytest.approx(HEADS * 192 * 192 * 2 * DEPTH)


@pytest.mark.parametrize("name", ["v100", "a100", "h200", "rtx4090"])
@pytest.mark.parametrize("causal", [False, True])
def test_no_chain_beats_the_roofline(name, causal):
    device = rg.load_device(name)
    for stage in chains(name, 2048, 2048, causal):
        assert 1 < predict_stage(stage, device).seconds / roofline_seconds(stage, device) < 4
