"""The command line: builds, explains, lists; errors are one line and exit code 2."""

import json
import subprocess
import sys
import warnings
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

import rollergen as rg
from rollergen.__main__ import main
from rollergen.bench.catalogue import OPERATORS
from rollergen.bench.problems import expression
from rollergen.cli.commands import COMMANDS
from rollergen.cli.errors import OneLineErrors
from rollergen.errors import RollergenError

ROOT = Path(__file__).parents[2]


def run(*words):
    return CliRunner().invoke(main, list(words))


def ok(*words):
    result = run(*words)
    assert result.exit_code == 0, result.output
    return result.output


def test_build_without_a_device_runs_checks_and_explains_on_this_machine():
    text = ok("build", "matmul", "m=64", "n=80", "k=48", "--top-k", "2")
    assert text.startswith("correct: ")
    for part in ("match the float64 definition", "one call takes", "candidates", "chosen", "<- binds"):
        assert part in text, part
    assert "kernel(A: float32[64, 48], B: float32[48, 80])" in text and "closed forms" not in text
    assert "closed forms" in ok("build", "matmul", "m=64", "n=80", "k=48", "--top-k", "2", "--explain")


def test_build_prints_one_json_object_on_demand():
    found = json.loads(ok("build", "matmul", "m=64", "n=80", "k=48", "--top-k", "1", "--json", "--source"))
    assert found["device"]["name"] == "cpu" and "kernel" in found["source"]
    assert found["check"]["compared_elements"] > 200 and found["check"]["wall_seconds"] > 0
    assert found["candidates"][0]["state"] == "passed"


def test_build_for_an_absent_device_says_that_it_did_not_run():
    text = ok("build", "softmax", "shape=64x128", "--device", "v100", "--top-k", "2")
    assert "Tesla V100" in text and "not run (the device is not present in this machine)" in text
    assert json.loads(ok("build", "relu", "shape=64", "--device", "mi50", "--json"))["check"] is None


def test_build_may_be_told_not_to_run_and_not_to_measure():
    text = ok("build", "relu", "shape=64x64", "--no-profile", "--no-run")
    assert text.startswith("not run (as asked)") and "not measured" in ok("explain", "relu", "shape=64x64", "--no-profile")


def test_insisting_on_a_run_on_an_absent_device_fails_in_one_line():
    result = run("build", "relu", "shape=64", "--device", "v100", "--run")
    assert result.exit_code == 2 and "v100" in result.stderr and "not present" in result.stderr


def test_a_kernel_is_saved_on_demand(tmp_path):
    words = ("build", "matmul", "m=8", "n=8", "k=8", "--device", "mi50", "--top-k", "1", "--save", str(tmp_path / "kernel"))
    assert f"saved in {tmp_path}/kernel: its README.md says how to run it" in ok(*words)
    assert "saved in {0}: rg.load('{0}') gives it back".format(tmp_path / "cuda") in ok(
        *words[:5], "--device", "v100", "--save", str(tmp_path / "cuda")
    )
    assert json.loads(ok(*words, "--json"))["saved"] == str(tmp_path / "kernel")
    assert (tmp_path / "kernel" / "launcher.py").exists()


def test_an_einsum_string_takes_a_size_for_every_letter():
    found = json.loads(ok("explain", "bmk,bkn->bmn", "b=2", "m=16", "k=8", "n=32", "--device", "v100", "--json"))
    assert found["signature"] == "kernel(A: float32[2, 16, 8], B: float32[2, 8, 32]) -> Y: float32[2, 16, 32]"


def test_explain_runs_nothing_and_names_the_runner_up():
    text = ok("explain", "matmul", "m=256", "n=256", "k=256", "--device", "v100")
    assert "why it lost" in text and "not measured" in text


