"""The pages under docs/ show what the program says, and lead somewhere."""

import importlib.util
import re
from pathlib import Path

import pytest

from rollergen.__main__ import main
from rollergen.bench.readme import linked, rendered

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.fixture(scope="module")
def generate():
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_pages_show_what_the_program_prints(generate):
    """`python docs/generate.py` renews them."""
    shown = {path.name: dict(generate.blocks(path.read_text())) for path in generate.PAGES}
    assert {name for page in shown.values() for name in page} == set(generate.GENERATED)
    assert shown == {name: {one: generate.GENERATED[one]() for one in page} for name, page in shown.items()}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_links_lead_to_files_of_the_checkout(page):
    targets = re.findall(r"\]\((?!https?://)([^)#]+)", page.read_text())
    assert [one for one in targets if not (page.parent / one).exists()] == []


def headings(page):
    """The anchors of a page's headings, as GitHub and MyST make them."""
    found = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in found}


def test_links_to_headings_lead_there():
    """Those of the guides outside docs/ too."""
    guides = [page for folder in ("devices", "examples", "benches/gpu") for page in (ROOT / folder).glob("*.md")]
    lost = [
        (page.name, path, anchor)
        for page in [*PAGES, *guides]
        for path, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)#([^)\s]+)\)", page.read_text())
        if (path or page.name).endswith(".md") and anchor not in headings(page.parent / path if path else page)
    ]
    assert lost == []


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_files_that_pages_name_are_there(page):
    """By their paths from the top, from a folder of it, or by the last of them."""
    named = re.findall(r"`([\w/]+/[\w/]+\.(?:py|md|c|cl)|test_\w+\.py)`", page.read_text())
    there = lambda name: (ROOT / name).exists() or any(ROOT.glob(f"[!.]*/**/{name}"))
    assert [name for name in named if not there(name)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_every_figure_stands_in_its_result_file(page):
    text = page.read_text()
    assert rendered(text, ROOT) == text


def test_the_figures_of_the_measurements_are_linked():
    assert len(list(linked((ROOT / "docs" / "measurements.md").read_text()))) > 20


def test_the_list_of_commands_is_whole():
    (listed,) = re.findall(r"^`rollergen ([\w| ]+)`", (ROOT / "docs" / "kernels.md").read_text(), re.MULTILINE)
    assert sorted(listed.split(" | ")) == sorted(main.list_commands(None))


def test_every_variable_of_the_environment_is_listed():
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    sources = [*(ROOT / "rollergen").rglob("*.py"), *(ROOT / "hal").rglob("*.py")]
    named = {name for path in sources for name in re.findall(r'"((?:ROLLERGEN|POCL)_[A-Z_]+)"', path.read_text())}
    assert len(named) >= 5 and [name for name in named if f"`{name}`" not in page] == []


def test_the_readme_is_short():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 90 and len(text.split()) <= 900


def test_every_claim_of_the_readme_leads_to_what_shows_it():
    """Of the lists and of the tables, but for what is told to run nowhere."""
    lines = (ROOT / "README.md").read_text().splitlines()
    claims = [one for one in lines if one.startswith("- ") or (one.startswith("| ") and " no | no | no |" not in one)]
    heads = ("| device |", "| what |")
    assert len(claims) > 20 and [one for one in claims if "](" not in one and not one.startswith(heads)] == []
