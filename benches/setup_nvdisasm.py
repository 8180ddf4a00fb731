"""A disassembler that reads sm_70: ``python benches/setup_nvdisasm.py [--wheel FILE]``.

NVIDIA's own wheel of nvdisasm starts with version 13, which no longer reads sm_70; the wheel of Triton 3.1.0 brings the
one of CUDA 12.4.  This downloads that wheel (209 MB, through pip; ``--wheel`` takes one that is there), keeps its
nvdisasm (about 50 MB) in the user's cache directory, where `rollergen.hal.compilers.sass` looks, and lets go of the
rest.  For Linux on x86-64.
"""

from __future__ import annotations

import argparse
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from rollergen.hal.compilers.nvrtc import compile_cuda, is_installed
from rollergen.hal.compilers.sass import histogram, kept_disassembler

PACKAGE = "triton==3.1.0"
MEMBER = "triton/backends/nvidia/bin/nvdisasm"
WHICH = ("--no-deps", "--only-binary=:all:", "--python-version=3.11", "--implementation=cp", "--abi=cp311",
         "--platform=manylinux2014_x86_64", "--platform=manylinux_2_17_x86_64")  # fmt: skip
ADDITION = 'extern "C" __global__ void addition(float *x) { x[0] += 1.0f; }'


def downloaded(folder: Path) -> Path:
    """The wheel, in `folder`.  Raises CalledProcessError where pip does not find it."""
    subprocess.run([sys.executable, "-m", "pip", "download", *WHICH, "--dest", str(folder), PACKAGE], check=True)
    (wheel,) = folder.glob("triton-*.whl")
    return wheel


def unpack(wheel: Path, target: Path) -> Path:
    """The wheel's nvdisasm as the executable `target`.  Raises KeyError where the wheel has none."""
    target.parent.mkdir(parents=True, exist_ok=True)
    unpacked = target.with_name(f"{target.name}.{os.getpid()}")
    with zipfile.ZipFile(wheel) as archive, archive.open(MEMBER) as content, unpacked.open("wb") as file:
        shutil.copyfileobj(content, file)
    unpacked.chmod(unpacked.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    return unpacked.replace(target)  # at once: nobody meets half of it


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--wheel", type=Path, help="of Triton 3.1.0; default: downloaded")
    given = words.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        made = unpack(given.wheel or downloaded(Path(folder)), kept_disassembler())
    print(subprocess.run([made, "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[-1])
    if not is_installed():
        print(f'{made}: not tried, for want of pip install "rollergen[nvrtc]"')
        return
    counts = histogram(compile_cuda(ADDITION, "sm_70").code)
    if counts is None or counts["addition"].get("FADD") != 1:
        raise SystemExit(f"{made} does not read sm_70: {counts}")
    print(f"{made}: reads sm_70")


if __name__ == "__main__":
    main()