def test_devices_are_listed_with_whether_they_are_present():
    text = ok("devices")
    assert "v100" in text and "mi50" in text and "ipu" in text
    found = json.loads(ok("devices", "--json"))
    assert found["cpu"]["present"] is True and found["v100"]["present"] is False
    assert "not present" in found["v100"]["missing"]
    assert found["v100"]["peak_gflop_s"] == pytest.approx(80 * 64 * 2 * 1380 / 1e3)  # units, lanes, fma, MHz
    assert "16 GiB per device" in ok("devices", "v100")


@pytest.mark.parametrize("name", list(OPERATORS))
@pytest.mark.every(13)
def test_every_operator_is_listed_and_its_example_makes_an_expression(name):
    assert name in ok("ops")
    assert json.loads(ok("ops", "--json"))[name]["example"] == OPERATORS[name].example
    problem, *sizes = OPERATORS[name].example.split()
    assert expression(problem, sizes).producer is not None


@pytest.mark.parametrize(
    ("name", "count"), [("roller", 119), ("autotvm-resnet18", 12), ("pruner-linears", 192), ("pruner-attention", 24)]
)
def test_a_suite_is_listed_with_its_source(name, count):
    found = json.loads(ok("ops", "--suite", name, "--json"))
    assert len(found["entries"]) == count and found["source"]
    assert f"{count} operators" in ok("ops", "--suite", name)


def test_an_entry_of_a_suite_is_a_problem():
    found = json.loads(ok("explain", "roller:E19", "--device", "v100", "--json"))
    assert found["signature"] == "kernel(X: float32[128, 512, 7, 7]) -> Y: float32[128, 512, 7, 7]"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["ops", "--suite", "rollr"], "there is no suite 'rollr'; did you mean roller?"),
        (["explain", "roller:C99"], "there is no entry of suite roller 'C99'; did you mean "),
        (["explain", "roller:C0", "m=4"], "roller:C0 is an entry of a suite and has its sizes; expected no 'm=4'"),
        (["build", "matmul", "m=64"], "matmul lacks n, k; an example: matmul m=1024 n=1024 k=1024"),
        (["build", "matmull", "m=64"], "there is no operator 'matmull'; did you mean matmul?"),
        (["build", "zzz"], "expected one of matmul, "),
        (["build", "matmul", "m=64", "n=x", "k=3"], "n is 'x'; expected an integer, such as n=64"),
        (["build", "matmul", "m=64", "n=-1", "k=3"], "expected an integer of at least 0"),
        (["build", "matmul", "m=64", "n=1,2", "k=3"], "n is (1, 2); expected an integer, such as n=64"),
        (["build", "matmul", "m=64", "m=64"], "m is given twice"),
        (["build", "matmul", "64"], "'64' is no size; expected name=number"),
        (["build", "matmul", "m=4", "n=4", "k=4", "dtype=int8"], "matmul has no size 'dtype'; expected --dtype int8"),
        (["build", "matmul", "m=4", "n=4", "k=4", "q=1"], "matmul has no size 'q'; expected m, n, k, transpose_a"),
        (["build", "relu", "shape=4*4"], "shape is '4*4'; expected numbers joined by x, such as shape=64x128"),
        (["build", "sum", "shape=4x4", "axis=7"], "axis is 7"),
        (["build", "bias_add", "shape=4x4", "axis=2"], "axis is 2; expected -2 to 1 for shape (4, 4)"),
        (["build", "mk,kn->mn", "m=4", "k=4"], 'einsum "mk,kn->mn" lacks n; an example: "mk,kn->mn" m=64 k=64 n=64'),
        (["build", "relu", "shape=64", "--dtype", "float23"], "'float23'; expected one of"),
        (["build", "relu", "shape=64", "--device", "v10"], "did you mean v100?"),
        (["build", "relu", "shape=64", "--device", "none.json"], "none.json: cannot be read"),
        (["build", "relu", "shape=64", "--top-k", "0"], "top_k is 0; expected None or an integer from 1 to 50"),
        (["build", "relu", "shape=64", "--top-k", "x"], "'x' is not a valid integer"),
        (["build", "mk,kn-mn", "m=4", "k=4"], "einsum \"mk,kn-mn\": '-' is no axis; expected letters, such as"),
        (["build", "relu", "shape=64", "--device", "opencl:zzz:9"], "device='opencl:zzz:9': "),
        (["build"], "Missing argument 'PROBLEM'. Usage: main build [OPTIONS] PROBLEM [SIZES]..."),
        (["cache", "bogus"], "there is no command 'bogus'; expected one of clear, list, verify"),
        (["verify", "trian"], "there is no command 'trian'; did you mean train?"),
        (["ops", "matmull"], "there is no operator 'matmull'; did you mean matmul?"),
        (["ops", "matmul", "--suite", "roller"], "'matmul' beside --suite; expected one of the two"),
        (["ops", "matmul", "relu"], "Got unexpected extra argument (relu) Usage: main ops [OPTIONS] [NAME]"),
        (["bench", "report", "-o", "/nonexistent/x.html"], "/nonexistent/x.html cannot be written: /nonexistent is no"),
        (["bench", "report", "-o", "/dev/full/x.html"], "/dev/full is no directory"),
        (["explain", "m.onnx", "--html", "/nonexistent/x.html"], "/nonexistent/x.html cannot be written: /nonexistent"),
        (["devices", "new", "mine", "-o", "/nonexistent/m.json"], "/nonexistent/m.json cannot be written: /nonexistent"),
        (["devices", "what-if", "v100", "relu", "--plot", "/nonexistent/x.svg"], "/nonexistent is no directory"),
        (["build", "relu", "shape=64", "--save", "/dev/full"], "/dev/full is a file; expected a new name"),
        (["build", "relu", "shape=64", "--save", "/proc/x"], "/proc/x cannot be written: /proc: "),
        (["run", "m.onnx", "--save", "/proc/x/y"], "/proc/x/y cannot be written: /proc: "),
        (["run", "m.onnx", "--output", "/nonexistent/y.npy"], "/nonexistent/y.npy cannot be written: /nonexistent is"),
        (["records", "import", "none.jsonl"], "File 'none.jsonl' does not exist"),
        (["biuld"], "there is no command 'biuld'; did you mean build?"),
        (["devices", "v10"], "did you mean v100?"),
    ],
)  # fmt: skip
def test_errors_are_one_line_with_exit_code_2(words, text):
    result = run(*words)
    assert result.exit_code == 2
    assert text in result.stderr and result.stderr.count("\n") == 1 and result.stderr.startswith("rollergen: ")
    assert not result.stdout


