"""CUDA text -> shared object -> NumPy arrays, in a process of its own: a misaligned access ends the process.

``run(source, arrays)`` compiles the text unchanged behind `cuda_on_cpu.h` and runs every launch in order.
"""

from __future__ import annotations

import hashlib
import pickle
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from rollergen.emit import Launch, Source

HEADER = Path(__file__).with_name("cuda_on_cpu.h")
MACHINERY = Path(__file__).with_name("cuda_on_cpu.cpp")
WORKER = Path(__file__).with_name("worker.py")
FLAGS = (
    "-std=c++17", "-O1", "-w", "-fno-strict-aliasing", "-fno-builtin", "-march=native", "-ffp-contract=fast", "-fPIC",
    "-fvisibility=hidden", "-fsanitize=bounds,alignment", "-fsanitize-undefined-trap-on-error", "-fno-sanitize-recover=all",
)  # fmt: skip


class HostError(Exception):
    """The text does not compile, or a run found a fault; the message says which."""


LINKER = ("-fuse-ld=gold",) if shutil.which("ld.gold") else ()
"""GNU's quicker linker, where there is one."""


def compiler() -> str | None:
    """A C++ compiler of this machine."""
    return shutil.which("g++") or shutil.which("clang++")


@dataclass(frozen=True)
class Run:
    """Every array after all launches."""

    arrays: Mapping[str, np.ndarray]


REVERSE, COPIES_AT_ONCE, PRODUCTS_LATE, NEWEST_FIRST = 1, 2, 4, 8
"""Modes: threads and blocks from the last to the first; asynchronous copies arrive when they are asked for, not when
they are waited for; products the other way round; of boxes that arrive late the newest first."""


def run(source: Source, arrays: Mapping[str, np.ndarray], modes: int = 0, timeout_s: int = 120) -> Run:
    """Runs the launches on copies of `arrays`; ``modes``: a sum of those above.

    Raises HostError for text that g++ refuses, a barrier that not all threads come to, an address that is not
    aligned or beyond a staged array.
    """
    with tempfile.TemporaryDirectory() as folder:
        library = compiled_once(source)
        job = Path(folder) / "job.pickle"
        job.write_bytes(pickle.dumps((str(library), source.launches, dict(arrays), int(modes))))
        with _ONE_AT_A_TIME:
            print(timeout_s, job, file=_worker().stdin, flush=True)
            status = int(_worker().stdout.readline())
        if status == -signal.SIGALRM:
            raise HostError(f"ran longer than {timeout_s} s")
        if status < 0:
            raise HostError(f"ended by signal {-status}: an access misaligned or out of bounds")
        found = pickle.loads(job.read_bytes())
        if isinstance(found, str):
            raise HostError(found)
        return Run(found)


_ONE_AT_A_TIME = threading.Lock()


@cache
def _worker() -> subprocess.Popen:
    """It ends with this process, which holds the other end of its input."""
    return subprocess.Popen([sys.executable, str(WORKER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


_FOLDER = tempfile.TemporaryDirectory()


_WRITING = threading.Lock()


def _prepared() -> tuple[Path, Path]:
    """The header and the machinery's object, which all texts share; threads wait until both are whole."""
    with _WRITING:
        return _prepared_once()


@cache
def _prepared_once() -> tuple[Path, Path]:
    """The header lies beside its precompiled form, which g++ finds by the name."""
    header, machinery = Path(shutil.copy(HEADER, _FOLDER.name)), Path(_FOLDER.name) / "cuda_on_cpu.o"
    try:
        _compile("-x", "c++-header", header, "-o", f"{header}.gch")
        _compile("-c", MACHINERY, "-o", machinery)
    except HostError as error:  # which tests expect of faults in texts
        raise RuntimeError(f"what is behind CUDA text does not compile: {error}") from None
    return header, machinery


def _compile(*words: str | Path) -> None:
    """Raises HostError with the compiler's first errors of a text."""
    made = subprocess.run([compiler() or "g++", *FLAGS, *words], capture_output=True, text=True)
    if made.returncode:
        lines = [line for line in made.stderr.splitlines() if "error" in line]
        raise HostError("\n".join(lines[:5]) or made.stderr[-2000:])


@cache
def compiled_once(source: Source) -> Path:
    """`compile_text`, in a folder that stays as long as this process."""
    return compile_text(source, Path(tempfile.mkdtemp(dir=_FOLDER.name)))


def compile_text(source: Source, folder: Path) -> Path:
    """The shared object of `source`, with one launcher ``launch_<entry>`` for each kernel."""
    text = folder / "kernel.cpp"
    entries = sorted({launch.entry for launch in source.launches})
    launchers = "\n".join(_launcher(entry, _cluster(source, entry)) for entry in entries)
    header, machinery = _prepared()
    text.write_text(f'#include "{header}"\n{with_dynamic_memory(source)}\n' + launchers)
    library = folder / f"{hashlib.sha256(source.text.encode()).hexdigest()[:12]}.so"
    _compile("-shared", *LINKER, "-o", library, text, machinery)
    return library


def with_dynamic_memory(source: Source) -> str:
    """The text with each kernel's launch-sized array declared with the size that its launch gives."""
    parts = re.split(r'(?=extern "C" __global__)', source.text)
    sizes = {launch.entry: launch.dynamic_bytes for launch in source.launches}
    for number, part in enumerate(parts):
        size = next((size for entry, size in sizes.items() if re.search(rf"\b{entry}\(", part.split("{")[0])), 0)
        parts[number] = re.sub(r"extern (__shared__ .*)\[\];", rf"\1[{size}];", part)
    return "".join(parts)


def _cluster(source: Source, entry: str) -> int:
    """Blocks of a cluster, as the kernel's head has it."""
    head = re.search(rf"__global__([^{{;]*)\b{entry}\(", source.text)
    found = head and re.search(r"__cluster_dims__\((\d+), 1, 1\)", head[1])
    return int(found[1]) if found else 1


def _launcher(entry: str, cluster: int) -> str:
    return f"""
template <class... P> static void call_{entry}(void (*kernel)(P...), void **a)
{{ cuda_on_cpu::called(kernel, a, std::index_sequence_for<P...>()); }}
extern "C" __attribute__((visibility("default"))) int launch_{entry}(
    void **arguments, unsigned blocks, unsigned threads, int modes, char *message)
{{
    return cuda_on_cpu::launch(
        [](void **a) {{ call_{entry}({entry}, a); }}, arguments, blocks, threads, {cluster}, modes, message);
}}
"""


def seeded(source: Source, pattern: str, replacement: str, count: int = 1) -> Source:
    """The source with a fault: `pattern` replaced; a pattern that is not there is an error of the test."""
    text, made = re.subn(pattern, replacement, source.text, count=count)
    assert made, f"{pattern} is not in the text"
    return Source(text, source.launches, source.language)


__all__ = ["HostError", "Launch", "Run", "compile_text", "compiled_once", "compiler", "run", "seeded"]
