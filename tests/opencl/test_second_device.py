"""What holds for kernels on the host's CPU holds for one with memory of its own: the gate, operators in every kind of
dtype, arrays of other libraries, saved kernels."""

import re
import shutil

import ml_dtypes
import numpy as np
import pytest

import rollergen as rg
from rollergen.errors import ArgumentError
from tests.bundle import kernels
from tests.bundle.kernels import launched, made_in_c
from tests.gate.mutants import Bench, mutants
from tests.opencl.devices import facts, on_pocl
from tests.operators.cases import CASES

pytest.importorskip("pyopencl", reason="the extra [cpu] is not installed")
SEEDED = [one for one in mutants() if one.part in ("printer", "launch")]


@pytest.fixture(scope="module")
def bench():
    bench = Bench(on_pocl())
    yield bench
    bench.close()


@pytest.mark.parametrize("mutant", SEEDED, ids=[one.name for one in SEEDED])
@pytest.mark.every(19)
def test_a_seeded_fault_is_caught_by_the_gate(mutant, bench):
    assert bench.caught(mutant), f"{mutant.name} went unnoticed"


@pytest.mark.parametrize("name", CASES)
@pytest.mark.every(83)
def test_an_operator_passes_the_gate(name):
    assert rg.build(CASES[name].make(), on_pocl(), top_k=1, profile=True, cache=False).candidates[0].compared


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "int8", "bool"])
def test_every_kind_of_dtype_goes_there_and_comes_back(dtype):
    x = rg.tensor("x", (33, 17), dtype)
    kernel = rg.build(rg.ops.t(x), on_pocl(), top_k=1, profile=False, cache=False)
    kind = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    values = np.random.default_rng(0).integers(0, 2, (33, 17)).astype(kind)
    assert kernel(values).tobytes() == np.ascontiguousarray(values.T).tobytes()


@pytest.fixture(scope="module")
def product():
    return rg.build(kernels.matmul(), on_pocl(), profile=False, cache=False)


def inputs():
    random = np.random.default_rng(0)
    return random.integers(-3, 4, (70, 37)).astype("f4"), random.integers(-3, 4, (37, 100)).astype("f4")


def test_arrays_of_the_host_are_taken_as_on_the_cpu(product):
    a, b = inputs()
    assert np.array_equal(product(np.asfortranarray(a), b[::-1][::-1]), a @ b)
    a.setflags(write=False)
    assert np.array_equal(product(B=b, A=a), a @ b)
    out = np.empty((70, 100), "f4")
    with pytest.raises(ArgumentError, match="out=C overlaps"):
        product(a, out.reshape(-1)[:3700].reshape(37, 100), out=out)
    with pytest.raises(ArgumentError, match="no streams for arrays in host memory"):
        product(a, b, stream=1)


def test_tensors_of_torch_come_back_as_such(product):
    torch = pytest.importorskip("torch")
    a, b = map(torch.from_numpy, inputs())
    got = product(a, b)
    assert isinstance(got, torch.Tensor) and torch.equal(got, a @ b)


def test_a_saved_kernel_is_loaded_and_called_there(product, tmp_path):
    found = rg.load(product.save(tmp_path / "made"))
    a, b = inputs()
    assert found.device == product.device and np.array_equal(found(a, b), a @ b)


def test_a_saved_kernel_tests_itself_on_a_device_by_name(product, tmp_path):
    directory = product.save(tmp_path / "made")
    name = re.split(r"[ (]", facts().name)[0]
    done = launched(directory, "--device", name)
    assert done.returncode == 0 and done.stdout.endswith("PASSED\n"), done.stdout + done.stderr
    if shutil.which("cc") and shutil.which("make"):
        assert "PASSED" in made_in_c(directory, "--device", name).stdout
