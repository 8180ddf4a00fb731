"""A campaign's file says what is measured, each thing once; what it may not say is named with its place."""

from dataclasses import replace

import pytest

from rollergen.campaign.plan import read_plan
from rollergen.errors import ArgumentError, DeviceError, RollergenError
from rollergen.options import BuildOptions

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
    'name = "x"\ndevice = "v100"\nseeds = ["a"]': "seeds is .* expected integers",
    'name = "x"\ndevice = "v100"\n[limits]\nspeed = 3': "limits has no 'speed'",
    'name = "x"\ndevice = "v100"\n[[operators]]\ndtype = "int8"': r"operators\[0\] lacks problem",
    'name = "x"\ndevice = "v100"\n[[operators]]\nproblem = "matmull m=1"': "matmull m=1: .*did you mean matmul",
    'name = "x"\ndevice = "v100"\n[[suites]]\nname = "rolle"': "did you mean roller",
    'name = "x"\ndevice = "v1000"\n': "v1000",
    "name = ": "cannot be read as TOML",
}


@pytest.mark.parametrize("text", WRONG, ids=range(len(WRONG)))
def test_what_a_plan_may_not_say_is_named(tmp_path, text):
    with pytest.raises(RollergenError, match=WRONG[text]) as raised:
        plan_of(tmp_path, text)
    assert isinstance(raised.value, (ArgumentError, DeviceError))


def test_device_files_are_found_beside_the_plan(tmp_path):
    with pytest.raises(DeviceError, match=str(tmp_path / "mine.json")):
        plan_of(tmp_path, 'name = "x"\ndevice = "mine.json"')