def test_a_message_of_several_lines_becomes_one():
    @click.group(cls=OneLineErrors)
    def group(): ...

    @group.command()
    def fail():
        raise RollergenError("first\n  second\n")

    assert CliRunner().invoke(group, ["fail"]).stderr == "rollergen: first; second\n"


def test_errors_after_json_are_an_object_too():
    result = run("build", "matmul", "m=64", "--json")
    assert result.exit_code == 2
    assert json.loads(result.stdout)["error"]["kind"] == "ArgumentError"


HEAVY = {"sympy", "rollergen.build", "rollergen.emit", "rollergen.construct", "rollergen.program.model"}
LIGHT = """
import sys
from click.testing import CliRunner
from rollergen.__main__ import main
for words in {words!r}:
    CliRunner().invoke(main, words)
    print(words, sorted({heavy!r} & set(sys.modules)))
"""


def test_help_and_errors_about_names_load_nothing_that_computes():
    """So that they come at once."""
    groups = [name for name in COMMANDS if isinstance(main.get_command(click.Context(main), name), click.Group)]
    under = [[name, one] for name in groups for one in main.get_command(click.Context(main), name).list_commands(None)]
    words = [[*one, "--help"] for one in (*([name] for name in COMMANDS), *under) if one != ["bench", "run"]]
    words += [["devices", "compare", "zzz", "v100"], ["devices", "sensitivity", "zzz"], ["devices", "fit", "zzz"]]
    words += [["records", "prune"], ["bench", "suite", "--only", "zzz"], ["build", "relu", "--device", "zzz"]]
    words += [["build", "relu", "--top-k", "0"], ["build", "relu", "--save", "/proc/x"], ["records", "import", "none"]]
    program = LIGHT.format(words=words, heavy=HEAVY)
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert [line for line in done.stdout.splitlines() if not line.endswith(" []")] == []
    assert len(done.stdout.splitlines()) == len(words) > 30


