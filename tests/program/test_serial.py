"""Programs as JSON: nothing is lost, nothing foreign comes in."""

import copy
import json
from dataclasses import fields, replace

import pytest
from hypothesis import HealthCheck, given, settings

import rollergen as rg
from rollergen.emit import emit
from rollergen.errors import ProgramError
from rollergen.expr.values import Const, Load
from rollergen.program.node_types import NODES, SIGNATURES, Node, OneOf, Perhaps, Whole
from rollergen.program.rprogram import Loop, RProgram, Stage
from rollergen.program.serial import DEEPEST, FORMAT, from_json, from_text, to_json, to_text
from rollergen.program.supersteps import Superstep
from tests.program.random_programs import matmuls
from tests.programs import ALL

DEVICES = ("cpu", "v100", "mi50", "ipu")


def x(*shape, dtype="float32", name="x", constant=False):
    return rg.tensor(name, shape, dtype, constant=constant)


EXPRESSIONS = {
    "matmul of weights": lambda: rg.ops.matmul(x(33, 65), x(65, 130, name="w", constant=True)),
    "convolution": lambda: rg.ops.conv2d(x(1, 5, 9, 11), x(7, 5, 3, 3, name="w"), padding=1, stride=2),
    "softmax": lambda: rg.ops.softmax(x(12, 77)),
    "argmax": lambda: rg.ops.argmax(x(12, 77), 1),
    "max pool, filled with -inf": lambda: rg.ops.max_pool2d(x(1, 3, 12, 12), 3, stride=2, padding=1),
    "gelu": lambda: rg.ops.gelu(x(1003)),
    "upsample, divided axes": lambda: rg.ops.upsample_nearest(x(1, 2, 5, 7), scale_factor=2),
    "int8 matmul": lambda: rg.ops.matmul(x(32, 32, dtype="int8"), x(32, 32, dtype="int8", name="w")),
    "two stages": lambda: rg.ops.softmax(rg.ops.matmul(x(24, 16), x(16, 40, name="w"))),
}


def assert_round_trip(program):
    text = to_text(program)
    back = from_text(text)
    assert back == program
    assert to_text(back) == text
    return back


@pytest.mark.parametrize("name", ALL)
def test_hand_written_programs_come_back_equal(name):
    assert_round_trip(ALL[name])


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(matmuls())
def test_random_programs_come_back_equal(program):
    assert_round_trip(program)


@pytest.mark.every(11)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", EXPRESSIONS)
def test_constructed_programs_come_back_equal_and_give_the_same_source(name, device):
    spec = rg.load_device(device)
    for program in rg.construct(EXPRESSIONS[name](), spec, 3):
        assert emit(assert_round_trip(program), spec) == emit(program, spec)


def test_numbers_keep_their_type_and_sign():
    values = (0, 0.0, -0.0, False, True, 1, 1.0, float("inf"), float("-inf"), 1e-45, 2**62, 0.1)
    for value in values:
        back = _constant_of(from_text(to_text(_with_constant(value))))
        assert (type(back), repr(back)) == (type(value), repr(value))
    assert repr(_constant_of(from_text(to_text(_with_constant(float("nan")))))) == "nan"


def _with_constant(value):
    program = ALL["relu"]
    stage = program.stages[0]
    return replace(
        program, stages=(replace(stage, op=replace(stage.op, result=Const(value, "float32"))),)
    )


def _constant_of(program):
    return program.stages[0].op.result.value


def test_limits_stand_with_the_fields_they_bind():
    assert dict(NODES[Loop])["stride"] == Whole(1)
    assert dict(NODES[Loop])["kind"] == OneOf(("grid", "group", "thread", "serial", "unroll", "lane"))
    assert dict(NODES[Stage])["superstep"] == Perhaps(Node((Superstep,)))
    assert "source" not in dict(NODES[Load])  # of no cut stage


def test_shared_nodes_stand_once():
    rows = to_json(ALL["cpu_softmax"])["nodes"]
    assert len({json.dumps(row) for row in rows}) == len(rows)


