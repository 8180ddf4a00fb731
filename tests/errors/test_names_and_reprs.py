"""Mistyped names are answered with the nearest; values of any size are shown in a line or two."""

import ast
import copy
import inspect
import os
import pickle
import re
import subprocess
import sys
from importlib.resources import files

import numpy as np
import pytest

import rollergen as rg
from rollergen.errors import (
    ArgumentError,
    DeviceError,
    DtypeError,
    ExpressionError,
    RuntimeUnavailableError,
    UnknownNameError,
)
from rollergen.expr.operators.distances import LOSSES
from rollergen.expr.operators.formulas import FORMULAS
from rollergen.expr.primitives import FUNCTIONS
from rollergen.hal.runtimes import opencl_runtime
from rollergen.tile.rules import CodeShapes

A, B = rg.tensor("A", (64, 64)), rg.tensor("B", (64, 64))
C = rg.ops.matmul(A, B, name="C")


@pytest.mark.parametrize(
    ("make", "advice"),
    [
        (lambda: rg.BuildOptions(allow_tf=True), "rg.BuildOptions has no argument 'allow_tf'; did you mean allow_tf32?"),
        (lambda: CodeShapes(shuffle=True), "rg.CodeShapes has no argument 'shuffle'; did you mean shuffles?"),
        (lambda: rg.AlignmentRules(bnk=True), "rg.AlignmentRules has no argument 'bnk'; did you mean bank?"),
        (lambda: rg.build(C, "v100", topk=3), "rg.build has no argument 'topk'; did you mean top_k?"),
        (lambda: rg.ops.softmax(A, axes=0), "rg.ops.softmax has no argument 'axes'; did you mean axis?"),
        (lambda: rg.ops.relu(A, dim=0), "rg.ops.relu has no argument 'dim'; expected one of input, inplace, name"),
        (lambda: rg.tensor("x", (3,), dtyp="int8"), "rg.tensor has no argument 'dtyp'; did you mean dtype?"),
    ],
)
def test_an_unknown_argument_is_answered_with_the_nearest_name(make, advice):
    with pytest.raises(UnknownNameError) as caught:
        make()
    assert str(caught.value) == advice
    assert isinstance(caught.value, TypeError) and isinstance(caught.value, ArgumentError)


@pytest.mark.parametrize(
    ("make", "advice"),
    [
        (lambda: rg.ops.mat_mul, "rg.ops has no operator 'mat_mul'; did you mean matmul?"),
        (lambda: rg.ops.sofmax, "rg.ops has no operator 'sofmax'; did you mean softmax?"),
        (lambda: rg.tensr, "rollergen has no attribute 'tensr'; did you mean tensor?"),
        (lambda: rg.gelu, "rollergen has no attribute 'gelu'; expected rg.ops.gelu"),
        (lambda: rg.ops.ReLU, "rg.ops has no operator 'ReLU'; did you mean relu?"),
    ],
)
def test_an_unknown_attribute_is_answered_with_the_nearest_name(make, advice):
    with pytest.raises(AttributeError) as caught:
        make()
    assert str(caught.value) == advice


def test_torchs_names_of_axes_are_still_accepted():
    assert rg.ops.sum(A, dim=1, keepdim=True).shape == (64, 1)


def test_an_unknown_device_is_answered_with_near_names_only_and_with_what_stands_for_present_ones():
    with pytest.raises(DeviceError) as caught:
        rg.build(C, "gpu")
    assert "did you mean" not in str(caught.value)
    assert "cuda or opencl for what is present" in str(caught.value)
    with pytest.raises(DeviceError, match="did you mean v100"):
        rg.build(C, "v1000")


def test_opencl_names_what_is_present_where_that_is_a_cpu_alone():
    with pytest.raises(DeviceError, match=r"device='opencl': .*device='cpu'.* opencl:\d:0 "):
        rg.build(C, "opencl")


BIG = np.zeros((512, 512))


@pytest.mark.parametrize(
    "make",
    [
        lambda x: rg.ops.matmul(x, B), lambda x: rg.ops.add(A, x), lambda x: rg.ops.relu(x), lambda x: rg.build(x),
        lambda x: rg.build([x]), lambda x: rg.build(C, x), lambda x: rg.build(C, "v100", options=x),
        lambda x: rg.build(C, "v100", inputs=[x]), lambda x: rg.einsum("ij,jk->ik", x, B), lambda x: rg.sum(x, axis=0),
        lambda x: A[x, 0], lambda x: rg.predict(x, "v100"), lambda x: rg.profile([x], "v100"),
    ],
)  # fmt: skip
def test_an_array_in_the_wrong_place_is_named_by_its_shape_and_not_printed(make):
    with pytest.raises((ExpressionError, ArgumentError, DeviceError, ValueError)) as caught:
        make(BIG)
    text = str(caught.value)
    assert "a numpy.ndarray of shape (512, 512) and dtype float64" in text and len(text) < 400


