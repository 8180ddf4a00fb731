"""Rankers learn, verifiers abstain, files are checked before they are believed."""

import json
import re
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

import rollergen as rg
from benches.verify import ablate, evaluate, metrics
from benches.verify.rankers import RANKERS, Analytical, columns_of
from benches.verify.released import release
from rollergen.expr.canonical import canonicalize
from rollergen.features import names
from rollergen.verify import judge
from rollergen.verify import verifier as verifiers
from rollergen.verify.dataset import from_records
from rollergen.verify.judge import Model, Verified
from rollergen.verify.model_text import VerifierError
from rollergen.verify.objectives import DEFAULT_OBJECTIVE, OBJECTIVES
from rollergen.verify.rankers import Boosted, deployed_order
from rollergen.verify.support import Support
from tests.verify.records import OPERATORS, recorded

pytest.importorskip("lightgbm")


@pytest.fixture(scope="module")
def data():
    return from_records([recorded()])


@pytest.fixture(scope="module")
def trained(data):
    return verifiers.train(data, "gpu", {"of": "a test"})


@pytest.fixture
def kept(trained, tmp_path):
    path = tmp_path / "verifier.json"
    verifiers.save(trained, path)
    return path


def test_one_objective_is_meant_everywhere_where_none_is_named(trained):
    from rollergen.cli.verify import verify

    stated = {name: [o.default for o in verify.get_command(None, name).params if o.name == "objective"] for name in ("train", "ablate")}
    assert stated == {"train": [DEFAULT_OBJECTIVE], "ablate": [DEFAULT_OBJECTIVE]}
    assert trained.objective == Boosted().objective == DEFAULT_OBJECTIVE in OBJECTIVES


@pytest.mark.parametrize("name", ["regression", "lambdarank", "residual", "cautious", "foremost"])
def test_trees_find_a_rule_that_the_model_does_not_know(data, name):
    ranker = RANKERS[name]()
    ranker.fit(data, 0)
    right = lambda scores: np.mean([metrics.pairwise_accuracy(data.ms[r], scores[r]) for r in data.operators()])
    assert right(ranker.scores(data)) > max(0.9, right(Analytical().scores(data)))


def test_operators_of_one_structure_are_on_one_side(data):
    seen = np.zeros(len(data), dtype=int)
    for train, test in evaluate.folds(data, 3, seed=1):
        assert not set(data.structure[train]) & set(data.structure[test])
        seen += test
    assert (seen == 1).all()


def test_only_programs_that_passed_train():
    data = from_records([recorded(10, failing=2)])
    ranker = Boosted("residual", trees=5)
    ranker.fit(data, 0)
    assert np.isfinite(ranker.scores(data)).all()


def test_from_three_slots_on_the_models_first_choice_is_measured():
    scores, predicted = np.array([0.1, 0.4, 0.3, 0.2]), np.array([1.0, 2.0, 3.0, 4.0])
    assert deployed_order(scores, predicted, 2) == [1, 2, 3, 0]
    assert deployed_order(scores, predicted, 3) == [1, 2, 0, 3]
    assert deployed_order(-predicted, predicted, 3) == [0, 1, 2, 3]


def test_an_evaluation_judges_every_operator_and_holds_the_bars_against_it(data):
    chosen = {name: RANKERS[name] for name in ("random", "analytical")} | {"residual": lambda: Boosted(trees=20)}
    table = evaluate.compare(data, chosen, seeds=[0], count=3)
    assert set(table) == set(chosen)
    for line in table.values():
        assert 0 < line["top-1"]["low"] <= line["top-1"]["mean"] <= line["top-1"]["high"] <= 1
        assert line["top-1"]["mean"] <= line["top-3"]["mean"] <= line["top-5"]["mean"]
        assert 1 >= line["best-1"] >= line["best-3"] >= line["best-5"] > 0
        assert line["weighted top-1"] <= line["weighted top-3"] <= line["weighted top-5"] <= 1
    assert table["analytical"]["against analytical"]["top-1"]["mean"] == 0
    assert release(table, "residual")["state"] in ("no headroom", "default-on", "opt-in", "withheld")


