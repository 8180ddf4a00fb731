"""Modules on a GPU: compiled with one set of options wherever, kept on disk within the cache's bound, and unloaded.

CuPy is `fake`: its machine code is the text behind the options, and it counts the modules that are loaded.
"""

from __future__ import annotations

import gc
import os
import stat

import pytest

import rollergen as rg
from rollergen.hal.compilers import cubin_cache, nvrtc, nvrtc_library
from rollergen.hal.errors import BuildError
from rollergen.hal.files.user_cache import LIMIT_VARIABLE
from rollergen.hal.runtimes.cuda_runtime import CudaRuntime
from rollergen.hal.runtimes.held_stream import TEXT as TEXT_OF_HOLD
from rollergen.store import admin
from rollergen.store.location import store_path
from tests.cuda.host import compiler
from tests.cuda.test_cupy import V100, cupy, inputs, kernel, product  # noqa: F401 (fixtures)

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
TEXT = 'extern "C" __global__ void f(float *a) { a[0] = 1; }'
ONE_MIB = 1 << 20


def compiled_with(cupy):  # noqa: F811
    return [what[1] for what in cupy.LOG if what[0] == "compile"]


def test_what_is_checked_is_compiled_with_the_options_of_what_runs(cupy, kernel, monkeypatch):  # noqa: F811
    kernel(*inputs())
    monkeypatch.setattr(nvrtc, "library", lambda: cupy.cuda.nvrtc)
    kernel.compile_report()
    rg.build(product(), "v100", profile=False, cache=False, top_k=1, options=rg.BuildOptions(compile_check=True))
    run, reported, checked = compiled_with(cupy)
    assert run == reported == checked == ("--gpu-architecture=sm_70", *nvrtc.OPTIONS)


@pytest.mark.parametrize("version", [(12, 9), (13, 0)])
def test_a_compiler_that_keeps_code_is_asked_to_compile_anew(cupy, version):  # noqa: F811
    """The log of code that NVRTC 13 has kept names no kernel."""
    cupy.cuda.nvrtc._version = version
    nvrtc.compile_cuda(TEXT, "sm_90a", (), cupy.cuda.nvrtc)
    assert compiled_with(cupy) == [("--gpu-architecture=sm_90a", *nvrtc.OPTIONS, "--no-cache")]


@pytest.mark.skipif(not nvrtc.is_installed(), reason=nvrtc.INSTALL)
def test_denormal_numbers_are_kept_unless_the_options_say_otherwise():
    text = 'extern "C" __global__ void f(float *a) { a[0] = a[1] * a[2]; }'
    code = lambda *options: nvrtc.compile_cuda(text, "sm_70", options).code
    assert code() == code("--ftz=false") != code("--ftz=true")


def test_the_modules_of_kernels_that_died_are_unloaded(cupy):  # noqa: F811
    build = lambda: rg.build(product(), "cuda", profile=False, cache=False)
    a, b = map(cupy.asarray, inputs())
    for _ in range(5):
        build()(a, b)
        gc.collect()
        assert cupy.LOADED == []
    with_host_arrays = build()
    with_host_arrays(*inputs())
    assert len(cupy.LOADED) == 1
    del with_host_arrays
    gc.collect()
    assert cupy.LOADED == []


def test_the_candidates_of_a_build_do_not_stay_loaded(cupy):  # noqa: F811
    built = rg.build(product(), "cuda", profile=True, top_k=2, cache=False)
    gc.collect()
    assert cupy.LOADED == [TEXT_OF_HOLD] and len(built.candidates) == 2  # what times them stays


def test_a_module_lives_as_long_as_one_of_its_kernels(cupy):  # noqa: F811
    runtime = CudaRuntime()
    runtime.bind_thread()
    one, memory = runtime.compile(TEXT).kernel("f"), runtime.empty(4)
    runtime.set_arguments(one, [memory])
    runtime.launch(one, 1, 1)
    assert cupy.LOADED == [TEXT]
    del one
    assert cupy.LOADED == []


def test_machine_code_is_compiled_once_for_all_processes(cupy):  # noqa: F811
    CudaRuntime().compile(TEXT)
    CudaRuntime().compile(TEXT)
    assert len(compiled_with(cupy)) == 1 and len(list(cubin_cache.folder().iterdir())) == 1
    (file,) = cubin_cache.folder().iterdir()
    assert stat.S_IMODE(cubin_cache.folder().stat().st_mode) == 0o700 and stat.S_IMODE(file.stat().st_mode) == 0o600


