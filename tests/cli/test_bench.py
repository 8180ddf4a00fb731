"""``rollergen bench``: the benches of a checkout and their results as a page."""

import json
import math
import subprocess
import sys
from html.parser import HTMLParser
from itertools import pairwise

import pytest
from click.testing import CliRunner

from rollergen.__main__ import main
from rollergen.bench import scripts
from rollergen.bench.results import figures, read, results
from rollergen.errors import ArgumentError, DeviceError

PAGE_PACKAGES = ("jinja2", "matplotlib")


def run(*words):
    return CliRunner().invoke(main, ["bench", *map(str, words)])


def test_every_bench_is_listed_with_its_purpose():
    found = json.loads(run("list", "--json").output)
    assert {"speed", "operators", "measured_spaces", "check_gate"} <= found["benches"].keys()
    assert all(found["benches"].values()) and len(found["results"]) >= 10


def test_the_table_of_benches_leaves_their_commands_to_their_help():
    found = scripts.scripts(scripts.checkout())
    assert all(one.what and ".py" not in one.what and one.purpose.startswith(one.what) for one in found)
    output = run("list").output
    assert "rollergen bench run NAME --help" in output and "--case" not in output


def test_an_unknown_bench_is_refused_with_the_nearest_one():
    result = run("run", "sped")
    assert result.exit_code == 2 and "did you mean speed?" in result.output


def test_a_bench_is_run_with_its_own_arguments_and_gives_its_status(tmp_path, monkeypatch):
    path = tmp_path / "bench_x.py"
    path.write_text("import sys\nsys.exit(int(sys.argv[2]))\n")
    assert scripts.run(scripts.Script("x", "", path), ["--code", "7"]) == 7


@pytest.mark.parametrize(
    ("name", "words", "told"),
    [
        ("operators", ["--case", "zzz"], "no case has 'zzz' in its name; --list names them"),
        ("operators", ["--kind", "norms", "--case", "zzz"], "no case of a class with 'norms' in its name has 'zzz'"),
        ("models", ["zzz"], "'zzz' is none of BERT-base layer, "),
        ("networks", ["zzz"], "'zzz' is none of BERT-base layer, "),
        ("seeds", ["--claim", "zzz"], "no entry has 'zzz' in its name; --list names them"),
    ],
)
def test_a_name_that_a_bench_does_not_have_is_refused_before_anything_heavy_is_imported(name, words, told):
    path = str(scripts.script(scripts.checkout(), name).path)
    watched = (
        f"import atexit, runpy, sys; sys.argv = {[path, *words]}; "
        "atexit.register(lambda: print(sorted({'numpy', 'sympy', 'torch'} & sys.modules.keys()))); "
        f"runpy.run_path({path!r}, run_name='__main__')"
    )
    ended = subprocess.run([sys.executable, "-c", watched], capture_output=True, text=True, check=False)
    assert ended.returncode == 2 and told in ended.stderr and ended.stdout == "[]\n"


def test_a_bench_whose_package_is_not_installed_is_refused_with_what_installs_it(tmp_path):
    path = tmp_path / "bench_x.py"
    path.write_text("import sys\nimport no_such_package.part\nimport beside\n")
    (tmp_path / "beside.py").write_text("")
    with pytest.raises(DeviceError, match=r'the bench x needs no_such_package; pip install "rollergen\[bench\]"'):
        scripts.run(scripts.Script("x", "", path), [])


