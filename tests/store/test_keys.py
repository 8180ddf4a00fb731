"""A key covers what a kernel depends on, and nothing else."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

import rollergen as rg
from rollergen.expr.canonical import canonicalize
from rollergen.hal.files.user_cache import cache_directory
from rollergen.store import keys
from rollergen.store.keys import expression_text, fingerprint, key_of, sha256

V100 = rg.load_device("v100")


def chain(a="a", b="b", c="c"):
    x, y, z = rg.tensor(a, (8, 9)), rg.tensor(b, (9, 10)), rg.tensor(c, (10,))
    return rg.ops.softmax(rg.ops.relu(rg.ops.bias_add(rg.ops.matmul(x, y), z)))


def text(expr, inputs=None):
    return expression_text(canonicalize(expr, inputs))


@pytest.mark.parametrize("names", [("p", "q", "r"), ("c", "a", "b"), ("in1", "in0", "t0"), ("t", "t_1", "t0")])
def test_tensor_names_do_not_split(names):
    assert text(chain(*names)) == text(chain())


def test_an_operator_keeps_its_name_when_programs_get_more_decisions():
    """Its records of earlier versions are found by it (the value is of format 6, before programs had others)."""
    name = sha256(text(rg.ops.relu(rg.tensor("X", (16,)))))
    assert name == "b23a6074503c8ccd3ac7ab4deec12ae7fd1f6c040d30d7ca39b54e7372390bb0"


def test_everything_in_an_expression_splits():
    def of(shape=(8, 9), dtype="float32", constant=False, fn=rg.exp):
        x = rg.tensor("x", shape, dtype, constant=constant)
        return rg.compute(shape, lambda i, j: fn(x[i, j]))

    texts = {
        text(of()),
        text(of(shape=(9, 8))),
        text(of(dtype="float64")),
        text(of(constant=True)),
        text(of(fn=rg.tanh)),
        text(of(fn=lambda v: v * 2.0)),
        text(of(fn=lambda v: v * 2.5)),
    }
    assert len(texts) == 7


def test_which_of_two_alike_tensors_is_read_where_splits():
    x, y = rg.tensor("x", (8,)), rg.tensor("y", (8,))
    one, other = rg.compute((8,), lambda i: x[i] - y[i]), rg.compute((8,), lambda i: y[i] - x[i])
    assert text(one) == text(other)  # the first argument less the second
    assert text(one, [x, y]) != text(other, [x, y])


def test_every_part_of_a_key_splits():
    graph, options = canonicalize(chain()), rg.BuildOptions()
    keys = [
        key_of(graph, V100, options, 10, None),
        key_of(canonicalize(rg.ops.relu(rg.tensor("x", (8,)))), V100, options, 10, None),
        key_of(graph, replace(V100, units=79), options, 10, None),
        key_of(graph, V100, replace(options, epsilon=0.5), 10, None),
        key_of(graph, V100, replace(options, alignment=rg.AlignmentRules(bank=False)), 10, None),
        key_of(graph, V100, options, 9, None),
        key_of(graph, V100, options, 10, "one driver"),
        key_of(graph, V100, options, 10, "another driver"),
        replace(key_of(graph, V100, options, 10, None), rollergen="0.0.1"),
    ]
    assert len({key.hash for key in keys}) == len(keys)
    assert keys[0].hash == key_of(canonicalize(chain()), V100, rg.BuildOptions(), 10, None).hash


def test_what_a_spec_is_called_by_people_does_not_split():
    graph, options = canonicalize(chain()), rg.BuildOptions()
    titled = replace(V100, title="a card", provenance=())
    assert key_of(graph, titled, options, 10, None).hash == key_of(graph, V100, options, 10, None).hash


def test_the_fingerprint_covers_the_modules_of_the_package(tmp_path, monkeypatch):
    import rollergen

    (tmp_path / "new.py").write_text("x = 1")
    before = fingerprint()
    assert before.startswith("0.")
    monkeypatch.setattr(rollergen, "__path__", [*rollergen.__path__, str(tmp_path)])
    fingerprint.cache_clear()
    try:
        changed = fingerprint()
        (tmp_path / "new.py").write_text("x = 2")
        fingerprint.cache_clear()
        assert len({before, changed, fingerprint()}) == 3
    finally:
        fingerprint.cache_clear()


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A folder of the package with one module that was written a while ago."""
    import rollergen

    (tmp_path / "new.py").write_text("x = 1")
    monkeypatch.setattr(rollergen, "__path__", [str(tmp_path)])
    monkeypatch.setattr(rollergen.hal, "__path__", [])
    monkeypatch.setattr(keys, "_SETTLED_S", -1.0)
    yield tmp_path
    fingerprint.cache_clear()


def printed_anew():
    fingerprint.cache_clear()
    return fingerprint()


def test_modules_that_did_not_change_are_read_once(package, monkeypatch):
    first = printed_anew()
    monkeypatch.setattr(Path, "read_bytes", None)
    assert printed_anew() == first


def test_packages_that_share_a_cache_directory_keep_a_hash_each(package, monkeypatch, tmp_path_factory):
    import rollergen

    first, other = printed_anew(), tmp_path_factory.mktemp("other")
    (other / "new.py").write_text("x = 3")
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(rollergen, "__path__", [str(other)])
        second = printed_anew()
        elsewhere.setattr(Path, "read_bytes", None)
        assert printed_anew() == second != first
    monkeypatch.setattr(Path, "read_bytes", None)
    assert printed_anew() == first


def test_of_what_changed_a_moment_ago_nothing_is_kept(package, monkeypatch):
    monkeypatch.setattr(keys, "_SETTLED_S", 60.0)
    first = printed_anew()
    assert not (cache_directory() / "modules.json").exists()
    (package / "new.py").write_text("x = 2")
    assert printed_anew() != first


@pytest.mark.parametrize("change", ["written", "replaced", "renamed", "another"])
def test_a_module_that_changed_is_read_again(package, change):
    first, module = printed_anew(), package / "new.py"
    told = module.stat()
    if change == "written":
        module.write_text("x = 2")
        os.utime(module, ns=(told.st_atime_ns, told.st_mtime_ns))  # of the same size and time, but for its inode's
    elif change == "replaced":
        (package / "other").write_text("x = 2")
        os.replace(package / "other", module)
    elif change == "renamed":
        module.rename(package / "newer.py")
    else:
        (package / "newer.py").write_text("")
    assert printed_anew() != first


def test_a_package_that_was_only_copied_has_the_same_fingerprint(package, monkeypatch):
    first = printed_anew()
    (package / "new.py").touch()
    assert printed_anew() == first
