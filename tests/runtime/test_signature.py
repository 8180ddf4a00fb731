"""Arguments of a call: accepted by position or name, otherwise refused in words that help."""

import numpy as np
import pytest

from rollergen.errors import ArgumentError, DtypeError, ShapeError
from rollergen.expr.values import Buffer
from rollergen.runtime.signature import Signature

A, B, C = Buffer("A", (4, 3)), Buffer("B", (3, 5)), Buffer("C", (4, 5), kind="output")
MATMUL = Signature((A, B), (C,))
TEXT = "kernel(A: float32[4, 3], B: float32[3, 5]) -> C: float32[4, 5]"
a, b, c = (np.ones(x.shape, np.float32) for x in (A, B, C))


def test_the_signature_reads_like_a_call():
    assert str(MATMUL) == TEXT


@pytest.mark.parametrize(("arrays", "named"), [((a, b), {}), ((a,), {"B": b}), ((), {"B": b, "A": a})])
def test_arrays_go_by_position_or_by_name(arrays, named):
    first, second = MATMUL.arrange(arrays, named)
    assert first is a and second is b


@pytest.mark.parametrize(
    ("arrays", "named", "error", "text"),
    [
        ((a,), {}, ArgumentError, f"1 arrays given, expected 2; B missing: {TEXT}"),
        ((a, b, c), {}, ArgumentError, f"3 arrays given, expected 2: {TEXT}"),
        ((a,), {"X": b}, ArgumentError, f"no input is called 'X'; expected A, B: {TEXT}"),
        ((a, b), {"B": b}, ArgumentError, f"B is given by position and by name: {TEXT}"),
        ((a, [[1.0]]), {}, ArgumentError, "B is a builtins.list; expected a NumPy array"),
        ((a, b.astype("float64")), {}, DtypeError, "expected float32, such as B.astype('float32')"),
        ((a, b.astype(">f4")), {}, DtypeError, "B has dtype >f4; expected float32"),
        ((a, a), {}, ShapeError, f"B has shape (4, 3); expected (3, 5): {TEXT}"),
        ((b, a), {}, ShapeError, "the arrays would fit in another order: pass them by name"),
    ],
)
def test_wrong_arguments_are_named_with_what_would_be_accepted(arrays, named, error, text):
    with pytest.raises(error) as caught:
        MATMUL.arrange(arrays, named)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    "given",
    [
        np.arange(12, dtype=np.float32).reshape(3, 4).T,
        np.arange(24, dtype=np.float32).reshape(4, 6)[:, ::2],
        np.zeros(4 * 12 + 1, np.uint8)[1:].view(np.float32).reshape(4, 3),
    ],
)
def test_strided_and_misaligned_inputs_are_copied(given):
    first, second = MATMUL.arrange((given, b), {})
    assert first.flags.c_contiguous and first.flags.aligned and np.array_equal(first, given)
    assert second is b


@pytest.mark.parametrize("rows", [128, 513, 4096])  # from 64 KiB on, of NumPy's memory and the pool's
def test_new_results_that_gain_by_it_begin_on_a_line(rows):
    signature = Signature((Buffer("X", (rows, 128)),), (Buffer("Y", (rows, 128), kind="output"),))
    (result,) = signature.results(None, (np.ones((rows, 128), np.float32),))
    assert result.shape == (rows, 128) and result.ctypes.data % 64 == 0


def frozen():
    array = np.ones((4, 5), np.float32)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("out", "error", "text"),
    [
        (a, ShapeError, "C has shape (4, 3); expected (4, 5)"),
        (c.astype("int32"), DtypeError, "C has dtype int32; expected float32"),
        (np.ones((5, 4), np.float32).T, ArgumentError, "out=C is strided or misaligned; expected a C-contiguous array"),
        (frozen(), ArgumentError, "out=C is read-only"),
        ((c, c), ArgumentError, "out has 2 arrays; expected 1"),
        (3.0, ArgumentError, "C is the number 3.0"),
    ],
)
def test_wrong_outputs_are_refused(out, error, text):
    with pytest.raises(error) as caught:
        MATMUL.results(out, (a, b))
    assert text in str(caught.value)


def test_an_output_may_not_overlap_an_input_or_another_output():
    whole = np.zeros(40, np.float32)
    square = Signature((Buffer("X", (20,)),), (Buffer("Y", (20,), kind="output"), Buffer("Z", (20,), kind="output")))
    for x, y, z in [(whole[:20], whole[10:30], np.ones(20, "f4")), (np.ones(20, "f4"), whole[:20], whole[19:39])]:
        with pytest.raises(ArgumentError, match="overlaps another array"):
            square.results((y, z), (x,))
    assert len(square.results((whole[:20], whole[20:]), (np.ones(20, "f4"),))) == 2