def test_an_array_for_a_tensor_is_answered_with_the_tensor_that_stands_for_it():
    with pytest.raises(ExpressionError, match=r'rg\.tensor\("x", \(512, 512\), "float64"\) stands for it'):
        rg.build(BIG)


class _Foreign:
    """An array of torch's kind: its dtype says which library it is of."""

    shape, dtype = (3, 4), "torch.float16"


def test_a_foreign_array_is_answered_with_its_dtypes_own_word():
    with pytest.raises(ExpressionError, match=r'dtype torch\.float16; .*rg\.tensor\("x", \(3, 4\), "float16"\)'):
        rg.ops.relu(_Foreign())


@pytest.mark.parametrize("file", ["model.onnx", "net.pt2"])
def test_a_model_file_is_told_from_swapped_arguments(file):
    with pytest.raises(ExpressionError, match=r"a whole model, which rg.build does not read; expected a tensor") as caught:
        rg.build(file)
    assert "swapped" not in str(caught.value)


@pytest.mark.parametrize(("made_for", "asked"), [("v100", "cpu"), ("cpu", "v100"), ("v100", "ipu"), ("ipu", "v100")])
def test_a_program_of_another_device_is_refused_by_the_names_of_both(made_for, asked):
    program = rg.construct(C, made_for, 1)[0]
    wanted = rf"was constructed for {made_for}, and {asked} cannot run it \(.*rg\.construct\(expr, '{asked}'\)"
    with pytest.raises(ArgumentError, match="program " + wanted):
        rg.predict(program, asked)
    with pytest.raises(ArgumentError, match=r"programs\[0\] " + wanted):
        rg.profile([program], asked)


def test_a_program_of_a_like_device_is_predicted():
    assert rg.predict(rg.construct(C, "v100", 1)[0], "a100").seconds > 0


def test_reprs_of_large_values_take_a_line():
    kernel = rg.build(C, "v100", profile=False)
    values = kernel.device, kernel.program, kernel.candidates[0], rg.predict(kernel.program, "v100"), rg.BuildOptions()
    assert all(len(repr(value)) < 200 and "\n" not in repr(value) for value in values)
    assert "v100" in repr(kernel.device) and "contraction" in repr(kernel.program)
    assert repr(rg.BuildOptions(epsilon=0.1)) == "BuildOptions(epsilon=0.1)"
    assert repr(A) == "<tensor A: float32[64, 64]>"


def test_the_signature_of_build_is_readable():
    text = str(inspect.signature(rg.build))
    assert "options: 'BuildOptions' = BuildOptions()" in text and len(text) < 500


def test_a_kernel_copies_to_itself_and_says_save_where_it_is_pickled():
    kernel = rg.build(C, "v100", profile=False)
    assert copy.deepcopy({"layer": kernel})["layer"] is kernel and copy.copy(kernel) is kernel
    with pytest.raises(DeviceError, match=r"cannot be pickled: .*kernel\.save\(directory\)"):
        pickle.dumps(kernel)


@pytest.mark.parametrize("function", [rg.build, rg.ops.softmax, rg.tensor])
def test_public_functions_are_pickled_by_their_names(function):
    assert pickle.loads(pickle.dumps(function)) is function


def test_pocls_variable_is_named_where_it_leaves_no_device(monkeypatch):
    monkeypatch.setenv("POCL_DEVICES", "bogus")
    message = str(opencl_runtime._no_device([opencl_runtime.POCL]))
    assert message.startswith("POCL_DEVICES='bogus' leaves PoCL without a CPU device; expected pthread or basic")
    assert "POCL_DEVICES" not in str(opencl_runtime._no_device(["Another"]))
    with pytest.raises(DeviceError, match="POCL_DEVICES='bogus'"):
        rg.build(C, "opencl")
    monkeypatch.setattr(opencl_runtime, "cpu_devices", lambda opencl: [])
    with pytest.raises(RuntimeUnavailableError, match="POCL_DEVICES='bogus'"):
        opencl_runtime.OpenCLRuntime()