def test_a_long_chain_nests_no_deeper_than_a_short_one():
    value = x(64)
    for _ in range(100):
        value = rg.ops.relu(value)
    program = rg.construct(value, "v100", 1)[0]
    text = to_text(program)
    assert from_text(text) == program
    assert _nesting(text) == _nesting(to_text(ALL["relu"]))


def _nesting(text):
    deepest = depth = 0
    for letter in text:
        depth += (letter in "[{") - (letter in "]}")
        deepest = max(deepest, depth)
    return deepest


def test_an_uncut_expression_in_a_program_is_refused():
    program = ALL["relu"]
    stage = program.stages[0]
    load = stage.op.loads()[0]
    op = replace(stage.op, result=replace(load, source=object()))
    with pytest.raises(ProgramError, match="loads X from an expression; expected cut stages"):
        to_json(replace(program, stages=(replace(stage, op=op),)))


def test_foreign_objects_in_a_program_are_refused():
    with pytest.raises(ProgramError, match=r"holds 3 \(int\); expected one of FloorDiv"):
        to_json(RProgram("cpu", (), (), (3,)))


def _rows():
    return to_json(ALL["cpu_matmul"])


def _changed(kind, field, value):
    """A valid program's JSON with one field of the first row of a kind replaced."""
    data = copy.deepcopy(_rows())
    position = 1 + [name for name, _ in NODES[SIGNATURES[kind]]].index(field)
    next(row for row in data["nodes"] if row[0] == kind)[position] = value
    return data


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (None, 'is None; expected an object with "format" and "nodes"'),
        ({"format": 3}, 'is an object of 1; expected an object with "format" and "nodes"'),
        ({"format": FORMAT + 1, "nodes": []}, f"format is {FORMAT + 1}; this version reads 1 to {FORMAT}"),
        ({"format": True, "nodes": []}, "format is True; this version reads 1 to"),
        ({"format": 1, "nodes": [["Compute"]]}, "a Compute with 0 fields; expected 4: instruction, lanes, factors, producer"),
        ({"format": 1, "nodes": [["Loop", "i", 4]]}, "a Loop with 2 fields; expected 4: axis, extent, stride, kind"),
        ({"format": FORMAT, "nodes": []}, "nodes is a list of 0; expected a list of 1 to"),
        ({"format": FORMAT, "nodes": [["Popen", "sh"]]}, r"nodes\[0\] is a list of 2; expected a list that starts with"),
        ({"format": FORMAT, "nodes": [[]]}, r"nodes\[0\] is a list of 0"),
        ({"format": FORMAT, "nodes": [[["Loop"]]]}, r"nodes\[0\] is a list of 1"),
        ({"format": FORMAT, "nodes": [["Compute", "fma", 1, "", False]]}, "expected the last row to be RProgram"),
        ({"format": FORMAT, "nodes": [["Compute", "fma"]]}, "a Compute with 1 fields; expected 4: instruction, lanes, factors, producer"),
        ({"format": FORMAT, "nodes": [["Index", [[0, 1]], 0]]}, r"terms of Index is 0; expected the number of an earlier row"),
        (_changed("Loop", "kind", "warp"), r"kind of Loop is 'warp'; expected one of grid, group"),
        (_changed("Loop", "extent", -1), "extent of Loop is -1; expected an integer of at least 0"),
        (_changed("Loop", "extent", True), "extent of Loop is True; expected an integer"),
        (_changed("Loop", "extent", 2**80), "expected an integer of at least 0"),
        (_changed("Loop", "axis", 4), "axis of Loop is 4; expected a text"),
        (_changed("Loop", "axis", "i" * 2000), "expected a text of at most 1000 characters"),
        (_changed("FloorDiv", "divisor", 0), "divisor of FloorDiv is 0; expected an integer of at least 2"),
        (_changed("Buffer", "dtype", "float8"), "dtype of Buffer is 'float8'; expected one of float16"),
        (_changed("Buffer", "shape", 8), "shape of Buffer is 8; expected a list"),
        (_changed("Buffer", "constant", 1), "constant of Buffer is 1; expected true or false"),
        (_changed("Load", "buffer", -1), "buffer of Load is -1; expected the number of an earlier row, a Buffer"),
        (_changed("Load", "buffer", 10**6), "expected the number of an earlier row, a Buffer"),
        (_changed("Load", "fill", [0]), "fill of Load is a list of 1; expected a number"),
        (_changed("Load", "fill", "zero"), "fill of Load is 'zero'; expected a number"),
        (_changed("Load", "fill", float("inf")), "fill of Load is inf; expected a number"),
        (_changed("Index", "terms", [["i"]]), "terms of Index has a list of 1; expected a pair"),
        (_changed("Binary", "op", "__import__"), "op of Binary is '__import__'; expected one of add"),
    ],
)
def test_what_is_no_program_is_refused_with_its_row_and_field(data, says):
    with pytest.raises(ProgramError, match=says):
        from_json(data)


