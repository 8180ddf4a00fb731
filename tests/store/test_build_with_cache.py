"""A second build of the same thing takes the first one's result: the same kernel, nothing constructed or run."""

import importlib
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import rollergen as rg
from rollergen.errors import ArgumentError
from rollergen.store.location import store_path

MODULES = {
    "programs": importlib.import_module("rollergen.verify.judge").Model,
    "measure_on": importlib.import_module("rollergen.measure.candidates"),
}


@pytest.fixture
def constructions(monkeypatch):
    """How often construction and measurement ran."""
    calls = dict.fromkeys(MODULES, 0)

    def counted(module, name):
        original = getattr(module, name)

        def call(*args, **kwargs):
            calls[name] += 1
            return original(*args, **kwargs)

        return call

    for name, module in MODULES.items():
        monkeypatch.setattr(module, name, counted(module, name))
    return calls


def product(a="A", b="B", out="C", m=33, dtype="float32", axis="k"):
    k = rg.reduce_axis(axis, 65)
    x, y = rg.tensor(a, (m, 65), dtype), rg.tensor(b, (65, 47), dtype, constant=True)
    return rg.compute((m, 47), lambda i, j: rg.sum(x[i, k] * y[k, j], axis=k), name=out)


def same(one, other):
    assert other.source == one.source and other.launches == one.launches
    assert other.program == one.program
    assert other.candidates == one.candidates
    assert other.candidates.index(other._chosen) == one.candidates.index(one._chosen)
    assert (other.predicted_time, other.measured_time) == (one.predicted_time, one.measured_time)
    assert str(other.signature) == str(one.signature)


def test_a_profiled_kernel_is_found_again_whole(constructions):
    first = rg.build(product(), "cpu", top_k=2)
    second = rg.build(product(), "cpu", top_k=2)
    assert constructions == {"programs": 1, "measure_on": 1}
    same(first, second)
    assert second.explain(as_dict=True) == first.explain(as_dict=True)
    rng = np.random.default_rng(0)
    a, b = rng.random((33, 65), np.float32), rng.random((65, 47), np.float32)
    np.testing.assert_allclose(second(a, b), a.astype(float) @ b, rtol=1e-5)


@pytest.mark.parametrize("device", ["v100", "mi50", "ipu", "cpu"])
def test_a_kernel_that_was_not_profiled_is_found_again(device, constructions):
    first = rg.build(product(), device, profile=False, top_k=3)
    same(first, rg.build(product(), device, profile=False, top_k=3))
    assert constructions["programs"] == 1


def test_several_outputs_and_stages_are_found_again(constructions):
    def two():
        x = rg.tensor("x", (20, 30))
        return [rg.ops.softmax(rg.ops.sum(x, 1)), rg.ops.relu(x)]

    first = rg.build(two(), "v100", profile=False, top_k=2)
    same(first, rg.build(two(), "v100", profile=False, top_k=2))
    assert constructions["programs"] == 1


RENAMED = {
    "all others": ("left", "right", "product"),
    "swapped": ("B", "A", "C"),
    "one that a temporary had": ("A", "B_packed", "C"),
    "prefixes of each other": ("A", "A_packed", "A_packed_packed"),
    "keywords of C": ("float_", "kernel_", "main_"),
}


@pytest.mark.parametrize("device", ["cpu", "v100"])
@pytest.mark.parametrize("names", RENAMED.values(), ids=RENAMED)
def test_other_tensor_names_find_the_kernel_and_stand_in_it(names, device, constructions):
    rg.build(product(), device, profile=False, top_k=3)
    found = rg.build(product(*names), device, profile=False, top_k=3)
    assert constructions["programs"] == 1
    fresh = rg.build(product(*names), device, profile=False, top_k=3, cache=False)
    assert [b.name for b in (*found.signature.inputs, *found.signature.outputs)] == list(names)
    same(fresh, found)


def test_a_kernel_found_under_other_names_runs():
    rg.build(product(), "cpu", top_k=2)
    found = rg.build(product("B", "A", "D"), "cpu", top_k=2)
    rng = np.random.default_rng(0)
    a, b = rng.random((33, 65), np.float32), rng.random((65, 47), np.float32)
    np.testing.assert_allclose(found(B=a, A=b), a.astype(float) @ b, rtol=1e-5)
    assert found.candidates[0].program.inputs[0].name == "B"


CHANGED = {
    "size": lambda: rg.build(product(m=34), "v100", profile=False, top_k=2),
    "dtype": lambda: rg.build(product(dtype="float64"), "v100", profile=False, top_k=2),
    "device": lambda: rg.build(product(), "mi50", profile=False, top_k=2),
    "top_k": lambda: rg.build(product(), "v100", profile=False, top_k=3),
    "options": lambda: rg.build(product(), "v100", profile=False, top_k=2, options=rg.BuildOptions(max_units=3)),
    "spec": lambda: rg.build(
        product(), replace(rg.load_device("v100"), clock_mhz=1000.0), profile=False, top_k=2
    ),
    "order of inputs": lambda: _in_other_order(),
}