def test_a_result_becomes_facts_and_tables(tmp_path):
    path = tmp_path / "speed_x.json"
    content = {
        "date": "2026-01-01", "machine": {"cpu": "C", "cores_used": [0], "cores": 2}, "commit": "abc", "cache": "warm",
        "cases": [{"case": "a", "ratio": 1.25, "more": {"x": 1.0, "y": None}}, {"case": "b", "ratio": 0.5, "extra": [1, 2]}],
        "shapes": {"8x8": {"tau": 0.5}},
    }  # fmt: skip
    path.write_text(json.dumps(content))
    found = read(path)
    assert found.facts == (("cache", "warm"),) and dict(found.origin)["machine"] == "C, cores [0] of 2"
    cases, shapes = found.tables
    assert cases.columns == ("case", "ratio", "more: x", "more: y", "extra")
    assert cases.rows == (("a", "1.25", "1", "", ""), ("b", "0.5", "", "", "1, 2"))
    assert cases.ratios == (("a", 1.25), ("b", 0.5)) and shapes.rows == (("8x8", "0.5"),)


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.sources, self.ids = [], [], []

    def handle_starttag(self, tag, attributes):
        facts = dict(attributes)
        self.sources += [facts[name] for name in ("src", "href", "xlink:href") if facts.get(name)]
        self.ids += [facts["id"]] if tag == "h2" and "id" in facts else []
        if tag not in ("meta", "link", "br", "hr", "img"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_whole_holds_every_result_and_asks_for_nothing_from_the_network(tmp_path):
    for package in PAGE_PACKAGES:
        pytest.importorskip(package)
    result = run("report", "-o", tmp_path / "page.html")
    assert result.exit_code == 0, result.output
    from rollergen.bench.page import MOST_BYTES

    assert (tmp_path / "page.html").stat().st_size <= 0.9 * MOST_BYTES  # there is room for results to come
    tags = Tags()
    tags.feed((tmp_path / "page.html").read_text())
    within = ("#", "data:image/svg+xml;base64,", "data:image/png;base64,")
    assert tags.open == [] and all(source.startswith(within) for source in tags.sources)
    drawn = [source for source in tags.sources if source.startswith(within[1])]
    assert len(drawn) == len(figures(scripts.checkout() / "benches" / "results")) > 0
    assert tags.ids == [one.name for one in results(scripts.checkout() / "benches" / "results")]


def test_what_stands_in_a_result_is_text_and_nothing_else(tmp_path):
    for package in PAGE_PACKAGES:
        pytest.importorskip(package)
    from rollergen.bench.page import page

    path = tmp_path / "x.json"
    path.write_text(json.dumps({"note": "<script>alert(1)</script>", "rows": [{"case": "<b>", "ratio": 1.0}]}))
    assert "<script>" not in page([read(path)], "") and "&lt;script&gt;" in page([read(path)], "")


def test_predicted_and_measured_times_of_a_space_are_plotted(tmp_path):
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"milliseconds": {"a space": [[1.0, 2.0], [3, 4]], "no times": [[0, 1]]}}))
    (space,) = read(path).scatters
    assert (space.title, space.points) == ("a space", ((1.0, 2.0), (3.0, 4.0)))
    assert read(path).facts == ()
    for package in PAGE_PACKAGES:
        pytest.importorskip(package)
    from rollergen.bench.page import page

    text = page([read(path)], "")
    assert "a space: predicted against measured" in text and text.count("<svg") == 1 and "measured, ms" in text


CLAIMS = {
    "date": "2026-01-02",
    "claims": [
        {"of": "P, Fig. 1", "what": "w", "state": "model only", "ours": "2 ms", "paper": "", "note": "no X"},
        {"of": "P, Fig. 2", "what": "w", "state": "measured here", "ours": "3 ms", "paper": "4 ms", "note": ""},
    ],
}


def test_the_papers_claims_say_what_was_measured_and_what_is_the_models(tmp_path):
    for package in PAGE_PACKAGES:
        pytest.importorskip(package)
    from rollergen.bench.claims import claim_rows, summary
    from rollergen.bench.page import page

    older, newer = tmp_path / "seeds_old.json", tmp_path / "seeds_new.json"
    once = [{**CLAIMS["claims"][1], "ours": "9 ms"}, {**CLAIMS["claims"][0], "what": "another"}]
    older.write_text(json.dumps({**CLAIMS, "date": "2026-01-01", "claims": once}))
    newer.write_text(json.dumps(CLAIMS))
    found = results(tmp_path)
    rows = claim_rows(found)
    assert [(row.of, row.state, row.ours, row.paper, row.result) for row in rows] == [
        ("P, Fig. 2", "measured here", "3 ms", "4 ms", "seeds_new"),
        ("P, Fig. 1", "model only", "2 ms", "", "seeds_old"),
        ("P, Fig. 1", "model only", "2 ms", "", "seeds_new"),
    ]
    assert summary(rows) == "1 measured here, 2 model only"
    text = page(found, "")
    assert "Claims of the papers" in text and '<td class="model">model only</td>' in text


