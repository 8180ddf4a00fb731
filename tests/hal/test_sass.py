"""Disassemblers: where they are found, and how one that reads older code is fetched."""

from __future__ import annotations

import subprocess
import zipfile

import pytest

from benches import bench_sass, setup_nvdisasm
from rollergen.hal.compilers import sass


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


def test_the_bench_says_of_each_kernel_whether_its_aim_is_met():
    row = lambda case: {"case": case, "device": "v100"}
    code = {"LDG": 10, "FFMA": 32}
    met, missed = (bench_sass.counted(row("depthwise 3x3"), code, outputs) for outputs in (2, 1))
    assert (met["each"], met["aim"], bench_sass.verdict(met)) == (21.0, "at most 21", "met")
    assert bench_sass.verdict(missed) == "missed: 42.0"
    of_sixteen = bench_sass.counted(row("transpose"), {"LDG": 69}, 8)
    assert (of_sixteen["each"], of_sixteen["aim"]) == (138.0, "at most 136 for 16")
    assert bench_sass.verdict(of_sixteen) == "missed: 138.0"
    assert bench_sass.verdict(bench_sass.counted(row("relu"), {"LDG.128": 4}, 16)) == "met"
    assert bench_sass.verdict(bench_sass.counted(row("relu"), {"LDG": 4, "LDL.64": 1}, 4)) == "missed: 4 LDG, 1 LDL.64"
    assert bench_sass.verdict({**row("relu"), "note": "nothing reads it"}) == "not known: nothing reads it"


def test_the_bench_fails_where_an_aim_is_missed_or_not_known(monkeypatch, capsys):
    row = {"case": "matmul", "device": "v100", "registers": 1, "stack_bytes": 0, "model_share": 0.9}
    states = {"met": {"misses": []}, "missed": {"misses": ["3 LDS"]}, "not known": {"note": "nothing reads it"}}
    monkeypatch.setattr(bench_sass, "LOOPS", dict.fromkeys(states))
    monkeypatch.setattr(bench_sass, "loop_row", lambda case, on: {**row, "case": case, **states[case]})
    with pytest.raises(SystemExit) as ended:
        bench_sass.main(["--device", "v100", "--loops"])
    assert str(ended.value) == "aims: v100 missed missed: 3 LDS; v100 not known not known: nothing reads it"
    monkeypatch.setattr(bench_sass, "LOOPS", {"met": None})
    bench_sass.main(["--device", "v100", "--loops"])


def test_every_aim_is_of_a_case():
    assert set(bench_sass.AIMS) <= {*bench_sass.STRAIGHT, bench_sass.ONLINE}
    assert {name.split()[0] for name in bench_sass.LOOPS} == set(bench_sass.LEAST_SHARE) == set(bench_sass.WIDE)