def test_release_follows_the_bars():
    line = lambda top3, worst, low, top1: {
        "top-3": {"mean": top3}, "worst top-3": {"value": worst},
        "against analytical": {"top-3": {"low": low}, "top-1": {"mean": top1}},
    }  # fmt: skip
    state = lambda one, model=0.9: release({"x": one, "analytical": {"top-3": {"mean": model}}}, "x")["state"]
    assert state(line(0.96, 0.86, 0.0, 0.01)) == "default-on"
    assert state(line(0.96, 0.86, 0.0, 0.0)) == "opt-in"
    assert state(line(0.92, 0.81, -0.005, 0.05)) == "opt-in"
    assert state(line(0.92, 0.79, 0.0, 0.05)) == "withheld"
    assert state(line(0.99, 0.99, 0.0, 0.05), model=0.985) == "no headroom"


def test_an_ablation_has_every_part(data):
    small = data.of(np.isin(data.operator, np.unique(data.operator)[::2]))
    curve = ablate.learning_curve(small, "residual", [0], 3)
    assert [line["share of operators"] for line in curve] == list(ablate.SHARES)
    assert curve[0]["records"] < curve[-1]["records"]
    moved = ablate.abstention(small, "residual", [0])
    kinds = {small.class_of(rows) for rows in small.operators()}
    assert set(moved) == {"all", *kinds, ablate.STRUCTURES} and moved["all"]["operators"] == len(small.operators())
    assert sum(moved[kind]["operators"] for kind in kinds) == len(small.operators())
    assert moved[ablate.STRUCTURES]["operators"] == len(small.operators())
    for line in (moved[kind] for kind in ("all", *kinds)):
        assert line["abstained"] == 1.0, "a class that it has not seen is one that it has no opinion on"
        assert line["3 slots, with abstention"] == line["3 slots, worst with abstention"] == 1.0
        assert 0 < line["3 slots, worst without"] <= line["3 slots, without"]


def test_groups_of_features_cover_all_columns_once():
    assert sorted(columns_of(*"ABCDEFGH")) == list(range(len(names())))


def test_a_kept_verifier_orders_as_before(trained, kept):
    device = rg.load_device("v100")
    programs = rg.construct(OPERATORS["matmul 100"], device, 20)
    before, after = (one.rerank(programs, device, 5) for one in (trained, verifiers.load(kept)))
    silent = trained.rerank(programs, device, 5, reasons=False)
    assert silent.order == before.order and silent.scores == before.scores and not silent.moved
    assert before == after and before.abstained is None and sorted(before.order) == list(range(20))
    assert 0 in before.order[:5] and verifiers.load(kept).identity == trained.identity
    for move in before.moved:
        assert before.order[move.now] == move.position and all(name in names() for name, _ in move.reasons)


@pytest.mark.parametrize(
    ("expr", "device", "reason"),
    [
        (rg.ops.softmax(rg.tensor("X", (64, 100))), "v100", "no row was trained on"),
        (rg.ops.matmul(rg.tensor("A", (100, 64), "float16"), rg.tensor("B", (64, 96), "float16")), "v100", "no float16 was"),
        (OPERATORS["matmul 100"], "a100", "of the device lies outside its training range"),
        (OPERATORS["matmul 100"], "cpu", "it was trained on gpu programs; cpu is a cpu"),
        (rg.ops.matmul(rg.tensor("A", (9000, 4000)), rg.tensor("B", (4000, 9000))), "v100", "outside its training"),
    ],
)
def test_outside_its_training_a_verifier_abstains_and_says_why(trained, expr, device, reason):
    target = rg.load_device(device)
    verdict = trained.rerank(rg.construct(expr, target, 10), target, 5)
    assert reason in verdict.abstained and verdict.order == tuple(range(len(verdict.order)))


def test_the_device_of_the_training_is_the_same_when_it_is_measured_again(data):
    support = Support.of(data.x, np.ones(len(names())))
    again = data.x[data.operators()[0]].copy()
    again[:, names().index("B.peak")] += np.log2(1.03)
    again[:, names().index("B.dram bandwidth")] -= np.log2(1.05)
    assert support.objection(again) is None
    again[:, names().index("B.units")] += np.log2(1.05)
    assert support.objection(again) == "units of the device lies outside its training range"
    again[:, names().index("B.peak")] += np.log2(1.1)
    assert support.objection(again) == "peak of the device lies outside its training range"