def test_without_claims_the_page_has_no_section_of_them(tmp_path):
    for package in PAGE_PACKAGES:
        pytest.importorskip(package)
    from rollergen.bench.page import page

    path = tmp_path / "x.json"
    path.write_text(json.dumps({"rows": [{"case": "a", "ratio": 1.0}]}))
    assert "Claims of the papers" not in page([read(path)], "")


def test_what_a_reader_wants_first_stands_first_with_its_aim_and_its_source(tmp_path):
    path = tmp_path / "x_y.json"
    path.write_text(json.dumps({"headlines": [{"what": "regret", "figure": "9 %", "aim": "at most 10 %"}], "n": 1}))
    found = read(path)
    assert [(one.what, one.figure, one.aim, one.met) for one in found.headlines] == [("regret", "9 %", "at most 10 %", None)]
    assert found.facts == (("n", "1"),) and found.tables == ()
    for package in PAGE_PACKAGES:
        pytest.importorskip(package)
    from rollergen.bench.page import page

    text = page([found], "", [scripts.Script("x", "Says how it goes.", path), scripts.Script("z", "No.", path)])
    assert text.index("In brief") < text.index("9 %") < text.index('<h2 id="x_y">')
    assert "Says how it goes." in text and "No." not in text
    assert "In brief" not in page([], "")


def test_a_conclusion_and_a_picture_of_the_aims_stand_before_all_else(tmp_path):
    from rollergen.bench.page import conclusion, page, reached

    path = tmp_path / "x.json"
    lines = [("a", "1.5", "at least 1.2", True), ("b", "0.5 s", "at most 0.3 s", False), ("c", "it runs", "", None)]
    headlines = [dict(zip(("what", "figure", "aim", "met"), line, strict=True)) for line in lines]
    path.write_text(json.dumps({"headlines": headlines}))
    assert conclusion([read(path)]) == "1 of 2 aims are met; what misses its aim is red."
    assert [reached(figure, aim) for _, figure, aim, _ in lines] == pytest.approx([1.25, 0.6, None])
    for package in PAGE_PACKAGES:
        pytest.importorskip(package)
    text = page([read(path)], "")
    assert text.index("1 of 2 aims") < text.index('<div class="bars"') < text.index("<table")
    assert "a [x]" in text and "b [x]" in text and "c [x]" not in text


def test_rows_and_letters_beyond_what_is_shown_are_counted(tmp_path):
    from rollergen.bench.page import LONGEST, WIDEST, page

    path = tmp_path / "x.json"
    path.write_text(json.dumps({"rows": [{"n": n, "long": "y" * 500} for n in range(LONGEST + 3)]}))
    for package in PAGE_PACKAGES:
        pytest.importorskip(package)
    text = page([read(path)], "")
    assert "3 more rows stand in the file" in text and "y" * WIDEST not in text


def test_tables_of_a_page_that_would_be_too_large_show_fewer_rows(tmp_path, monkeypatch):
    from rollergen.bench import page as module

    path = tmp_path / "x.json"
    path.write_text(json.dumps({"rows": [{"n": f"row {n}"} for n in range(module.LONGEST)]}))
    for package in PAGE_PACKAGES:
        pytest.importorskip(package)
    whole = module.page([read(path)], "")
    monkeypatch.setattr(module, "MOST_BYTES", len(whole) - 1)
    smaller = module.page([read(path)], "")
    assert f"row {module.LONGEST - 1}" in whole and f"row {module.LONGEST - 1}" not in smaller and "row 0" in smaller
    monkeypatch.setattr(module, "MOST_BYTES", 100)
    with pytest.raises(ArgumentError, match="over 100 bytes without a row"):
        module.page([read(path)], "")


