"""What takes read in the next row is prefetched while one is read: where that helps, what is asked for, what it costs."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rollergen as rg
from rollergen.construct import construct
from rollergen.emit import emit
from rollergen.errors import ProgramError
from rollergen.expr.canonical import canonicalize
from rollergen.program.check import check
from rollergen.program.interpreter import interpret
from rollergen.program.model.costs import costs_of
from rollergen.program.model.facts import facts_of
from rollergen.program.model.limiters.issue import instructions_of
from rollergen.program.model.nest import nest_of
from rollergen.program.model.work import work_of
from rollergen.program.rprogram import SERIAL
from rollergen.program.serial import from_text, to_text
from tests.agreement.readers import device
from tests.lower.guard_pages import flush_array
from tests.lower.harness import runtime
from tests.program.hand_devices import AVX512

ASKED = r"__builtin_prefetch\(\(const void \*\)\(size_t\)\((.*?)\), 0, 2\);"


def along_rows(rows=512, columns=1024, count=256):
    """The same places of each row."""
    x, ids = rg.tensor("x", (rows, columns)), rg.tensor("ids", (count,), "int64")
    return rg.ops.index_select(x, 1, ids)


def of_rows(rows=4096, columns=1024, count=1024):
    """Rows that lie anywhere."""
    return rg.ops.embedding(rg.tensor("ids", (count,), "int64"), rg.tensor("x", (rows, columns)))


def asking(expression):
    """A program of one of the candidates whose blocks have several rows, and the same without."""
    made = [one.program for one in construct(canonicalize(expression), AVX512, top_k=8)]
    found = next(one for one in made if one.stages[0].prefetch >= 0)
    return found, replace(found, stages=(replace(found.stages[0], prefetch=-1),))


def test_every_second_lanes_place_in_the_next_row_is_asked_for():
    made, _ = asking(along_rows())
    (stage,) = made.stages
    assert stage.loops[stage.prefetch].kind == SERIAL
    asked = re.findall(ASKED, emit(made, AVX512).text)
    assert len(asked) == stage.loops[-1].extent // 2
    assert all(one.endswith(" + 1024") for one in asked), "a row of x further on"


@pytest.mark.parametrize(("columns", "lines"), [(1024, 4), (1040, 1)], ids=["four vectors at once", "one vector"])
def test_each_line_of_a_row_is_asked_for_where_the_next_id_says(columns, lines):
    text = emit(asking(of_rows(columns=columns))[0], AVX512).text
    asked = re.findall(rf"__builtin_prefetch\(.*?x \+ (\w+)\*{columns} \+ \w+\*\d+(?: \+ (\d+))?\), 0, 2\);", text)
    assert [int(further or 0) for _, further in asked] == [16 * n for n in range(lines)]
    (row,) = {row for row, _ in asked}
    assert len(re.findall(rf"{row} = ids\w*\[.*1\];", text)) == 1, "the next row's id is read once"


@pytest.mark.parametrize(
    "expression",
    [
        along_rows(8, 64, 32),
        rg.ops.gather(rg.tensor("x", (1024, 1024)), 1, rg.tensor("ids", (1024, 256), "int64")),
        rg.ops.gather(rg.tensor("x", (1024, 1024)), 0, rg.tensor("ids", (256, 1024), "int64")),
        rg.ops.relu(rg.tensor("x", (1024, 1024))),
    ],
    ids=["a small table", "other ids in each row", "a line for each element", "no take"],
)
def test_elsewhere_nothing_is_asked_for(expression):
    made = [one.program for one in construct(canonicalize(expression), AVX512, top_k=8)]
    assert all(stage.prefetch == -1 for one in made for stage in one.stages)


@pytest.mark.parametrize("name", ["v100", "mi50"])
def test_gpus_have_other_blocks_in_the_meantime(name):
    made = construct(canonicalize(along_rows()), device(name), top_k=4)
    assert all(stage.prefetch == -1 for one in made for stage in one.program.stages)


def test_values_and_traffic_do_not_change_and_the_program_is_read_back_with_the_loop():
    made, without = asking(along_rows(67, 257, 40))
    random = np.random.default_rng(0)
    inputs = {"x": random.random((67, 257), np.float32), "ids": random.integers(-257, 257, 40)}
    one, other = (interpret(program, inputs, AVX512) for program in (made, without))
    (name,) = one.outputs
    assert one.outputs[name].tobytes() == other.outputs[name].tobytes()
    assert repr(one.traffic) == repr(other.traffic)
    assert from_text(to_text(made)) == made != without


@settings(max_examples=6, deadline=None)
@given(
    rows=st.integers(16, 70), columns=st.integers(300, 400) | st.sampled_from((320, 384)), count=st.integers(1, 40),
    along=st.booleans(), seed=st.integers(0, 99),
)  # fmt: skip
def test_results_are_right_and_nothing_behind_the_ids_is_read(rows, columns, count, along, seed):
    expression = along_rows(rows, columns, count) if along else of_rows(rows, columns, count)
    made = construct(canonicalize(expression), AVX512, top_k=8)
    random = np.random.default_rng(seed)
    extent = columns if along else rows
    x, ids = random.random((rows, columns), np.float32), random.integers(-extent, extent, count)
    want = np.take(x, ids % extent, 1 if along else 0)
    for one in made:
        assert one.program.stages[0].prefetch == -1 or one.program.stages[0].threads == 1
        assert np.array_equal(run_beside_forbidden_pages(one.program, {"x": x, "ids": ids}), want)


def run_beside_forbidden_pages(program, inputs):
    arrays = {buffer.name: flush_array(buffer.shape, buffer.dtype, True) for buffer in program.buffers()}
    for name, values in inputs.items():
        arrays[name][...] = values
    source, on = emit(program, AVX512), runtime()
    module = on.compile(source.text)
    for launch in source.launches:
        kernel = module.kernel(launch.entry)
        on.set_arguments(kernel, [on.wrap(arrays[name].reshape(-1)) for name in launch.arguments])
        on.launch(kernel, launch.blocks, launch.threads)
        on.finish()
    return arrays[program.outputs[0].name]


def test_each_place_costs_two_instructions():
    costs = costs_of(AVX512)
    counts = []
    made = asking(along_rows())
    for one in made:
        (stage,) = one.stages
        nest = nest_of(stage, facts_of(stage.op, stage.kept_rows), AVX512)
        counts.append(instructions_of(nest, AVX512, costs, work_of(nest, AVX512, costs)))
    points = 512 * 256 / made[0].stages[0].blocks
    assert counts[0] - counts[1] == 2 * points / 2


def test_a_stage_that_takes_nothing_is_refused():
    (one,) = construct(canonicalize(rg.ops.relu(rg.tensor("x", (64, 1024)))), AVX512, top_k=1)
    (stage,) = one.program.stages
    rows = [p for p, loop in enumerate(stage.loops) if loop.kind == SERIAL]
    with pytest.raises(ProgramError, match=r"expected one thread, .* and a take that reads elsewhere"):
        check(replace(one.program, stages=(replace(stage, prefetch=rows[0]),)), AVX512)


def test_the_explanation_tells_what_is_fetched():
    kernel = rg.build(of_rows(), device("cpu"), profile=False, cache=False)
    asks = any(one.program.stages[0].prefetch >= 0 for one in kernel.candidates)
    best = kernel.program.stages[0].prefetch >= 0
    assert asks and ("what the next row takes is fetched while this one is computed" in str(kernel.explain())) == best
