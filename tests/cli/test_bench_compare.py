"""``rollergen bench compare``: what changed beyond chance, and what did not."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

pytest.importorskip("scipy")

from rollergen.__main__ import main
from rollergen.bench.compare import _row, compare
from rollergen.errors import ArgumentError

CASES = [f"case {n}" for n in range(8)]


def result(path, ratios, samples=None):
    rows = [{"case": case, "ratio": ratio} for case, ratio in zip(CASES, ratios, strict=False)]
    for row, values in zip(rows, samples or [], strict=False):
        row["samples"] = list(values)
    path.write_text(json.dumps({"cases": rows}))
    return path


@pytest.fixture
def rng():
    return np.random.default_rng(5)


def pair(tmp_path, first, second, samples=(None, None)):
    return result(tmp_path / "a.json", first, samples[0]), result(tmp_path / "b.json", second, samples[1])


def test_the_same_figures_show_no_difference(tmp_path):
    (one,) = compare(*pair(tmp_path, [1.0] * 8, [1.0] * 8))
    assert one.figure == "ratio" and one.overall.change == 1 and one.overall.verdict == "no difference shown"


def test_noise_around_nothing_shows_no_difference(tmp_path, rng):
    files = pair(tmp_path, np.exp(rng.normal(0, 0.1, 8)), np.exp(rng.normal(0, 0.1, 8)))
    assert compare(*files)[0].overall.verdict == "no difference shown"


def test_all_rows_a_tenth_worse_is_worse_and_the_command_fails(tmp_path, rng):
    old = np.exp(rng.normal(0, 0.3, 8))
    files = pair(tmp_path, old, old * 0.9 * np.exp(rng.normal(0, 0.01, 8)))
    (one,) = compare(*files)
    assert one.overall.verdict == "worse" and one.overall.low < 0.9 < one.overall.high + 0.02
    outcome = CliRunner().invoke(main, ["bench", "compare", *map(str, files)])
    assert outcome.exit_code == 1 and "worse" in outcome.output


def test_a_single_row_is_judged_by_its_samples(tmp_path, rng):
    noise = lambda scale: [scale * np.exp(rng.normal(0, 0.05, 30)) for scale in scale]
    before, after = noise([1.0] * 8), noise([1.0] * 7 + [0.7])
    medians = [[float(np.median(x)) for x in samples] for samples in (before, after)]
    rows = compare(*pair(tmp_path, *medians, samples=(before, after)))[0].rows
    assert [row.label for row in rows if row.verdict == "worse"] == ["case 7"]
    assert rows[7].low < 0.7 * 1.05 and rows[7].high > 0.7 * 0.95


def test_rows_without_samples_are_not_judged_alone(tmp_path):
    assert {row.verdict for row in compare(*pair(tmp_path, [1.0] * 8, [2.0] * 8))[0].rows} == {"not judged"}


def test_less_time_is_better(tmp_path):
    for name, seconds in (("a.json", 2.0), ("b.json", 1.0)):
        rows = [{"case": case, "ours_seconds": seconds} for case in CASES]
        (tmp_path / name).write_text(json.dumps({"cases": rows}))
    overall = compare(tmp_path / "a.json", tmp_path / "b.json")[0].overall
    assert overall.change == pytest.approx(2.0) and overall.verdict == "better"


def test_rows_of_one_file_only_are_named_and_files_without_common_rows_refused(tmp_path):
    files = pair(tmp_path, [1.0] * 8, [1.0] * 7)
    assert compare(*files)[0].unmatched == ("case 7",)
    (tmp_path / "c.json").write_text("{}")
    with pytest.raises(ArgumentError, match="no table in common"):
        compare(files[0], tmp_path / "c.json")


def alike(rng, count, neighbours):
    """Times whose logarithms have this autocorrelation, as a machine's drift gives it."""
    found = rng.normal(size=count + 50)
    for n in range(1, len(found)):
        found[n] = neighbours * found[n - 1] + np.sqrt(1 - neighbours**2) * found[n]
    return np.exp(0.05 * found[50:])


@pytest.mark.parametrize("neighbours", [0.0, 0.5, 0.8])
def test_samples_that_are_like_their_neighbours_show_no_difference_that_is_none(rng, neighbours):
    from scipy import stats

    pairs = [(alike(rng, 40, neighbours), alike(rng, 40, neighbours)) for _ in range(150)]
    rows = [_row("x", "ratio", *({"ratio": 1.0, "samples": list(one)} for one in pair), stats) for pair in pairs]
    wrong = sum(row.p is not None and row.p < 0.05 for row in rows) / len(rows)
    assert wrong <= 0.11, wrong  # 0.05 and its chance; taken for independent: 0.26 and 0.52 of the last two
    if neighbours == 0:
        assert all(row.p is not None for row in rows)


def test_a_row_whose_samples_drift_is_not_judged(tmp_path):
    drift = [np.linspace(1, 2, 40), np.linspace(2, 3, 40)]
    files = pair(tmp_path, [1.5], [2.5], samples=([drift[0]], [drift[1]]))
    (row,) = compare(*files)[0].rows
    assert row.verdict == "not judged" and row.p is None and row.change == pytest.approx(2.5 / 1.5)


def test_a_row_without_any_noise_is_judged(tmp_path):
    files = pair(tmp_path, [1.0], [2.0], samples=([[1.0] * 20], [[2.0] * 20]))
    (row,) = compare(*files)[0].rows
    assert row.verdict == "better" and row.low == row.high == 2.0