def test_a_drawing_keeps_its_text_and_loses_only_decimals_of_places():
    from rollergen.bench.page import _rounded, _spelled

    letters = '<defs><path id="DejaVuSans-14" d="M 1"/></defs><use xlink:href="#DejaVuSans-14"/>'
    group = f'<!-- 0.97512 s -->\n<g style="fill: red" transform="translate(1.23456 2) scale(0.08 -0.08)">{letters}</g>'
    assert _rounded(_spelled(f'<svg id="m1"><g id="text_6">{group}</g></svg>')) == (
        '<svg id="m1"><g><text transform="translate(1.23 2)" style="font: 8px sans-serif; fill: red">0.97512 s</text></g></svg>'
    )
    assert _spelled(group.replace("0.97512 s", "$10^3$")).count("<use") == 1  # a formula stays as it is drawn


def test_a_missed_aim_is_marked_and_one_that_is_met_is_not(tmp_path):
    for package in PAGE_PACKAGES:
        pytest.importorskip(package)
    from rollergen.bench.page import page

    path, told = tmp_path / "x.json", {"what": "tau", "figure": "0.5", "aim": "at least 0.6"}
    for met, marked in ((False, True), (True, False)):
        path.write_text(json.dumps({"headlines": [{**told, "met": met}]}))
        text = page([read(path)], "")
        assert ('<td class="missed">at least 0.6 (missed)</td>' in text) == marked
        assert ("<td>at least 0.6</td>" in text) != marked


def test_a_list_that_holds_anything_else_is_a_table_and_no_headlines(tmp_path):
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"headlines": [{"what": "regret", "value": 9}]}))
    found = read(path)
    assert found.headlines == () and [table.title for table in found.tables] == ["headlines"]


def test_every_bar_of_a_study_that_leaves_parts_out_has_its_own_name(tmp_path):
    path = tmp_path / "cuda_ablation_x.json"
    path.write_text(json.dumps({"rows": [{"case": "a", "off": name, "ratio": 1.5} for name in ("p", "q")]}))
    (table,) = read(path).tables
    assert table.ratios == (("a: p", 1.5), ("a: q", 1.5))
    for package in PAGE_PACKAGES:
        pytest.importorskip(package)
    from rollergen.bench.page import page

    assert "Time without the part" in page([read(path)], "") and "ours is faster" in page([read(path)], "").split("<h2")[0]


def test_a_report_writes_the_figures_of_the_readme_anew_where_it_is_asked_to(tmp_path, monkeypatch):
    for package in PAGE_PACKAGES:
        pytest.importorskip(package)
    (tmp_path / "benches" / "results").mkdir(parents=True)
    (tmp_path / "benches" / "results" / "x.json").write_text(json.dumps({"ratio": 1.75}))
    readme = tmp_path / "README.md"
    readme.write_text("[1.5](benches/results/x.json#ratio) times")
    monkeypatch.setattr(scripts, "checkout", lambda: tmp_path)
    assert run("report", "-o", tmp_path / "page.html").exit_code == 0
    assert readme.read_text().startswith("[1.5]")
    told = run("report", "-o", tmp_path / "page.html", "--readme")
    assert told.exit_code == 0 and "1 of 1 figures" in " ".join(told.output.split())
    assert readme.read_text() == "[1.8](benches/results/x.json#ratio) times"


def test_every_result_says_what_it_is_of():
    from rollergen.bench.page import purpose

    root = scripts.checkout()
    makers = scripts.makers(root)
    assert [one.name for one in results(root / "benches" / "results") if not purpose(one.name, makers)] == []
    assert purpose("gpu_predictions_v100", makers).startswith("What the model says, before anything is timed")
    assert purpose("fuzz_17_x", makers).startswith("Random expressions")
    assert purpose("fuzz_formulas_17_x", makers).startswith("Random formulas")
    assert purpose("operators_all_cores_x", makers).startswith("Every class of operators")


@pytest.mark.parametrize(("low", "high"), [(6.4, 71.0), (1.0, 1.3), (0.004, 9000.0), (2.0, 2.0), (0.9, 11.0), (31.0, 64.0)])
def test_labels_of_a_logarithmic_axis_are_few_and_lie_apart(low, high):
    from rollergen.bench.page import MOST_TICKS, _ticks

    found = _ticks(low, high)
    assert (low < high) < len(found) <= MOST_TICKS and all(low <= one <= high for one in found)
    if low < high:
        least = min(math.log(b / a) for a, b in pairwise(found)) / math.log(high / low)
        assert least > 0.08, found