def test_one_operator_is_shown_with_its_example():
    assert ok("ops", "softmax").splitlines()[-2:] == ["rollergen build softmax shape=4096x1024", "rollergen build log_softmax shape=4096x1024"]


@pytest.mark.parametrize("words", ["", "--help", "build --help", "explain -h", "devices -h", "ops -h"])
def test_help_is_given(words):
    assert "Usage:" in ok(*words.split())


def test_the_version_is_given():
    assert "version" in ok("--version")


def test_every_operator_of_the_library_is_on_the_command_line():
    assert set(rg.ops.__all__) - set(OPERATORS) == {"split", "chunk", "dynamic_quantize", "cummax", "cummin", "einsum"}  # make several; a string


@pytest.mark.parametrize(
    ("words", "shape", "dtype"),
    [
        ("matmul m=3 n=5 k=7 transpose_a=1 transpose_b=1", (3, 5), "float32"),
        ("conv2d n=1 c=4 h=9 w=9 f=6 kh=3 kw=3 groups=2 padding=same stride=2,1", (1, 6, 5, 9), "float32"),
        ("conv_transpose2d n=1 c=4 h=5 w=5 f=6 kh=3 kw=3 groups=2", (1, 6, 7, 7), "float32"),
        ("depthwise_conv2d n=1 c=4 h=9 w=9 kh=3 kw=3 multiplier=2", (1, 8, 7, 7), "float32"),
        ("max_pool2d n=1 c=4 h=9 w=9 kernel_size=3,2 ceil_mode=1", (1, 4, 3, 5), "float32"),
        ("argmax shape=4x5 axis=1", (4,), "int64"),
        ("sum shape=4x5x6 axis=0,2 keepdims=1", (1, 5, 1), "float32"),
        ("gelu shape=4x5 approximate=tanh", (4, 5), "float32"),
        ("layer_norm shape=4x5 eps=1e-3", (4, 5), "float32"),
        ("clip shape=4x5 min=-0.5", (4, 5), "float32"),
        ("quantize shape=4x5 scale=.25 zero_point=3", (4, 5), "int8"),
        ("pad shape=4x5 pad=2,2,1,0 mode=replicate", (5, 9), "float32"),
        ("getitem shape=4x9 stop=-1 step=3", (4, 3), "float32"),
        ("cast shape=4x5 to=int8", (4, 5), "int8"),
        ("scaled_dot_product_attention b=2 m=3 n=4 d=5 is_causal=1", (2, 3, 5), "float32"),
    ],
)
def test_options_of_an_operator_are_those_of_the_library(words, shape, dtype):
    problem, *sizes = words.split()
    made = expression(problem, sizes)
    assert (made.shape, made.dtype) == (shape, dtype)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("max_pool2d n=1 c=4 h=9 w=9", "max_pool2d lacks kernel_size; an example: max_pool2d n=1"),
        ("sum shape=4x5 keepdims=2", "keepdim is 2; expected 0 or 1"),
        ("conv2d n=1 c=4 h=9 w=9 f=6 kh=3 kw=3 groups=3", "groups is 3; expected a divisor of c=4"),
        ("gelu shape=4x5 approximate=erf", "gelu: approximate is 'erf'; expected \"none\" or \"tanh\""),
    ],
)
def test_wrong_options_of_an_operator_are_refused(words, text):
    result = run("build", *words.split())
    assert result.exit_code == 2 and text in result.stderr


def test_an_operator_without_an_entry_of_its_own_kind_builds_and_is_checked():
    found = json.loads(ok("build", "log_softmax", "shape=5x37", "--json", "--device", "cpu"))
    assert found["check"]["compared_elements"] >= 5 * 37


