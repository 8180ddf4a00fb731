"""The list of the papers' figures: each has one entry, and what an entry says of itself holds."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import rollergen as rg
from benches.seeds import linked, predicted
from benches.seeds.bounds import touched_bytes
from benches.seeds.claims import CLAIMS, chosen, small
from benches.seeds.drawn import drawn, figures
from benches.seeds.finding import IMPOSSIBLE, MEASURED, MODEL, Finding
from benches.seeds.networks import networks
from rollergen.bench.suites import suite
from rollergen.expr.stages import cut

FIGURES = {
    "ROLLER (OSDI 2022)": [f"Fig. {n}" for n in range(10, 20)] + [f"Table {n}" for n in (2, 3, 4, 5, 6)],
    "AutoTVM (NeurIPS 2018)": ["Table 1", "Fig. 9", "Fig. 10", "Fig. 11"],
    "Pruner (ASPLOS 2025)": ["Best_k", "top-k", "Tables 5 to 7, Fig. 9", "Fig. 10", "Table 8"],
}


def test_every_figure_and_table_has_its_entry_and_every_entry_its_own_name():
    listed = [claim.of for claim in CLAIMS]
    for paper, places in FIGURES.items():
        for place in places:
            assert f"{paper}, {place}" in listed
    assert len({claim.id for claim in CLAIMS}) == len(CLAIMS)


def test_a_finding_that_was_not_measured_says_why():
    with pytest.raises(ValueError, match="says why"):
        Finding(MODEL, "1 ms")
    with pytest.raises(ValueError, match="expected one of"):
        Finding("guessed", "1 ms")


def test_an_absent_device_is_answered_by_the_model_and_told_so():
    entries = [entry for entry in suite("roller").entries if entry.id in ("M1", "E0")]
    found = predicted.operators("v100", predicted.named(entries))
    assert found.state == MODEL and "is present" in found.why
    assert [row["operator"] for row in found.rows] == ["M1", "E0"]
    assert all(0 < row["share of the roofline"] <= 1 for row in found.rows)


def test_a_whole_network_is_predicted_for_an_absent_device():
    pytest.importorskip("torch")
    found = networks("k80", [("DQN", 2)])
    assert found.state == MODEL and "is present" in found.why
    (row,) = found.rows
    assert row["batch"] == 2 and row["predicted ms"] > 0 and not row["host steps"]


def test_construction_is_measured_wherever_it_runs():
    entries = [entry for entry in suite("roller").entries if entry.id == "E0"]
    found = predicted.construction("mi50", predicted.named(entries), repeats=1)
    assert found.state == MEASURED and found.rows[0]["construct ms"] > 0
    assert "compile one ms" not in found.rows[0]  # its sources are OpenCL C, which NVIDIA's compiler does not read


def test_small_operators_are_those_of_one_image():
    for _, make in small()[:40]:
        shape = make().shape
        assert shape[0] == 1 or len(shape) < 4


def test_without_axis_fusion_a_convolution_keeps_its_axes_apart():
    entry = next(entry for entry in suite("roller").entries if entry.id == "C9")
    graph = predicted.unfused(entry.make)
    assert len(graph.tensor_ops[0].axes) > len(predicted.canonicalize(entry.make()).tensor_ops[0].axes)


def test_an_operator_that_no_tile_divides_counts_as_one_without_a_program():
    entry = next(entry for entry in suite("roller").entries if entry.id == "C9")
    found = predicted.irregular("v100", predicted.named([entry]))
    assert found.rows[0]["neither us"] is None and found.rows[0]["fusion and padding us"] > 0
    assert found.ours.endswith("1 of 1 operators have no program without both")


def test_a_figure_that_another_bench_keeps_is_read_from_its_newest_file(tmp_path, monkeypatch):
    monkeypatch.setattr(linked, "RESULTS", tmp_path)
    absent = linked.linked("ablation_*.json", "make", linked.alignment_rules)
    assert absent.state == IMPOSSIBLE and "`make` makes one" in absent.why
    seconds = {"none": 3.0, "+ tensor shape": 2.0}
    rows = [{"case": "a", "device": "cpu", "seconds": seconds}, {"case": "a", "device": "v100", "seconds": seconds}]
    (tmp_path / "ablation_x_2026-01-02.json").write_text(json.dumps({"rows": rows}))
    (tmp_path / "ablation_y_2026-01-01.json").write_text(json.dumps({"rows": []}))
    found = linked.linked("ablation_*.json", "make", linked.alignment_rules)
    assert found.state == MEASURED and found.rows == ({"operator": "a", "none": 1.5, "+ tensor shape": 1.0},)


def test_the_bytes_that_bound_an_operator_are_those_that_the_suite_counts():
    for entry in suite("roller").entries:
        if entry.kind != "elementwise" or entry.id in ("E0", "E1"):
            assert touched_bytes(cut(entry.make(), None)) == entry.fields["touched_bytes"], entry.id


def test_construction_as_a_size_grows_says_how_flat_it_is():
    found = predicted.construction_scaling("v100", (64, 1 << 20), lambda n: rg.ops.relu(rg.tensor("X", (n,))), "n")
    times = [row["construct ms"] for row in found.rows]
    assert found.state == MEASURED and f"takes {max(times) / min(times):.2f} times as long as the fastest" in found.ours


def test_searches_of_two_papers_are_told_apart():
    trials = {"random": 20.0, "genetic": 18.0, "AutoTVM": 12.0, "AutoTVM, diverse batches": 11.0, "AutoTVM, transfer": 8.0}
    trials |= {"draft (Pruner)": 10.0, "analytical": 8.0, "verifier": 6.0, "verifier, online residual": 6.0}
    content = {"searches": {name: {"within 2%": {"mean": mean, "seeds": []}} for name, mean in trials.items()}}
    ours, rows = linked.trials(content)
    assert ours.startswith("random 20.0; genetic 18.0; AutoTVM 12.0") and len(rows) == 5
    ours, rows = linked.fewer_trials(content)
    assert ours.startswith("times fewer than AutoTVM's 12.0: draft (Pruner) 1.20; analytical 1.50; verifier 2.00")
    assert [row["search"] for row in rows] == list(linked.PRUNER)


ROOT = Path(__file__).parents[2]
DOCUMENTS = [json.loads(path.read_text()) for path in (ROOT / "benches" / "results").glob("seeds_*.json")]
DOCUMENTS.sort(key=lambda document: document["date"])
KEPT = {one["claim"]: document.get(one["claim"]) for document in DOCUMENTS for one in document["claims"]}


@pytest.mark.parametrize("claim", [claim for claim, rows in KEPT.items() if rows])
def test_a_figure_is_drawn_from_its_rows(claim, tmp_path):
    pytest.importorskip("matplotlib")
    panels = drawn(claim, KEPT[claim]).get_axes()
    assert [panel.get_ylabel() for panel in panels] == figures(KEPT[claim]) != []
    assert all(len(panel.lines[0].get_xdata() if panel.lines else panel.patches) == len(KEPT[claim]) for panel in panels)


def test_an_unknown_claim_is_refused_and_an_exact_name_means_itself():
    assert [one.id for one in chosen("roller-table3")] == ["roller-table3"]
    assert len(chosen("roller-table3-")) == 1 and len(chosen("")) == len(CLAIMS)
    words = [sys.executable, "benches/bench_seeds.py", "--claim", "roller-fig99"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "no entry has 'roller-fig99' in its name; --list names them" in done.stderr


def test_the_list_loads_nothing_of_what_its_entries_run():
    """So that help and errors come at once."""
    program = "import sys, benches.seeds.claims; print(sorted({'numpy', 'sympy', 'rollergen.build'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
