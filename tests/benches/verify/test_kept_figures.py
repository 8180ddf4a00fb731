"""The committed figures of the verifier, and what is said of them."""

import json
import re
from pathlib import Path

from benches.verify.splits import STRUCTURE
from benches.verify.tables import WIDTH, markdown
from rollergen.verify.objectives import DEFAULT_OBJECTIVE, OBJECTIVES

DIRECTORY = Path(__file__).parents[3] / "benches" / "results" / "verifier"


def kept(name):
    return json.loads((DIRECTORY / f"{name}.json").read_text(encoding="utf-8"))


def test_the_committed_tables_are_those_of_the_figures_beside_them():
    assert (DIRECTORY / "TABLES.md").read_text(encoding="utf-8") == markdown(DIRECTORY)


def test_no_line_of_the_tables_is_wider_than_a_terminal():
    assert max(map(len, markdown(DIRECTORY).splitlines())) <= WIDTH


def test_the_tables_say_what_a_structure_is_how_the_objective_was_chosen_and_what_pacm_is():
    text = " ".join(markdown(DIRECTORY).split())
    assert text.count(STRUCTURE) == len(list(DIRECTORY.glob("*.svg"))) - 3  # four figures are of the ablation
    assert "width 128, 30 epochs, momentum 0.99 (the paper: width 256, 50 epochs, momentum 0.99)" in text
    assert "nested: of the objectives the best by mean of macro Top-1 and Top-3" in text


def test_every_file_that_is_described_is_there_and_every_one_that_is_there_is_described():
    text = (DIRECTORY / "README.md").read_text(encoding="utf-8")
    described = set(re.findall(r"`(\w+\.(?:json|svg))`", text))
    assert described == {path.name for path in DIRECTORY.iterdir() if path.suffix in (".json", ".svg")}


def test_the_default_objective_is_the_one_that_nested_folds_choose_most_often():
    content = kept("evaluation")
    chosen = content["protocol"]["nested"]["chosen"]
    assert set(chosen) == set(OBJECTIVES) and max(chosen, key=chosen.get) == DEFAULT_OBJECTIVE
    seeds = content["protocol"].get("seeds of", {}).get("nested", content["protocol"]["seeds"])
    assert sum(chosen.values()) == len(seeds) * content["protocol"]["folds"]
    assert "nested" in content["rankers"] and "nested" in content["release"]


def test_every_figure_is_of_five_seeds_or_says_of_which():
    for name in ("evaluation", "searches", "stream", "ablation"):
        assert kept(name)["protocol"]["seeds"] == [0, 1, 2, 3, 4], name
    content = kept("evaluation")
    of = content["protocol"].get("seeds of", {})
    for name, line in content["rankers"].items():
        assert len(line["seeds' top-3"]) == len(of.get(name, content["protocol"]["seeds"])), name


def test_what_was_held_out_whole_is_not_slower_by_more_than_two_percent():
    lines = kept("ablation")["abstention"]
    for line in lines.values():
        assert min(line["3 slots, with abstention"], line["10 slots, with abstention"]) >= 0.98
    assert lines["all"]["abstained"] == 1, "no class that it has not seen is ranked"
    assert 0 < lines["structures"]["abstained"] < 1
