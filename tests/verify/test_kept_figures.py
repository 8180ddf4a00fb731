"""The committed figures of the verifier, and what is said of them."""

import json
import re
from pathlib import Path

from rollergen.verify.objectives import DEFAULT_OBJECTIVE, OBJECTIVES
from rollergen.verify.tables import markdown

DIRECTORY = Path(__file__).parents[2] / "benches" / "results" / "verifier"


def test_the_committed_tables_are_those_of_the_figures_beside_them():
    assert (DIRECTORY / "TABLES.md").read_text(encoding="utf-8") == markdown(DIRECTORY)


def test_every_file_that_is_described_is_there_and_every_one_that_is_there_is_described():
    text = (DIRECTORY / "README.md").read_text(encoding="utf-8")
    described = set(re.findall(r"`(\w+\.(?:json|svg))`", text))
    assert described == {path.name for path in DIRECTORY.iterdir() if path.suffix in (".json", ".svg")}


def test_the_default_objective_is_the_one_that_the_evaluation_found_best():
    rankers = json.loads((DIRECTORY / "evaluation.json").read_text(encoding="utf-8"))["rankers"]
    best = lambda figure: max(OBJECTIVES, key=lambda name: figure(rankers[name]))
    assert best(lambda line: line["top-1"]["mean"]) == best(lambda line: line["worst top-3"]["value"]) == DEFAULT_OBJECTIVE
    top_3 = {name: rankers[name]["top-3"]["mean"] for name in OBJECTIVES}
    assert top_3[DEFAULT_OBJECTIVE] > max(top_3.values()) - 0.002