def test_a_row_cannot_refer_to_itself_or_to_a_later_one():
    data = _rows()
    at = next(n for n, row in enumerate(data["nodes"]) if row[0] == "Binary")
    data["nodes"][at][2] = at
    with pytest.raises(ProgramError, match=rf"a of Binary is {at}; expected the number of an earlier row"):
        from_json(data)


def _doubled(times):
    """x + x, of it the sum with itself, and so on."""
    rows = [["Var", "v", "float32"]]
    rows += [["Binary", "add", n, n, "float32"] for n in range(times)]
    return {"format": FORMAT, "nodes": rows}


def test_few_rows_that_unfold_to_very_many_nodes_are_refused():
    with pytest.raises(ProgramError, match="expected at most 2000000, 400 deep"):
        from_json(_doubled(60))


def test_a_tower_of_nodes_is_refused():
    rows = [["Var", "v", "float32"], *(["Unary", "neg", n, "float32"] for n in range(DEEPEST + 1))]
    with pytest.raises(ProgramError, match=f"{DEEPEST + 1} deep; expected at most 2000000, {DEEPEST} deep"):
        from_json({"format": FORMAT, "nodes": rows})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is not JSON"),
        ('{"format": 3, "nodes": [', "is not JSON"),
        ("[" * 100_000, "not JSON|nests too deep"),
        ("1" * 10_000, "is not JSON"),
        ("[NaN]", "expected an object"),
    ],
)
def test_texts_that_are_no_json_of_a_program_are_refused(text, says):
    with pytest.raises(ProgramError, match=says):
        from_text(text)


def test_any_cut_or_damage_of_a_text_gives_a_program_or_a_named_error():
    text = to_text(ALL["relu"])
    for at in range(0, len(text), 7):
        for damaged in (text[:at], text[:at] + "9" + text[at + 1 :], text[:at] + '"' + text[at:]):
            try:
                assert isinstance(from_text(damaged), RProgram)
            except ProgramError as error:
                assert str(error)


def test_a_stage_keeps_every_field():
    stage = assert_round_trip(ALL["cpu_matmul"]).stages[1]
    for field in fields(Stage):
        assert getattr(stage, field.name) == getattr(ALL["cpu_matmul"].stages[1], field.name)


@pytest.mark.parametrize("name", ["matmul of weights", "softmax"])
def test_rows_of_earlier_formats_lack_fields_that_were_added_since(name):
    for made in rg.construct(EXPRESSIONS[name](), "v100", 3):
        program = replace(made, launches=())
        data = to_json(program)
        since = ("superstep", "prefetch", "inner", "winograd")
        added = {
            "Stage": since, "RProgram": ("tile_mappings", "launches"), "Buffer": ("packs",), "Copy": ("boxes", "every", "apart"),
            "Compute": ("producer",), "BlockOrder": ("launched", "cluster", "descending"),
        }  # fmt: skip
        for row in data["nodes"]:
            names = [field for field, _ in NODES[SIGNATURES[row[0]]]]
            for field in added.get(row[0], ()):
                del row[1 + names.index(field)]
                names.remove(field)
        assert from_json({**data, "format": 1}) == program
        with pytest.raises(ProgramError, match="fields; expected"):
            from_json(data)