def test_the_list_of_commands_loads_none_of_them():
    """Help and errors come at once."""
    program = (
        "import sys, rollergen.__main__\n"
        "print([n for n in sys.modules if n.startswith('rollergen.cli.') or n in ('numpy', 'sympy')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['rollergen.cli.errors', 'rollergen.cli.commands']"


HELPED = [[name] for name in main.list_commands(None)] + [["records", "list"], ["cache", "list"], ["devices", "what-if"]]


@pytest.mark.parametrize("words", HELPED, ids=" ".join)
def test_help_loads_nothing_that_computes(words):
    """A tenth of a second, and 1.8 while it did."""
    program = "import sys; from rollergen.__main__ import main\ntry:\n  main([*sys.argv[1:], '-h'])\nexcept SystemExit:\n"
    program += "  print([n for n in ('numpy', 'sympy', 'rollergen.expr.language') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("[]") and "Usage" in done.stdout


WRONG = {
    "build matmul m=4 n=4 k=4 --device v101": ["numpy"],
    "explain relu shape=4 --device nosuch.json": ["numpy"],
    "run x.onnx --device v101": ["numpy"],
    "devices v101": ["rollergen.emit", "rollergen.lower"],
    "devices show v101": ["numpy"],
    "build nosuch": ["sympy", "rollergen.build", "rollergen.emit"],
    "build matmul m=4": ["sympy", "rollergen.build", "rollergen.emit"],
}


@pytest.mark.parametrize("words", WRONG)
def test_errors_come_before_what_they_do_without_is_loaded(words):
    """A fifth of a second, and 2.7 while the build was loaded first."""
    program = "import sys; from rollergen.__main__ import main\ntry:\n  main(sys.argv[1:])\nexcept SystemExit as ended:\n"
    program += "  print(ended.code, sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program, *words.split()], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("2 ") and done.stderr.startswith("rollergen: ") and "Traceback" not in done.stderr
    assert [name for name in WRONG[words] if f"'{name}'" in done.stdout] == []


def test_a_warning_is_one_line(capsys):
    @click.group(cls=OneLineErrors)
    def group() -> None: ...

    @group.command()
    def warns() -> None:
        warnings.warn("two\nlines", UserWarning, stacklevel=1)

    with pytest.raises(SystemExit):
        group.main(["warns"])
    assert capsys.readouterr().err == "rollergen: warning: two lines\n"


def test_no_list_of_commands_cuts_what_it_tells():
    groups = [name for name in main.list_commands(None) if isinstance(main.get_command(None, name), click.Group)]
    assert len(groups) == 6
    assert [line for name in groups for line in ok(name, "-h").splitlines()[1:] if line.endswith("...")] == []


def test_every_command_is_told_in_one_line_and_completed():
    context = click.Context(main)
    told = ok("-h").splitlines()
    for name in main.list_commands(context):
        (line,) = [one for one in told if one.split()[:1] == [name]]
        assert main.get_command(context, name) is not None and line.endswith(".") and len(line) < 80
    assert [one.value for one in main.shell_complete(context, "ex")] == ["explain"]


@pytest.mark.parametrize(
    ("words", "last", "found"),
    [
        ("", "cam", ["campaign"]),
        ("build", "softm", ["softmax"]),
        ("build softmax --device", "v100", ["v100", "v100-sxm2"]),
        ("explain relu --device", "mali", ["mali-g71"]),
        ("devices", "v100", ["v100", "v100-sxm2"]),
        ("devices", "sens", ["sensitivity"]),
        ("devices show", "mi5", ["mi50"]),
        ("devices what-if v100", "softm", ["softmax"]),
        ("bench run", "accur", ["accuracy"]),
    ],
)
def test_shells_complete_commands_operators_and_devices(words, last, found):
    completer = ShellComplete(main, {}, "rollergen", "_ROLLERGEN_COMPLETE")
    assert [one.value for one in completer.get_completions(words.split(), last)] == found
