"""Class and structure are the operator's, however a program computes it."""

from pathlib import Path

import pytest

import rollergen as rg
from rollergen.bench.suites import suite
from rollergen.construct.planning import row_limits
from rollergen.expr.canonical import canonicalize
from rollergen.features import names, vector
from rollergen.features.structure import CLASSES, operator_of

A, B = rg.tensor("A", (96, 128)), rg.tensor("B", (128, 160))
X = rg.tensor("X", (2, 16, 14, 14))
EXPRS = {
    "matmul": (rg.ops.matmul(A, B), "matmul"),
    "linear": (rg.ops.linear(A, rg.tensor("W", (160, 128))), "matmul"),
    "long product": (rg.ops.matmul(rg.tensor("A", (16, 8192)), rg.tensor("B", (8192, 16))), "matmul"),
    "tall product": (rg.ops.matmul(rg.tensor("A", (2048, 1024)), rg.tensor("B", (1024, 64))), "matmul"),
    "1 x 1": (rg.ops.conv2d(X, rg.tensor("W", (24, 16, 1, 1)), stride=2), "matmul"),
    "convolution": (rg.ops.conv2d(X, rg.tensor("W", (24, 16, 3, 3)), padding=1), "convolution"),
    "strided": (rg.ops.conv2d(X, rg.tensor("W", (24, 16, 3, 3)), stride=2, padding=1), "convolution"),
    "depthwise": (rg.ops.depthwise_conv2d(X, rg.tensor("W", (16, 1, 3, 3)), padding=1), "depthwise"),
    "pooling": (rg.ops.max_pool2d(X, 2, 2), "pooling"),
    "rows": (rg.ops.sum(rg.tensor("S", (64, 300)), axis=1), "reduction"),
    "columns": (rg.ops.sum(rg.tensor("S", (64, 300)), axis=0), "reduction"),
    "softmax": (rg.ops.softmax(rg.tensor("S", (64, 300))), "row"),
    "relu": (rg.ops.relu(rg.tensor("S", (64, 300))), "elementwise"),
    "transpose": (rg.ops.t(rg.tensor("S", (64, 300))), "elementwise"),
}
CORE = str(Path(__file__).parents[2] / "benches" / "devices" / "cpu_avx512_2mb.json")
SEVERAL = {CORE: ("tall product", "convolution", "strided", "depthwise", "pooling"), "v100": ("long product",)}
"""What is packed, padded, merged or split on devices whose figures are in files: the host's own choices vary."""
KINDS = {"contraction": "matmul", "transpose": "elementwise"}


def of_graph(expr, device="cpu"):
    return operator_of(canonicalize(expr, rows=row_limits(rg.load_device(device))).tensor_ops)


@pytest.mark.parametrize("device", ["cpu", CORE, "v100"], ids=["host", "core", "v100"])
@pytest.mark.parametrize("name", EXPRS)
@pytest.mark.every(4)
def test_packing_padding_merging_and_splitting_leave_class_and_structure_as_they_are(name, device):
    expr, kind = EXPRS[name]
    target = rg.load_device(device)
    expected = of_graph(expr, device)
    assert expected.kind == kind
    shapes = set()
    for program in rg.construct(expr, target, 40):
        found = operator_of([stage.op for stage in program.stages])
        assert (found.kind, found.structure) == (kind, expected.structure)
        shapes.add(tuple((stage.name, len(stage.op.axes)) for stage in program.stages))
        one_hot = dict(zip(names(), vector(program, target).tolist(), strict=True)) if len(shapes) == 1 else None
        assert one_hot is None or [k for k in CLASSES if one_hot[f"A.is {k}"]] == [kind]
    if name in SEVERAL.get(device, ()):
        assert any(len(shape) > 1 for shape in shapes), "nothing was packed, padded, merged or split"


def test_the_collections_operators_are_of_the_classes_that_their_names_say():
    entries = suite("collection").entries
    for entry in entries:
        kind = of_graph(entry.make()).kind
        if not (entry.kind == "convolution" and ("1x1" in entry.id or "transpose" in entry.id)):  # products
            assert kind == KINDS.get(entry.kind, entry.kind), entry.id
    assert len({of_graph(entry.make()).structure for entry in entries}) == 15


SAME = (
    ("matmul", "linear"), ("matmul", "1 x 1"), ("convolution", "strided"), ("matmul", "long product"),
)  # fmt: skip


def test_names_sizes_and_numbers_of_axes_do_not_enter_a_structure():
    structure = {name: of_graph(expr).structure for name, (expr, _) in EXPRS.items()}
    for one, other in SAME:
        assert structure[one] == structure[other]
    plane = rg.tensor("P", (1, 16, 14, 14))
    assert of_graph(rg.ops.conv2d(plane, rg.tensor("W", (24, 16, 5, 5)))).structure == structure["convolution"]
    assert of_graph(rg.ops.conv1d(rg.tensor("L", (2, 8, 50)), rg.tensor("W", (6, 8, 3)))).structure == structure["convolution"]
    rows = (rg.ops.log_softmax(rg.tensor("R", (7, 99))), rg.ops.layer_norm(rg.tensor("R", (3, 5, 64)), 64))
    assert {of_graph(expr).structure for expr in rows} == {structure["softmax"]}
    apart = ("matmul", "convolution", "depthwise", "pooling", "rows", "columns", "softmax", "relu", "transpose")
    assert len({structure[name] for name in apart}) == len(apart)


def test_a_product_of_a_tensor_with_itself_has_two_operands():
    square = rg.ops.matmul(A, rg.ops.t(A))
    assert of_graph(square).structure == of_graph(EXPRS["matmul"][0]).structure
