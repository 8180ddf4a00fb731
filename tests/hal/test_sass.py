"""Disassemblers: where they are found, and how one that reads older code is fetched."""

from __future__ import annotations

import subprocess
import zipfile

import pytest

from benches import bench_sass, setup_nvdisasm
from rollergen.hal import sass


def test_a_disassembler_is_unpacked_from_its_wheel_whole(tmp_path):
    wheel, target = tmp_path / "triton-3.1.0.whl", tmp_path / "tools" / "nvdisasm"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(setup_nvdisasm.MEMBER, "#!/bin/sh\necho listing\n")
    assert setup_nvdisasm.unpack(wheel, target) == target
    assert subprocess.run([target], capture_output=True, text=True, check=True).stdout == "listing\n"
    assert list(target.parent.iterdir()) == [target]
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("other", "")
    with pytest.raises(KeyError, match="nvdisasm"):
        setup_nvdisasm.unpack(wheel, target)


def test_a_fetched_disassembler_is_found_after_all_others(tmp_path, monkeypatch):
    (kept := tmp_path / "nvdisasm").write_text("")
    others = sass.disassemblers.__wrapped__()
    monkeypatch.setattr(sass, "kept_disassembler", lambda: kept)
    found = sass.disassemblers.__wrapped__()
    assert found[-1] == str(kept) and set(found[:-1]) <= set(others)


def test_the_bench_names_what_a_main_loop_lacks():
    loop = {"FFMA": 80, "LDG.128": 4, "LDS": 3, "LDS.128": 8, "LDGSTS": 2, "STL": 1, "MOV": 2}
    assert bench_sass.misses("matmul", 0.8, loop) == ["multiply-adds below 85%", "2 LDGSTS", "3 LDS", "1 STL"]
    assert bench_sass.misses("conv", 0.8, loop) == ["3 LDS", "1 STL"]
    assert bench_sass.misses("matmul", 0.9, {"FFMA": 90, "LDG.128": 4, "LDS.128": 6}) == []