def test_a_build_for_a_cpu_that_a_variable_hides_is_not_left_unmeasured_without_a_word():
    build = 'import rollergen as rg; rg.build(rg.ops.relu(rg.tensor("x", (8,))), "cpu", cache=False)'
    done = subprocess.run(
        [sys.executable, "-c", build], env={**os.environ, "POCL_DEVICES": "bogus"}, capture_output=True, text=True
    )
    assert done.returncode and "DeviceError: POCL_DEVICES='bogus' leaves PoCL without" in done.stderr


def test_torchs_dtypes_are_taken_by_their_names():
    torch = pytest.importorskip("torch")
    for name in ("float32", "bfloat16", "int8", "bool"):
        assert rg.tensor("x", (4,), getattr(torch, name)).dtype == name
    assert rg.cast(rg.tensor("x", (4,))[0], torch.float16).dtype == "float16"
    with pytest.raises(DtypeError, match=r"is torch\.complex64; expected one of float"):
        rg.tensor("x", (4,), torch.complex64)


def test_an_array_read_at_an_axis_is_no_tensor():
    array = np.zeros(4, np.float32)
    with pytest.raises(ExpressionError, match=r"an array is read at an axis; .* rg\.tensor"):
        rg.compute((4,), lambda i: array[i])
    with pytest.raises(IndexError):
        rg.compute((4,), lambda i: (1, 2)[3])


def test_a_space_is_shown_by_its_number_of_points():
    assert re.fullmatch(r"Space\(points=\d+\)", repr(rg.space(C, "v100")))


def test_editors_see_every_public_name():
    stub = ast.parse(files("rollergen").joinpath("__init__.pyi").read_text("utf-8"))
    named = {a.asname or a.name for n in stub.body if isinstance(n, ast.ImportFrom) for a in n.names}
    named |= {n.name for n in stub.body if isinstance(n, ast.FunctionDef)}
    assert {name for name in named if not name.startswith("_")} == set(rg.__all__)
    listed = next(n.value for n in stub.body if isinstance(n, ast.Assign))
    assert ast.literal_eval(listed) == rg.__all__
    assert files("rollergen").joinpath("py.typed").is_file()


def test_editors_see_every_operator_and_all_are_found_in_their_families():
    seen = {**imported_operators(), **operators_along_an_axis()}
    found = {name: getattr(rg.ops, name) for name in rg.ops.__all__}
    assert {name: one.__wrapped__.__wrapped__.__module__ for name, one in found.items() if name in seen} == seen
    assert set(found) - set(seen) == {*rg.ops.ELEMENTWISE, *LOSSES} == {*FUNCTIONS, *FORMULAS, *LOSSES} - {"round"}
    assert set(dir(rg.ops)) == {*rg.ops.__all__, *rg.ops.ALIASES} and rg.ops.cat is rg.ops.concat


def test_type_checkers_take_axis_wherever_an_operator_has_dim():
    named = {name for name in rg.ops.__all__ if "dim" in inspect.signature(getattr(rg.ops, name)).parameters}
    assert set(operators_along_an_axis()) == named


def operators_stub():
    return ast.parse(files("rollergen").joinpath("expr/operators/__init__.pyi").read_text("utf-8")).body


def imported_operators():
    """The module of each operator that the stub shows as it is written."""
    imports = [n for n in operators_stub() if isinstance(n, ast.ImportFrom) and n.module.startswith("rollergen")]
    return {alias.name: n.module for n in imports for alias in n.names if not alias.asname.startswith("_")}


def operators_along_an_axis():
    """The module of each operator that the stub shows with `axis` and `keepdims`, too: ``name = _along(_module.name)``."""
    found = {}
    for node in operators_stub():
        match node:
            case ast.Assign([ast.Name(name)], ast.Call(ast.Name("_along"), [ast.Attribute(ast.Name(module), wrapped)])):
                assert wrapped == name
                found[name] = f"rollergen.expr.operators.{module[1:]}"
    return found


def test_the_version_is_that_of_the_package():
    from importlib.metadata import version

    assert rg.__version__ == version("rollergen")


def test_progress_that_is_no_function_is_refused():
    with pytest.raises(ArgumentError, match=r"progress is 3; expected a function of \(what, done, of\), or None"):
        rg.build(rg.ops.relu(rg.tensor("x", (4,))), "v100", progress=3)
