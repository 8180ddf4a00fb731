"""What the runner-up decides otherwise is told, in a few words."""

import rollergen as rg


def built(dtype, device="a100"):
    a, b = (rg.tensor(name, (1024, 1024), dtype) for name in "AB")
    return rg.build(rg.ops.matmul(a, b), device, profile=False, cache=False)


def test_a_runner_up_of_the_same_tile_is_told_apart_in_brief_too():
    kernel = built("float16")
    second = kernel.explain(as_dict=True)["runner_up"]
    chosen = next(one for one in kernel.explain(as_dict=True)["candidates"] if one["chosen"])
    assert second["tile"] == chosen["tile"] and second["differs"]
    for brief in (True, False):
        text = kernel.explain(brief=brief)
        assert f"  what differs: {'; '.join(second['differs'])}" in text
    assert all(" against " in one or one.startswith("without: ") or "," not in one for one in second["differs"])


def test_of_another_tile_the_whole_explanation_tells_what_lies_inside():
    kernel = built("float32", "v100")
    differs = kernel.explain(as_dict=True)["runner_up"]["differs"]
    assert "A in shared k 16 x i 64 against k 16 x i 128" in differs and not any(one.startswith("block ") for one in differs)
    assert "what differs" in kernel.explain() and "what differs" not in kernel.explain(brief=True)


def test_what_a_row_keeps_is_told_with_where_it_stays():
    softmax = rg.ops.softmax(rg.tensor("x", (300, 1000)), dim=-1)
    text = {device: rg.build(softmax, device, profile=False, cache=False).explain() for device in ("cpu", "v100")}
    assert "  kept0 stays in the output: exp(x[i0, i1] - r0)\n" in text["cpu"]
    assert "  kept0 stays in registers: x[i0, i1]\n  kept1 stays in registers: exp(x[i0, i1] - r0)\n" in text["v100"]
