"""Commands that pages tell exist, with all of their options; those of the models' page and of other machines run.

Not run: what installs packages, needs a device that is absent or takes minutes (probes, whole test suites, benches).
"""

import configparser
import re
import shlex
from pathlib import Path

import click
import pytest

from rollergen.__main__ import main
from rollergen.bench import scripts
from tests.cli.test_cli import ok

ROOT = Path(__file__).parent.parent
GUIDES = [page for folder in ("docs", "devices", "examples", "benches/gpu") for page in (ROOT / folder).glob("*.md")]
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(GUIDES)]


def commands(page: Path, program: str) -> list[str]:
    """What begins with that program, in backticks or as a line of a block, without comments."""
    text = page.read_text()
    blocks = [block.replace("\\\n", " ") for kind, block in FENCED.findall(text) if kind in ("", "sh")]
    lines = [part.strip() for block in blocks for line in block.splitlines() for part in line.split("#")[0].split("&&")]
    spans = [" ".join(one.split()) for one in re.findall(r"`([^`]+)`", FENCED.sub("", text))]
    return [one for one in (*lines, *spans) if one.startswith(f"{program} ")]


TOLD = [(page.name, one) for page in PAGES for one in commands(page, "rollergen") if " | " not in one]


def test_commands_are_found():
    assert len(TOLD) > 40


@pytest.mark.parametrize(("page", "told"), TOLD, ids=lambda one: one)
def test_a_command_that_a_page_tells_exists_with_its_options(page, told):
    command: click.Command = main
    words = shlex.split(told)[1:]
    context = click.Context(main)
    while isinstance(command, click.Group) and words and (found := command.get_command(context, words[0])):
        command, words = found, words[1:]
    if isinstance(command, click.Group) and words and not words[0].startswith("-"):
        assert command.name == "devices", f"{words[0]} is no command"  # `devices v100` lists
    options = {name for one in command.params for name in (*one.opts, *one.secondary_opts)} | {"--help", "-h"}
    if command.name == "run" and told.startswith("rollergen bench run"):  # its options are those of the bench
        source = scripts.script(ROOT, words[0]).path.read_text() if words[0].islower() else ""
        options |= set(re.findall(r'"(--[\w-]+)"', source))
    given = [word.partition("=")[0] for word in words if re.fullmatch(r"-{1,2}[a-z][\w-]*(=.*)?", word)]
    assert [word for word in given if word not in options] == []


def test_extras_that_pages_tell_exist():
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    told = {one for page in PAGES for extras in re.findall(r'"(?:rollergen|\.)\[([\w,]+)\]"', page.read_text()) for one in extras.split(",")}
    assert len(told) > 8 and told <= set(setup["options.extras_require"])


def test_the_commands_of_the_models_page_run(tmp_path, monkeypatch):
    onnx = pytest.importorskip("onnx")
    numpy = pytest.importorskip("numpy")
    monkeypatch.chdir(tmp_path)

    def save(rows):
        value = lambda name: onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [rows, 4])
        node = onnx.helper.make_node("Relu", ["x"], ["y"])
        graph = onnx.helper.make_graph([node], "one", [value("x")], [value("y")])
        onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)]), "model.onnx")

    numpy.save("x.npy", numpy.full((4, 4), -1, "float32"))
    told = [one for one in commands(ROOT / "docs" / "models.md", "rollergen") if "model.onnx" in one]
    assert len(told) == 3
    for one in told:
        save("batch" if "batch=" in one else 4)
        assert ok(*shlex.split(one)[1:])
    assert (numpy.load("y.npy") == 0).all() and "<svg" in (tmp_path / "report.html").read_text()


def test_the_commands_of_the_page_on_other_machines_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = ROOT / "devices" / "OTHER_MACHINES.md"
    (text,) = re.findall(r"```json\n(.*?)```", page.read_text(), re.DOTALL)
    (tmp_path / "npu.json").write_text(text)
    told = [one for one in commands(page, "rollergen") if "npu.json" in one]
    assert len(told) >= 2 and all(ok(*shlex.split(one)[1:]) for one in told)