def test_other_options_compilers_and_gpus_have_code_of_their_own(cupy, monkeypatch):  # noqa: F811
    CudaRuntime().compile(TEXT)
    CudaRuntime().compile(TEXT, ("--ftz=true",))
    monkeypatch.setattr(cupy.cuda.nvrtc, "getVersion", lambda: (12, 9))
    CudaRuntime().compile(TEXT)
    monkeypatch.setenv("FAKE_GPU", "NVIDIA H200|9|0|150000000000")
    CudaRuntime().compile(TEXT)
    assert len(compiled_with(cupy)) == 4
    assert [one[0] for one in compiled_with(cupy)[2:]] == ["--gpu-architecture=sm_70", "--gpu-architecture=sm_90a"]


def test_code_that_is_damaged_or_that_others_may_write_is_compiled_anew(cupy):  # noqa: F811
    CudaRuntime().compile(TEXT)
    (file,) = cubin_cache.folder().iterdir()
    file.write_bytes(file.read_bytes()[:-1])
    CudaRuntime().compile(TEXT)
    file.chmod(0o666)
    CudaRuntime().compile(TEXT)
    assert len(compiled_with(cupy)) == 3
    CudaRuntime().compile(TEXT)
    assert len(compiled_with(cupy)) == 3


def test_a_cache_that_cannot_be_written_changes_nothing(cupy):  # noqa: F811
    cubin_cache.folder().parent.mkdir(parents=True)
    cubin_cache.folder().write_text("a file")
    CudaRuntime().compile(TEXT).kernel("f")
    assert cubin_cache.size_bytes() == 0


def test_code_used_longest_ago_goes_where_all_takes_more_than_its_part(monkeypatch):
    monkeypatch.setenv(LIMIT_VARIABLE, "1MiB")
    for number in range(12):
        cubin_cache.keep(str(number), bytes(20_000))
        os.utime(cubin_cache.folder() / str(number), (number, number))
        assert cubin_cache.find("0") is not None  # used again
        os.utime(cubin_cache.folder() / "0", (number, number))
        assert cubin_cache.size_bytes() <= ONE_MIB // cubin_cache.PART
    left = {path.name for path in cubin_cache.folder().iterdir()}
    assert {"0", "11"} <= left and "1" not in left


def test_the_caches_owner_sees_and_removes_machine_code_too(cupy, kernel):  # noqa: F811
    before = admin.listing(store_path())["bytes"]
    cubin_cache.keep("one", bytes(1000))
    assert admin.listing(store_path())["bytes"] == before + 1032
    assert admin.clear(store_path())["bytes"] == 1032 and cubin_cache.size_bytes() == 0


def test_a_gpu_later_than_the_compiler_gets_ptx(cupy, monkeypatch):  # noqa: F811
    monkeypatch.setenv("FAKE_GPU", "NVIDIA of tomorrow|12|1|150000000000")
    CudaRuntime().compile(TEXT).kernel("f")
    assert compiled_with(cupy)[0][0] == "--gpu-architecture=compute_120"


def test_a_gpu_that_the_compiler_has_dropped_is_named(cupy, monkeypatch):  # noqa: F811
    monkeypatch.setenv("FAKE_GPU", "Tesla K80|3|7|12000000000")
    with pytest.raises(BuildError, match=r"NVRTC 12\.8 cannot compile for sm_37: it has dropped all earlier ones"):
        CudaRuntime().compile(TEXT)


def test_a_driver_older_than_the_compiler_is_told(cupy, monkeypatch):  # noqa: F811
    def refused(self, code):
        raise cupy.cuda.driver.CUDADriverError("CUDA_ERROR_INVALID_IMAGE: device kernel image is invalid")

    monkeypatch.setattr(cupy.cuda.function.Module, "load", refused)
    monkeypatch.setattr(cupy.cuda.nvrtc, "getVersion", lambda: (13, 0))
    message = (
        r"the driver refused code for sm_70 on Tesla V100.*: NVRTC 13\.0 is newer than the driver, .* of CUDA 12\.8"
    )
    with pytest.raises(BuildError, match=message):
        CudaRuntime().compile(TEXT)


def test_the_library_has_the_functions_of_cupys(cupy):  # noqa: F811
    names = {name for name in vars(cupy.cuda.nvrtc) if name[0] != "_" and name != "NVRTCError"}
    assert names == {name for name in vars(nvrtc_library.NvrtcLibrary) if name[0] != "_"}
