"""A saved kernel runs and tests itself where there is no rollergen."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

import rollergen as rg
from rollergen.bundle import inputs
from rollergen.errors import ArgumentError
from rollergen.expr.values import Buffer
from tests.bundle import kernels
from tests.bundle.kernels import built, launched, made_in_c, packing

needs_compiler = pytest.mark.skipif(
    not (shutil.which("cc") and shutil.which("make")), reason="no C compiler (cc) or no make on this machine"
)


@pytest.fixture
def saved(tmp_path):
    """Saves a kernel and moves it to where nothing else is."""

    def save(make, device="cpu"):
        (packing() if make is kernels.packed_matmul else built(make, device)).save(tmp_path / "made")
        target = tmp_path / "elsewhere" / "kernel"
        target.parent.mkdir()
        return shutil.move(tmp_path / "made", target)

    return save


def launcher_module(directory):
    spec = importlib.util.spec_from_file_location("launcher", directory / "launcher.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def break_source(directory, old, new):
    path = directory / "kernel.cl"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


CASES = [
    (kernels.matmul, "mi50"),
    (kernels.packed_matmul, "cpu"),
    (kernels.chain, "cpu"),
    (kernels.convolution, "cpu"),
    (kernels.softmax, "mi50"),
    (kernels.several, "cpu"),
    (kernels.integers, "cpu"),
    (kernels.halves, "cpu"),
    (kernels.truth, "cpu"),
    (kernels.total, "cpu"),
    (kernels.taken, "cpu"),
    (kernels.at_a_position, "cpu"),
    (kernels.appended, "cpu"),
]
IDS = [f"{make.__name__}-{device}" for make, device in CASES]


@pytest.mark.parametrize(("make", "device"), CASES, ids=IDS)
@pytest.mark.every(11)
def test_the_self_test_passes_without_rollergen(saved, make, device):
    ran = launched(saved(make, device), *(["--any-device"] if device != "cpu" else []))
    assert ran.returncode == 0 and ran.stdout.endswith("PASSED\n"), ran.stdout + ran.stderr


def test_the_cases_cover_packing_and_temporaries():
    assert [launch.once for launch in packing().launches] == [True, False]
    assert built(kernels.chain).program.temporaries


@needs_compiler
@pytest.mark.parametrize(
    ("make", "device"), [case for case in CASES if case[0] not in (kernels.softmax, kernels.total, kernels.convolution)]
)
@pytest.mark.every(11)
def test_the_c_launcher_compiles_without_a_warning_and_passes(saved, make, device):
    ran = made_in_c(saved(make, device), *(["--any-device"] if device != "cpu" else []))
    assert ran.returncode == 0 and ran.stdout.endswith("PASSED\n"), ran.stdout + ran.stderr


def test_a_wrong_source_fails(saved):
    directory = saved(kernels.total)
    found = re.search(r"\[k\d+\] \+ a", (directory / "kernel.cl").read_text())
    assert found, "the addition of an element"
    break_source(directory, found.group(), found.group().replace("+", "-"))
    ran = launched(directory)
    assert ran.returncode == 1 and "compared elements of C are wrong, such as C[] = " in ran.stdout, ran.stdout
    assert ran.stdout.endswith("FAILED\n")


@needs_compiler
def test_a_wrong_source_fails_in_c_too(saved):
    directory = saved(kernels.several)
    found = re.search(r"value = exp\w*\(x", (directory / "kernel.cl").read_text())
    assert found, "the exponential of a row's elements"
    break_source(directory, found.group(), found.group()[:-1] + "2.0f*x")
    ran = made_in_c(directory)
    assert "compared elements of P are wrong" in ran.stdout and "elements of S are right" in ran.stdout, ran.stdout
    assert ran.returncode == 2 and ran.stdout.endswith("FAILED\n")  # make's own exit code


def test_a_block_that_is_put_elsewhere_fails(saved):
    directory = saved(kernels.appended)
    break_source(directory, "place*8", "0*place")
    ran = launched(directory)
    assert ran.returncode == 1 and "compared elements of keys are wrong" in ran.stdout, ran.stdout


def test_the_launcher_updates_the_callers_arrays_and_checks_integers(saved):
    kernel = launcher_module(saved(kernels.appended)).Kernel(any_device=True)
    keys, values, new = np.zeros((2, 17, 8), "float32"), np.ones((2, 17, 8), "float32"), -np.ones((2, 1, 8), "float32")
    first, second = kernel(keys, values, new, 5)
    assert first is keys and second is values
    assert keys[:, 5].sum() == keys.sum() == -16 and values[:, 5].sum() == 0 and values.sum() == 2 * 16 * 8
    with pytest.raises(ValueError, match="pos is 17; expected 0 to 16"):
        kernel(keys, values, new, 17)
    with pytest.raises(TypeError, match="3 arrays given"):
        kernel(keys, values, new)


def test_elements_that_are_not_written_fail(saved):
    directory = saved(kernels.truth)
    path = directory / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["launches"][0]["blocks"] = 1
    path.write_text(json.dumps(manifest))
    (blocks,) = {launch.blocks for launch in built(kernels.truth).launches}
    if blocks == 1:
        pytest.skip("the kernel is one block on this machine")
    assert "are wrong" in launched(directory).stdout


def test_a_kernel_for_an_absent_device_says_what_it_needs(saved):
    ran = launched(saved(kernels.matmul, "mi50"))
    assert ran.returncode == 2
    assert "needs AMD" in ran.stderr and "(mi50); OpenCL devices here: " in ran.stderr and "--any-device" in ran.stderr


@needs_compiler
def test_a_python_without_the_launchers_packages_says_what_it_needs(saved):
    directory = saved(kernels.matmul)
    words = [sys.executable, "-I", "-S", directory / "launcher.py"]  # -S: no site-packages
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    needs = "on a CPU it needs: pip install numpy 'pyopencl[pocl]'"
    assert ended.stderr.startswith("cannot run here: No module named 'numpy'; ") and needs in ended.stderr


def test_where_there_is_no_device_the_launcher_says_what_brings_one(saved, monkeypatch):
    module = launcher_module(saved(kernels.matmul))
    monkeypatch.setattr(module.cl, "get_platforms", list)
    with pytest.raises(module.CannotRun, match=r"no OpenCL device is here; .*pip install 'pyopencl\[pocl\]'"):
        module.find_device({"type": "cpu", "title": "a CPU", "name": "cpu"})


def test_the_c_launcher_says_so_too(saved):
    ran = made_in_c(saved(kernels.matmul, "mi50"))
    assert "needs AMD" in ran.stderr and "--any-device" in ran.stderr


@needs_compiler
def test_the_c_launcher_names_a_library_that_is_missing(saved):
    directory = saved(kernels.total)
    subprocess.run(["make", "-s", "-C", directory, "selftest"], check=True)
    environment = os.environ | {"OPENCL_LIBRARY": "/nowhere/libOpenCL.so"}
    ran = subprocess.run([directory / "selftest"], env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 2 and "/nowhere/libOpenCL.so" in ran.stderr


def test_a_device_can_be_asked_for_by_name(saved):
    directory = saved(kernels.total)
    ran = launched(directory, "--device", "no such device")
    assert ran.returncode == 2 and "needs one whose \"PLATFORM: NAME\" contains 'no such device'" in ran.stderr
    assert launched(directory, "--device", "").returncode == 0


def test_the_launcher_computes_what_the_kernel_computes(saved):
    launcher = launcher_module(saved(kernels.packed_matmul))
    kernel = launcher.Kernel()
    rng = np.random.default_rng(0)
    a, b = rng.random((64, 512), np.float32), rng.random((512, 1024), np.float32)
    ours = packing()
    np.testing.assert_array_equal(kernel(a, b), ours(a, b))
    other = rng.random((512, 1024), np.float32)
    np.testing.assert_array_equal(kernel(a, other), ours(a, other))  # packed anew
    other += 1
    kernel.repack()
    np.testing.assert_array_equal(kernel(a, other), ours(a, other.copy()))
    assert kernel.seconds > 0


def test_the_launcher_refuses_arrays_that_do_not_fit(saved):
    launcher = launcher_module(saved(kernels.softmax, "cpu"))
    kernel = launcher.Kernel()
    with pytest.raises(TypeError, match=r"X is float64\[31, 130\]; expected float32\[31, 130\]"):
        kernel(np.zeros((31, 130)))
    with pytest.raises(TypeError, match=r"2 arrays given, expected 1: kernel\(X: float32"):
        kernel(np.zeros((31, 130), "f"), np.zeros(3))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int8", "int32", "int64", "bool"])
@pytest.mark.parametrize("magnitude", [None, 3])
def test_the_launcher_makes_the_same_inputs(saved_launcher, dtype, magnitude):
    ours = inputs.made_array(Buffer("x", (7, 200), dtype), 5, 2, magnitude)
    theirs = saved_launcher.made_array({"shape": [7, 200], "dtype": dtype}, 5, 2, magnitude)
    assert ours.tobytes() == theirs.tobytes()
    values = ours.astype(float)
    assert values.min() >= -8 and values.max() <= 7 and len(np.unique(values)) >= (2 if dtype == "bool" else 5)


def test_long_inputs_are_made_in_pieces_without_a_seam(monkeypatch):
    whole = inputs.made_array(Buffer("x", (1000,), "float32"), 0, 0, None)
    monkeypatch.setattr(inputs, "_PIECE", 64)
    np.testing.assert_array_equal(inputs.made_array(Buffer("x", (1000,), "float32"), 0, 0, None), whole)


@pytest.fixture(scope="module")
def saved_launcher(tmp_path_factory):
    return launcher_module(built(kernels.total).save(tmp_path_factory.mktemp("kernels") / "kernel"))


def test_no_launcher_imports_anything_but_numpy_and_pyopencl(saved):
    import ast
    import sys

    directory = saved(kernels.total)
    imported = set()
    for path in directory.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) else []
            imported |= {name.split(".")[0] for name in names}
    assert imported - set(sys.stdlib_module_names) == {"numpy", "pyopencl", "pocl_cpu_name", "pocl_linker"}


def test_a_kernel_of_bare_programs_takes_what_is_right_from_their_definitions(tmp_path):
    kernel = built(kernels.matmul)
    rg.Kernel(kernel.device, kernel.candidates, kernel.candidates[0]).save(tmp_path / "bare")
    kernel.save(tmp_path / "kernel")
    assert (tmp_path / "bare" / "selftest.json").read_bytes() == (tmp_path / "kernel" / "selftest.json").read_bytes()


def test_any_candidate_can_be_saved_and_timed_where_rollergen_does_not_run(tmp_path):
    kernel = rg.build(kernels.matmul(), "cpu", top_k=3, profile=False, cache=False)
    texts = [one.source.text for one in kernel.candidates]
    assert len(set(texts)) == len(texts) > 1
    for number, text in enumerate(texts):
        directory = kernel.save(tmp_path / f"c{number}", candidate=number)
        assert (directory / "kernel.cl").read_text() == text
        assert rg.load(directory).source == text
    ran = launched(directory)
    assert ran.returncode == 0 and "PASSED" in ran.stdout and "us (device's own time of one call)" in ran.stdout


@needs_compiler
@pytest.mark.parametrize(("file", "least"), [("launcher.py", "SHORTEST_S = "), ("opencl_device.h", "SHORTEST_S ")])
def test_launchers_tell_the_hosts_time_where_events_count_nothing(tmp_path, file, least):
    directory = rg.build(kernels.total(), "cpu", top_k=1, profile=False, cache=False).save(tmp_path / "kernel")
    text = (directory / file).read_text()
    assert text.count(f"{least}1e-8") == 1
    (directory / file).write_text(text.replace(f"{least}1e-8", f"{least}1e4"))  # longer than any
    ran = launched(directory) if file == "launcher.py" else made_in_c(directory)
    assert "PASSED" in ran.stdout and "us (host's time of one call)" in ran.stdout


@pytest.mark.parametrize("number", [-1, 3, True, "first"])
def test_a_candidate_that_is_not_there_is_refused(tmp_path, number):
    kernel = rg.build(kernels.total(), "cpu", top_k=1, profile=False, cache=False)
    expected = f"candidate is {number!r}; expected None or an integer from 0 to {len(kernel.candidates) - 1}"
    with pytest.raises(ArgumentError, match=expected):
        kernel.save(tmp_path / "c", candidate=number)
    assert not (tmp_path / "c").exists()