def _in_other_order():
    C = product()
    x, y = _inputs(C)
    return rg.build(C, "v100", profile=False, top_k=2, inputs=[y, x])


def _inputs(tensor):
    from rollergen.expr.stages import ordered_inputs

    return ordered_inputs((tensor,), None)


@pytest.mark.parametrize("change", CHANGED.values(), ids=CHANGED)
def test_whatever_decides_about_a_kernel_makes_it_another_one(change, constructions):
    rg.build(product(), "v100", profile=False, top_k=2)
    change()
    assert constructions["programs"] == 2


def test_profiled_and_unprofiled_kernels_are_kept_apart(constructions):
    rg.build(product(), "cpu", profile=False, top_k=2)
    assert rg.build(product(), "cpu", top_k=2).measured_time is not None
    assert rg.build(product(), "cpu", profile=False, top_k=2).measured_time is None
    assert constructions == {"programs": 2, "measure_on": 1}


@pytest.mark.parametrize("what", ["driver", "package"])
def test_another_driver_or_package_builds_anew(what, constructions, monkeypatch):
    monkeypatch.setattr("rollergen.hal.runtime.remembered", lambda: None)  # this process opens the device
    rg.build(product(), "cpu", top_k=1)
    if what == "driver":
        monkeypatch.setattr("rollergen.runtime.executor.RuntimeExecutor.driver", "another one")
    else:
        monkeypatch.setattr("rollergen.store.keys.fingerprint", lambda: "0.2.0+abc")
    rg.build(product(), "cpu", top_k=1)
    assert constructions == {"programs": 2, "measure_on": 2}


def test_without_cache_nothing_is_read_or_written(constructions):
    rg.build(product(), "v100", profile=False, top_k=1, cache=False)
    assert not store_path().exists()
    rg.build(product(), "v100", profile=False, top_k=1)
    rg.build(product(), "v100", profile=False, top_k=1, cache=False)
    assert constructions["programs"] == 3


def test_another_process_finds_the_kernel():
    text = (
        "import sys\n"
        "import rollergen as rg\n"
        "from rollergen.store import keys\n"
        "keys.fingerprint = lambda: 'the same'\n"
        "if sys.argv[1] == 'found': sys.modules['rollergen.measure.candidates'] = None\n"
        "print(rg.build(rg.ops.relu(rg.tensor('x', (100,))), 'v100', profile=False, top_k=2).source)\n"
    )
    runs = [
        subprocess.run([sys.executable, "-c", text, word], capture_output=True, text=True) for word in ("new", "found")
    ]
    assert [run.stderr for run in runs] == ["", ""]
    assert runs[0].stdout == runs[1].stdout != ""


@pytest.mark.parametrize("made", [
    "rg.ops.matmul(rg.tensor('A', (33, 65)), rg.tensor('B', (65, 47), constant=True))",
    "rg.ops.embedding(rg.tensor('ids', (7,), 'int64'), rg.tensor('table', (100, 64)))",
    "rg.ops.gelu(rg.tensor('x', (8, 16), 'bfloat16'))",  # with numbers that are held to the dtype
    "rg.ops.conv2d(rg.tensor('x', (1, 8, 9, 9)), rg.tensor('w', (8, 8, 3, 3), constant=True), padding=1)",
    "rg.put(rg.tensor('y', (8, 4)), rg.tensor('x', (1, 4)), rg.scalar('i', 'int32', 0, 7))",
])  # fmt: skip
def test_a_process_that_finds_its_kernel_imports_no_numpy(made):
    find = f"import sys\nimport rollergen as rg\nrg.build({made}, 'cpu', top_k=1)\nprint('numpy' in sys.modules)"
    calm = "from rollergen.measure import noise\nnoise.SCATTER = noise.FAR = float('inf')\n"  # or it is not found
    runs = [subprocess.run([sys.executable, "-c", text], capture_output=True, text=True) for text in (calm + find, find)]
    assert [run.stdout for run in runs] == ["True\n", "False\n"], runs[1].stderr


def test_the_cache_is_true_or_false():
    with pytest.raises(ArgumentError, match="cache is 'here'; expected True or False"):
        rg.build(product(), "v100", cache="here")


def test_a_tensor_may_have_the_name_that_a_copy_of_another_would_get():
    k = rg.build(product("A", "B", "B_packed"), "cpu", profile=False)
    assert k.signature.outputs[0].name == "B_packed"


def test_importing_the_package_does_not_import_sqlite():
    text = "import sys, rollergen; sys.exit('sqlite3' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", text]).returncode == 0


def test_how_safely_candidates_are_run_does_not_make_another_kernel(constructions):
    rg.build(product(), "cpu", top_k=1)
    options = rg.BuildOptions(isolate=True, run_limit_s=3.0, compile_limit_s=9.0, memory_limit_bytes=1 << 30)
    rg.build(product(), "cpu", top_k=1, options=options)
    assert constructions == {"programs": 1, "measure_on": 1}
