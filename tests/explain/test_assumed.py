"""Explanations say how limiters become the predicted time, and which assumed figures move it."""

import re
from dataclasses import replace

import pytest

import rollergen as rg
from rollergen.explain.assumed import assumed_figures, joining
from rollergen.hal.changes import changed
from rollergen.hal.load import load_device

A, B = rg.tensor("A", (256, 256)), rg.tensor("B", (256, 256))


@pytest.mark.parametrize("name", ["v100", "mali-g71", "cortex-a53", "ipu"])
@pytest.mark.parametrize("expression", [rg.ops.matmul(A, B), rg.ops.softmax(A, 1)], ids=["matmul", "softmax"])
def test_assumed_figures_that_move_the_time_are_of_that_kind(name, expression):
    device = load_device(name)
    (program,) = rg.construct(expression, device, top_k=1)
    found = assumed_figures(program, device)
    kinds = {path.rpartition(".")[2]: kind for path, (kind, _) in device.provenance if kind == "assumed"}
    assert found and all(kinds[path.rpartition(".")[2]] == "assumed" for path in found)


def test_a_figure_that_is_changed_by_hand_is_assumed_where_it_is_used():
    device = load_device("v100")
    guessed = changed(device, {"dram.bandwidth_gb_s": 700, "copy_to_gb_s": 10})
    (program,) = rg.construct(rg.ops.relu(A), guessed, top_k=1)
    assert "dram.bandwidth_gb_s" in assumed_figures(program, guessed)
    assert "copy_to_gb_s" not in assumed_figures(program, guessed)
    assert "dram.bandwidth_gb_s" not in assumed_figures(program, device)


def test_the_shape_of_an_instruction_is_no_assumed_figure():
    """A multiply-add of 2 x 1 x 1 is another instruction, of which the model knows nothing."""
    device = load_device("v100")
    assumed = {f"instructions[0].{key}": ("assumed", "begun from another device") for key in ("m", "n", "k", "per_clock")}
    begun = replace(device, provenance=tuple({**dict(device.provenance), **assumed}.items()))
    (program,) = rg.construct(rg.ops.matmul(A, B), begun, top_k=1)
    found = assumed_figures(program, begun)
    assert "fma.per_clock" in found and not {"fma.m", "fma.n", "fma.k"} & set(found)


def test_only_ways_of_joining_that_occur_are_told():
    assert joining({"adds"}) == "time = sum of adds (docs/model.md)"
    assert joining({"overlaps", "in series", "adds"}) == (
        "unit = (sum of overlaps^p, less what two of them count)^(1/p), time = (unit^m + (largest in series)^m)^(1/m) + "
        "sum of adds with exponents of the spec (docs/model.md)"
    )
    assert "(sum of takes turns)^p" in joining({"overlaps", "takes turns"})


def test_the_long_explanation_has_a_line_for_each():
    kernel = rg.build(rg.ops.matmul(A, B), "v100", profile=False)
    lines = kernel.explain().splitlines()
    assert sum(line.startswith("  limiters join: ") for line in lines) == 1
    (assumed,) = (line for line in lines if "assumed" in line)
    assert re.fullmatch(r"  figures of the spec that are assumed and move this time: [\w., ]+", assumed)
    assert "launch_us" in assumed and kernel.explain(as_dict=True)["assumed"] == assumed.rpartition(": ")[2].split(", ")
    assert "assumed" not in kernel.explain(brief=True)


def test_only_the_whole_explanation_asks_what_takes_long_and_once():
    """How construction went is told by constructing again; assumed figures by a prediction for each."""
    asked = []
    outcomes = rg.build(rg.ops.relu(A), "v100", profile=False, cache=False).candidates
    kernel = rg.Kernel(load_device("v100"), outcomes, outcomes[0], growth=lambda: asked.append(1) or ("grown so",))
    assert "grown so" not in kernel.explain(brief=True) and not asked
    assert "grown so" in kernel._repr_html_() and len(asked) == 1
    assert kernel.explain().count("grown so") == 1 and kernel.explain(as_dict=True)["construction"] == ["grown so"]
    assert len(asked) == 1