def test_a_feature_that_never_varied_in_training_objects_where_it_does(data):
    support = Support.of(data.x, np.ones(len(names())))
    own = data.x[data.operators()[0]]
    still = next(n for n, name in enumerate(names()) if name.startswith("G.") and support.low[n] == support.high[n])
    assert support.objection(own) is None
    moved = own.copy()
    moved[:, still] += 1
    assert support.objection(moved) == f"{names()[still][2:]} lies outside its training, in which it never varied"
    moved[: len(own) // 2 + 1, still] = own[0, still]
    assert support.objection(moved) is None, "a few candidates of another kind do not speak for the operator"
    unused = Support.of(data.x, np.zeros(len(names())))
    assert unused.widened(moved, np.zeros(len(names()))).objection(moved) is None


def test_explain_names_what_lies_outside_the_training(kept):
    halves = rg.ops.matmul(rg.tensor("A", (100, 64), "float16"), rg.tensor("B", (64, 96), "float16"))
    built = rg.build(halves, "v100", top_k=2, profile=False, cache=False, verifier=kept)
    told = "verifier: abstained, the model's order stands: no float16 was trained on"
    assert told in " ".join(str(built.explain()).split())


def test_build_takes_the_verifiers_order_and_explains_it(kept):
    build = lambda **more: rg.build(OPERATORS["matmul 100"], "v100", top_k=4, profile=False, cache=False, **more)
    plain, judged = build(), build(verifier=kept)
    device = rg.load_device("v100")
    programs = rg.construct(OPERATORS["matmul 100"], device, 50)
    order = verifiers.load(kept).rerank(programs, device, 4).order
    assert [c.program for c in judged.candidates] == [programs[position] for position in order[:4]]
    assert "verifier: of " in str(judged.explain()) and "verifier" not in str(plain.explain())
    assert "none is released" in str(build(verifier="auto").explain())


def test_what_is_measured_is_the_verifiers_first_and_the_models_own_where_it_abstains(trained):
    device, options = rg.load_device("v100"), rg.BuildOptions()
    graph, other = canonicalize(OPERATORS["matmul 100"]), canonicalize(rg.ops.softmax(rg.tensor("X", (64, 100))))
    judge, plain = Verified(trained), Model()
    order = trained.rerank([one.program for one in plain.programs(graph, device, options, 50)], device, 4).order
    chosen = judge.programs(graph, device, options, 4, various=True)
    assert [one.program for one in chosen] == [plain.programs(graph, device, options, 50)[p].program for p in order[:4]]
    for various in (True, False):
        both = [one.programs(other, device, options, 4, various) for one in (judge, plain)]
        assert [one.program for one in both[0]] == [one.program for one in both[1]]


def test_what_moved_is_told_in_shares_of_time_or_in_points_of_a_score(trained, data):
    device = rg.load_device("v100")
    graph = canonicalize(OPERATORS["matmul 100"])
    notes = lambda one: Verified(one).notes(graph, device, rg.BuildOptions(), 4)
    of_time = notes(trained)
    assert len(of_time) > 1 and all(" %)" in line and "points" not in line for line in of_time[1:])
    of_order = notes(verifiers.train(data, "gpu", {}, "lambdarank"))
    assert len(of_order) > 1 and all(" points)" in line and "%" not in line for line in of_order[1:])


def test_a_verifier_that_is_released_for_a_family_is_what_auto_means(kept, tmp_path, monkeypatch):
    (tmp_path / "released").mkdir()
    (tmp_path / "released" / "gpu.json").write_bytes(kept.read_bytes())
    monkeypatch.setattr("importlib.resources.files", lambda package: tmp_path)
    assert judge.judge_of("auto", rg.load_device("v100")).identity == verifiers.load(kept).identity
    assert judge.judge_of("auto", rg.load_device("cpu")).identity == ""


def test_a_verifier_that_abstains_elsewhere_is_another(trained):
    wider = replace(trained.support, high=trained.support.high + 1)
    assert replace(trained, support=wider).identity != trained.identity
    assert replace(trained, about={"of": "another day"}).identity == trained.identity


def test_kernels_of_different_verifiers_are_kept_apart(kept, tmp_path, monkeypatch):
    monkeypatch.setenv("ROLLERGEN_CACHE_DIR", str(tmp_path / "cache"))
    build = lambda verifier: rg.build(OPERATORS["matmul 48"], "v100", top_k=4, profile=False, verifier=verifier)
    plain, judged = build(None), build(kept)
    assert [c.program for c in build(None).candidates] == [c.program for c in plain.candidates]
    assert [c.program for c in build(kept).candidates] == [c.program for c in judged.candidates]


def test_an_updated_verifier_knows_what_was_measured_since(trained, tmp_path):
    turned = from_records([recorded()])
    turned.ms[:] = turned.predicted_ms**2 / turned.ms  # the rule that it was trained on, the other way round
    few = turned.of(np.arange(0, len(turned), 5))
    updated = verifiers.update(trained, few, {"of": "an update"})
    assert updated.about["base"] == dict(trained.about) and updated.identity != trained.identity
    assert (updated.support.low <= trained.support.low).all() and (updated.support.high >= trained.support.high).all()
    device = rg.load_device("v100")
    programs = rg.construct(OPERATORS["matmul 100"], device, 20)
    path = tmp_path / "updated.json"
    verifiers.save(updated, path)
    assert verifiers.load(path).rerank(programs, device, 5) == updated.rerank(programs, device, 5)
    right = lambda one: np.mean(
        [metrics.pairwise_accuracy(turned.ms[rows], -(one.booster.predict(turned.x) + np.log(turned.predicted_ms))[rows])
         for rows in turned.operators()]
    )  # fmt: skip
    assert right(updated) > right(trained) + 0.1
    with pytest.raises(VerifierError, match="at least 4 to update by"):
        verifiers.update(trained, few.of(np.arange(3)), {})


def test_too_few_records_train_nothing(data):
    with pytest.raises(VerifierError, match="expected at least 300 of 6"):
        verifiers.train(data.of(data.operator < 3), "gpu", {})
    with pytest.raises(VerifierError, match="0 records of 0 operators on a cpu"):
        verifiers.train(data, "cpu", {})


def resealed(content, model):
    return {**content, "model": model, "model_sha256": sha256(model.encode()).hexdigest()}


def said(content, name, value):
    """The model's text with the first line ``name=`` saying something else."""
    return re.sub(rf"^{name}=.*$", f"{name}={value}", content["model"], count=1, flags=re.MULTILINE)


def read_otherwise(content, between):
    """The model's text whose first tree has a child out of it, and after `between` the true ones."""
    true = re.search(r"^left_child=(.*)$", content["model"], re.MULTILINE).group()
    out = content["model"].replace(true, f"left_child=2000000000 {true.partition(' ')[2]}", 1)
    return resealed(content, out.replace("is_linear=0\n", f"is_linear=0{between}{true}\n", 1))


HOSTILE = {
    "no JSON": (lambda c: "tree", "cannot be read"),
    "another format": (lambda c: {**c, "format": "pickle"}, "rollergen verify train"),
    "other features": (lambda c: {**c, "features": {"version": 0}}, "trained on other features"),
    "damaged model": (lambda c: {**c, "model": c["model"].replace("0.1", "0.2", 1) + " "}, "does not match its hash"),
    "truncated model": (lambda c: resealed(c, c["model"][: len(c["model"]) // 2]), "no whole text"),
    "feature out of range": (lambda c: resealed(c, c["model"].replace("split_feature=", "split_feature=9", 1)), "tree 0"),
    "sizes that lead past the text": (lambda c: resealed(c, said(c, "tree_sizes", "999999999")), "tree_sizes"),
    "several classes": (lambda c: resealed(c, said(c, "num_class", "7")), "num_class"),
    "several trees an iteration": (lambda c: resealed(c, said(c, "num_tree_per_iteration", "3")), "num_tree_per_iteration"),
    "a head that says it twice": (lambda c: resealed(c, said(c, "num_class", "1\nnum_class=2")), "twice"),
    "linear leaves": (lambda c: resealed(c, said(c, "is_linear", "1")), "linear"),
    "leaves that are no numbers": (lambda c: resealed(c, c["model"].replace("leaf_value=", "leaf_value=nan", 1)), "tree 0"),
    "loop in a tree": (lambda c: resealed(c, c["model"].replace("left_child=1 ", "left_child=0 ", 1)), "is no tree"),
    "children said twice": (lambda c: read_otherwise(c, "\n"), "tree 0 says left_child twice"),
    "children after an empty line": (lambda c: read_otherwise(c, "\n\n"), "tree 0 has the line ''"),
    "children after a form feed": (lambda c: read_otherwise(c, "\f"), "which LightGBM does not write"),
    "digits that Python knows": (lambda c: resealed(c, c["model"].replace("num_leaves=", "num_leaves=0_", 1)), "num_leaves=0_"),
    "a name that LightGBM cuts": (lambda c: resealed(c, said(c, "num_class", "1\n=num_class=2")), "=num_class=2"),
    "shrinkage that is no number": (lambda c: resealed(c, said(c, "shrinkage", "x")), "shrinkage=x"),
    "leaves beyond all logarithms": (lambda c: resealed(c, re.sub(r"leaf_value=\S+", "leaf_value=1e308", c["model"])), "leaf_value"),
    "too few leaves": (lambda c: resealed(c, said(c, "num_leaves", "2")), "tree 0"),
    "huge leaves": (lambda c: resealed(c, said(c, "num_leaves", "99999999")), "leaves"),
    "support of nothing": (lambda c: {**c, "support": {}}, "support.low"),
    "endless support": (lambda c: {**c, "support": {**c["support"], "low": [float("inf")] * len(names())}}, "support.low"),
    "support beyond a float": (lambda c: {**c, "support": {**c["support"], "low": [10**400] * len(names())}}, "cannot be read"),
    "JSON after the trees": (lambda c: resealed(c, c["model"] + "\npandas_categorical:" + "[" * 9999), "pandas_categorical"),
    "unknown objective": (lambda c: {**c, "objective": "exec"}, "objective 'exec'"),
    "a list": (lambda c: [1], "rollergen verify train"),
}  # fmt: skip


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_and_damaged_files_are_refused_by_name(kept, kind):
    change, message = HOSTILE[kind]
    changed = change(json.loads(kept.read_text()))
    kept.write_text(changed if isinstance(changed, str) else json.dumps(changed))
    with pytest.raises(VerifierError, match=r"verifier\.json") as error:
        verifiers.load(kept)
    assert message in str(error.value)


@pytest.mark.parametrize("name", ["a\0b.json", "a\ud800b.json", "no/such/directory.json"])
def test_a_verifier_that_cannot_be_written_says_where(trained, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(VerifierError, match="cannot be written") as caught:
        verifiers.save(trained, Path(name))
    assert repr(name) in str(caught.value) and not list(tmp_path.iterdir())


def test_a_file_that_is_absent_or_too_large_is_refused(tmp_path, monkeypatch):
    with pytest.raises(VerifierError, match="cannot be read"):
        verifiers.load(tmp_path / "absent.json")
    (tmp_path / "large.json").write_text(" " * 1000)
    monkeypatch.setattr(verifiers, "LARGEST_FILE", 999)
    with pytest.raises(VerifierError, match="more than 999 bytes"):
        verifiers.load(tmp_path / "large.json")


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="this system has no /dev/zero")
def test_a_device_without_an_end_is_no_verifier():
    with pytest.raises(VerifierError, match="/dev/zero cannot be read as a verifier: It is a pipe"):
        verifiers.load("/dev/zero")


@pytest.mark.parametrize("wrong", [3, True, ["x"]])
def test_what_names_no_verifier_is_refused(wrong):
    with pytest.raises(rg.errors.ArgumentError, match="verifier is"):
        rg.build(OPERATORS["matmul 32"], "v100", profile=False, verifier=wrong)
