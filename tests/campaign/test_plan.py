"""A campaign's file says what is measured, each thing once; what it may not say is named with its place."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from rollergen.campaign.plan import read_plan
from rollergen.construct.options import BuildOptions
from rollergen.errors import ArgumentError, DeviceError, RollergenError

pytest.importorskip("tomllib", reason="Python 3.10 needs tomli to read plans")

SMALL = """
name = "small"
device = "v100"
programs = 5
top_k = 9
seeds = [0, 3]
[limits]
run_limit_s = 2.5
[[operators]]
problem = "matmul m=33 n=17 k=20"
[[operators]]
problem = "relu shape=31x7"
dtype = "float16"
"""


def plan_of(tmp_path, text):
    path = tmp_path / "ops.toml"
    path.write_text(text)
    return read_plan(path)


def test_every_operator_and_seed_is_a_task_with_an_identity_of_its_own(tmp_path):
    plan = plan_of(tmp_path, SMALL)
    assert [(task.problem, task.dtype, task.seed) for task in plan.tasks] == [
        ("matmul m=33 n=17 k=20", "float32", 0), ("matmul m=33 n=17 k=20", "float32", 3),
        ("relu shape=31x7", "float16", 0), ("relu shape=31x7", "float16", 3),
    ]  # fmt: skip
    assert len({task.id for task in plan.tasks}) == 4
    assert {(task.programs, task.top_k) for task in plan.tasks} == {(5, 5)}  # no more drafted than there are
    assert all(task.options == BuildOptions(isolate=True, run_limit_s=2.5) for task in plan.tasks)
    assert plan.tasks[0].expression().shape == (33, 17)


def test_an_operator_that_is_listed_twice_is_one_task(tmp_path):
    again = SMALL + '[[operators]]\nproblem = "matmul k=20 n=17 m=33"\n'
    assert len(plan_of(tmp_path, again).tasks) == 4


def test_the_identity_covers_what_is_measured_and_not_how_safely_or_for_whom(tmp_path):
    task = plan_of(tmp_path, SMALL).tasks[0]
    for same in ({"campaign": "other"}, {"options": BuildOptions(isolate=True, run_limit_s=9.0)}):
        assert replace(task, **same).id == task.id
    cooler = replace(task.device, clock_mhz=1000.0)
    changes = ({"problem": "matmul m=34 n=17 k=20"}, {"dtype": "float64"}, {"device": cooler}, {"programs": 6},
               {"top_k": 4}, {"seconds": 0.3}, {"seed": 1})  # fmt: skip
    for change in changes:
        assert replace(task, **change).id != task.id, change


def test_suites_are_taken_whole_or_by_entry(tmp_path):
    head = 'name = "s"\ndevice = "v100"\n[[suites]]\nname = "roller"\n'
    assert [task.problem for task in plan_of(tmp_path, head + 'only = ["C0"]').tasks] == ["roller:C0"]


WRONG = {
    'device = "v100"': "lacks name",
    'name = "x"\ndevice = "v100"': "has no operators",
    'name = "x"\ndevice = 3': "device is 3; expected a value of type str",
    'name = "x"\ndevice = "v100"\nprogrammes = 3': "has no 'programmes'; expected name, device, programs",
    'name = "x"\ndevice = "v100"\nprograms = 0': "programs is 0; expected an integer of at least 1",
    'name = "x"\ndevice = "v100"\nseconds = -1': "seconds is -1; expected a number above 0",
    'name = "x"\ndevice = "v100"\nseeds = ["a"]': "seeds is .* expected 1 to 100000 integers from 0",
    'name = "x"\ndevice = "v100"\n[limits]\nspeed = 3': "limits has no 'speed'",
    'name = "x"\ndevice = "v100"\n[[operators]]\ndtype = "int8"': r"operators\[0\] lacks problem",
    'name = "x"\ndevice = "v100"\n[[operators]]\nproblem = "matmull m=1"': "matmull m=1: .*did you mean matmul",
    'name = "x"\ndevice = "v100"\n[[suites]]\nname = "rolle"': "did you mean roller",
    'name = "x"\ndevice = "v1000"\n': "v1000",
    "name = ": "cannot be read as TOML",
    **{
        f'name = "x"\ndevice = "v100"\n{line}': message
        for line, message in {
            "programs = 1.5": "programs is 1.5; expected a value of type int",
            "programs = true": "programs is True; expected an integer of at least 1",
            f"programs = {10**30}": "programs is 10+; expected an integer of at least 1, at most 100000",
            "top_k = []": r"top_k is \[\]; expected a value of type int",
            "seconds = nan": "seconds is nan; expected a number above 0",
            "seconds = 1979-05-27": "seconds is datetime.date",
            "seeds = [-1]": r"seeds is \[-1\]; expected 1 to 100000 integers from 0",
            f"seeds = [{1 << 64}]": "seeds is .* integers from 0",
            "seeds = []": "seeds is",
            "seeds = [true]": "seeds is",
            "limits = 3": "limits is 3; expected a value of type dict",
            "limits = { run_limit_s = nan }": "limits: run_limit_s is nan",
            "limits = { memory_limit_bytes = 1.5 }": "limits: memory_limit_bytes is 1.5",
            "operators = 3": "operators is 3; expected a value of type list",
            "operators = [3]": r"operators\[0\] is 3; expected a table",
            "operators = [[]]": r"operators\[0\] is \[\]; expected a table",
            "operators = [{ problem = 3 }]": r"operators\[0\]: problem is 3; expected a value of type str",
            'operators = [{ problem = "relu shape=4", dtype = "int9" }]': r"operators\[0\]: relu shape=4: .*int9",
            'operators = [{ problem = "relu shape=-1" }]': r"operators\[0\]: relu shape=-1: .*-1",
            f'operators = [{{ problem = "matmul m={"1" * 5000} n=1 k=1" }}]': r"operators\[0\]: matmul m=1",
            "suites = [{ name = 3 }]": r"suites\[0\]: name is 3",
            'suites = [{ name = "roller", only = "C0" }]': r"suites\[0\]: only is 'C0'; expected a value of type list",
            **{
                f'suites = [{{ name = "roller", only = ["C0", {one}] }}]':
                rf"suites\[0\]: only\[1\] is {shown}; expected the name of an entry, such as "
                for one, shown in {
                    "-1": "-1", "true": "True", "[[]]": r"\[\[\]\]", "1.5": "1.5", "{}": "{}", "07:32:00": r"datetime.time\(7, 32\)",
                }.items()
            },
            'suites = [{ name = "roller", only = ["C00"] }]': r"suites\[0\]: there is no entry of suite roller 'C00'",
            'suites = [{ name = "roller", only = [] }]': "has no operators",
            "deep" + ".a" * 9 + " = 1": "line 3 nests deeper than 8 levels",
            'deep."a.b"' + ".'a'" * 8 + " = 1": "line 3 nests deeper than 8 levels",
            "seeds = " + "[" * 100_000: "line 3 nests deeper than 8 levels",
            "seeds = [0, 1]\n" + "[[x]]\n" * 3: "has no 'x'",
        }.items()
    },
}  # fmt: skip


@pytest.mark.parametrize("text", WRONG, ids=range(len(WRONG)))
def test_what_a_plan_may_not_say_is_named(tmp_path, text):
    with pytest.raises(RollergenError, match=WRONG[text]) as raised:
        plan_of(tmp_path, text)
    assert isinstance(raised.value, (ArgumentError, DeviceError))


def test_device_files_are_found_beside_the_plan(tmp_path):
    with pytest.raises(DeviceError, match=str(tmp_path / "mine.json")):
        plan_of(tmp_path, 'name = "x"\ndevice = "mine.json"')


FILES = {
    "a directory": lambda path: path.mkdir(),
    "a pipe": os.mkfifo,
    "endless": lambda path: path.symlink_to("/dev/zero"),
    "large": lambda path: path.write_bytes(b" " * 1_000_001),
    "another encoding": lambda path: path.write_text(SMALL, encoding="utf-16"),
    "half a character": lambda path: path.write_bytes(b"name = '\xe2'"),
    "a NUL": lambda path: path.write_bytes(b"name = '\0'"),
    "absent": lambda path: None,
}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
@pytest.mark.parametrize("make", FILES.values(), ids=FILES)
def test_what_is_no_file_of_a_plan_is_refused_at_once_and_named(tmp_path, make):
    make(tmp_path / "ops.toml")
    with pytest.raises(ArgumentError, match=r"ops\.toml'? cannot be read"):
        read_plan(tmp_path / "ops.toml")


@pytest.mark.parametrize("name", ["a\0b", "a\ud800b"])
def test_a_name_that_no_file_can_have_is_refused(name):
    with pytest.raises(ArgumentError, match="cannot be read") as raised:
        read_plan(Path(name))
    assert repr(name) in str(raised.value)


def test_texts_and_comments_may_hold_dots_and_brackets(tmp_path):
    head = SMALL.replace('"small"', "'''[[[[[[[[[[ a.b.c.d.e.f.g.h.i.j.k''' # [[[[[[[[[[[[[[[ x.x.x.x.x.x.x.x.x.x.x")
    assert plan_of(tmp_path, head).name == "[[[[[[[[[[ a.b.c.d.e.f.g.h.i.j.k"
