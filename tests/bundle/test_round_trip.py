"""rg.load gives back what kernel.save wrote, and only that."""

import hashlib
import json
import os
import shutil

import numpy as np
import pytest

import rollergen as rg
from rollergen.bundle import write
from rollergen.errors import BundleError
from tests.bundle import kernels
from tests.bundle.kernels import built, packing


@pytest.fixture(scope="module")
def timed():
    """A kernel with measured times."""
    return rg.build(kernels.matmul(), "cpu", top_k=2, cache=False)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return packing().save(tmp_path_factory.mktemp("saved") / "kernel")


@pytest.fixture
def directory(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "kernel")


def test_a_loaded_kernel_is_the_one_that_was_saved(timed, tmp_path):
    loaded = rg.load(timed.save(tmp_path / "kernel"))
    assert loaded.source == timed.source and loaded.launches == timed.launches and loaded.program == timed.program
    assert (loaded.predicted_time, loaded.measured_time) == (timed.predicted_time, timed.measured_time)
    assert loaded.measured_time > 0
    assert loaded.candidates == timed.candidates and loaded.device == timed.device
    assert str(loaded.signature) == str(timed.signature) and loaded.explain() == timed.explain()


@pytest.mark.parametrize("kernel", [packing, lambda: built(kernels.several)], ids=["packing", "several"])
def test_a_loaded_kernel_runs(kernel, tmp_path):
    kernel = kernel()
    loaded = rg.load(kernel.save(tmp_path / "kernel"))
    rng = np.random.default_rng(0)
    arrays = [rng.random(b.shape).astype(b.dtype) for b in kernel.signature.inputs]
    ours, theirs = kernel(*arrays), loaded(*arrays)
    assert isinstance(ours, tuple) == (len(kernel.signature.outputs) > 1)
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(mine, other)


@pytest.mark.parametrize("device", ["v100", "mi50"])
def test_kernels_of_absent_devices_come_back_too(device, tmp_path):
    kernel = built(kernels.convolution, device)
    loaded = rg.load(kernel.save(tmp_path / "kernel"))
    assert loaded.source == kernel.source and loaded.measured_time is None
    assert loaded.explain() == kernel.explain()


def test_a_loaded_kernel_saves_the_same_files(directory, tmp_path):
    again = rg.load(directory).save(tmp_path / "again")
    names = sorted(path.name for path in directory.iterdir())
    assert names == sorted(path.name for path in again.iterdir())
    assert all((directory / name).read_bytes() == (again / name).read_bytes() for name in names)


def test_the_manifest_describes_the_kernel(directory):
    manifest = json.loads((directory / "manifest.json").read_text())
    kernel = packing()
    assert [one["entry"] for one in manifest["launches"]] == [launch.entry for launch in kernel.launches]
    (temporary,) = (b for b in manifest["buffers"] if b["role"] == "temporary")
    assert manifest["packing"]["constants"] == ["B"] and manifest["packing"]["temporaries"] == [temporary["name"]]
    first = manifest["buffers"][0]
    assert (first["name"], first["shape"], first["strides"], first["bytes"]) == ("A", [64, 512], [512, 1], 64 * 512 * 4)
    assert manifest["times"]["predicted_seconds"] == kernel.predicted_time
    assert manifest["tolerance"]["outputs"]["C"]["unit_roundoff"] == 2.0**-24
    everything = {path.name for path in directory.iterdir()} - {"manifest.json"}
    assert set(manifest["files"]) == everything


def test_points_of_the_self_test_hold_the_definition(directory):
    from rollergen.bundle.inputs import made_array

    kernel = packing()
    a, b = (made_array(buffer, 1, at, 4).astype(float) for at, buffer in enumerate(kernel.signature.inputs))
    random, whole = json.loads((directory / "selftest.json").read_text())["tests"]
    assert (whole["seed"], whole["magnitude"]) == (1, 4) and random["magnitude"] is None
    points = whole["outputs"]["C"]
    np.testing.assert_array_equal((a @ b).reshape(-1)[points["offsets"]], points["want"])
    assert set(points["allowed"]) == {0} and 0 not in random["outputs"]["C"]["allowed"]
    assert {0, 1023, 63 * 1024, 64 * 1024 - 1} <= set(points["offsets"])  # the four corners


# Where to


def test_a_saved_kernel_is_replaced(directory):
    (directory / "__pycache__").mkdir()
    assert built(kernels.total).save(directory) == directory
    assert str(rg.load(directory).signature) == str(built(kernels.total).signature)
    assert os.listdir(directory.parent) == ["kernel"] and not (directory / "__pycache__").exists()


def test_an_empty_directory_is_filled(tmp_path):
    (tmp_path / "empty").mkdir()
    assert rg.load(built(kernels.total).save(tmp_path / "empty")).source == built(kernels.total).source


def test_missing_folders_are_made(tmp_path):
    built(kernels.total).save(str(tmp_path / "a" / "b" / "kernel"))
    assert (tmp_path / "a" / "b" / "kernel" / "manifest.json").exists()


@pytest.mark.parametrize("name", ["notes.txt", "kernel.cl"])
def test_a_directory_of_somebody_elses_is_left_alone(name, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / name).write_text("mine")
    with pytest.raises(BundleError, match=rf"mine holds {name}, which are no part of a saved kernel; expected a new"):
        built(kernels.total).save(tmp_path / "mine")
    assert (tmp_path / "mine" / name).read_text() == "mine"


def test_a_saved_kernel_with_somebodys_notes_is_left_alone(directory):
    (directory / "notes.txt").write_text("mine")
    with pytest.raises(BundleError, match=r"holds notes\.txt"):
        built(kernels.total).save(directory)
    assert (directory / "notes.txt").exists()


def test_another_manifest_is_left_alone(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "manifest.json").write_text("{}")
    with pytest.raises(BundleError, match=r"mine/manifest\.json: format is missing"):
        built(kernels.total).save(tmp_path / "mine")


def test_a_file_is_left_alone(tmp_path):
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(BundleError, match="mine is a file"):
        built(kernels.total).save(tmp_path / "mine")


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BundleError, match="file/kernel: the kernel cannot be saved there: "):
        built(kernels.total).save(tmp_path / "file" / "kernel")


@pytest.mark.parametrize("number", [0, 3, 12])
def test_an_interrupted_save_leaves_what_was_there(directory, monkeypatch, number):
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    written = []

    def interrupted(path, content):
        if len(written) == number:
            raise KeyboardInterrupt
        written.append(path)
        return len(content)

    monkeypatch.setattr(write.Path, "write_bytes", interrupted)
    with pytest.raises(KeyboardInterrupt):
        built(kernels.total).save(directory)
    monkeypatch.undo()
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == before
    assert os.listdir(directory.parent) == ["kernel"]


def test_a_target_that_cannot_be_replaced_stays(directory, monkeypatch):
    before = (directory / "manifest.json").read_bytes()
    rename, calls = os.rename, []

    def failing(source, target):
        calls.append(source)
        if len(calls) == 3:  # the new directory in place of the old one
            raise OSError(5, "Input/output error")
        rename(source, target)

    monkeypatch.setattr(os, "rename", failing)
    with pytest.raises(BundleError, match="cannot be saved there: Input/output error"):
        built(kernels.total).save(directory)
    assert (directory / "manifest.json").read_bytes() == before and os.listdir(directory.parent) == ["kernel"]


def test_a_link_to_a_saved_kernel_is_followed(directory):
    link = directory.parent / "link"
    link.symlink_to(directory)
    built(kernels.total).save(link)
    assert link.is_symlink() and rg.load(link).source == built(kernels.total).source


# What is refused


def changed(directory, change, name="manifest.json"):
    """Changes a file as somebody would who also mends the hash in the manifest."""
    path = directory / name
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    if name != "manifest.json":
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        changed(directory, lambda manifest: manifest["files"].update({name: digest}))


def refused(directory, expected):
    with pytest.raises(BundleError, match=expected):
        rg.load(directory)


def test_an_edited_source_is_refused_by_name(directory):
    with (directory / "kernel.cl").open("a") as file:
        file.write(" ")
    refused(directory, r"kernel\.cl has SHA-256 \w{64}; the manifest says \w{64}: it was changed after it was saved")


@pytest.mark.parametrize("name", ["manifest.json", "program.json", "kernel.cl", "device.json", "candidates.json"])
def test_a_missing_file_is_named(directory, name):
    (directory / name).unlink()
    refused(directory, rf"is no saved kernel: it has no {name}")


def test_what_is_no_directory_is_named(tmp_path):
    refused(tmp_path / "nowhere", "nowhere is no directory")


HOSTILE = [
    (lambda m: m.update(format="rollergen.bundle.v2"), r'format is "rollergen\.bundle\.v2"; expected "rollergen\.bundle\.v1"'),
    (lambda m: m.update(source="../../etc/passwd"), r"source is .*; expected kernel and the language's suffix"),
    (lambda m: m.update(source=7), "source is 7"),
    (lambda m: m["files"].pop("program.json"), r"program\.json has SHA-256 \w+; the manifest does not list it"),
    (lambda m: m["launches"][0].update(entry='f"); system("'), r"launches\[0\]\.entry is .*; expected an identifier"),
    (lambda m: m["launches"][0].update(entry="f\n"), r"launches\[0\]\.entry is .*; expected an identifier"),
    (lambda m: m["launches"][0].update(blocks=-1), r"launches\[0\]\.blocks is -1; expected an integer from 1 to"),
    (lambda m: m["launches"][0].update(blocks=10**30), r"launches\[0\]\.blocks is 1000"),
    (lambda m: m["launches"][0].update(blocks=True), r"launches\[0\]\.blocks is true"),
    (lambda m: m["launches"][0].update(threads=2.5), r"launches\[0\]\.threads is 2\.5"),
    (lambda m: m["launches"][0].update(arguments=["nothing"]), r"launches\[0\] takes nothing, which is no buffer"),
    (lambda m: m["launches"].clear(), r"launches is a list of 0"),
    (lambda m: m["launches"][0]["arguments"].pop(), r"launches\[0\] takes .*; its stage's buffers are"),
    (lambda m: m["launches"][0]["arguments"].reverse(), r"launches\[0\] takes .*; its stage's buffers are"),
    (lambda m: m["launches"][0].update(once=False), r"launches\[0\] is of \d+ blocks; its stage has \d+ once"),
    (lambda m: m["launches"][0].update(blocks=77), r"launches\[0\] is of 77 blocks once; its stage has \d+ once"),
    (lambda m: m["buffers"][0].update(name='A"; x'), r"buffers\[0\]\.name is .*; expected an identifier"),
    (lambda m: m["buffers"][0].update(shape=[1, 1]), r"program\.json: its buffers are not those of the manifest"),
    (lambda m: m["buffers"][0].update(role="code"), r"buffers\[0\]\.role is \"code\"; expected one of"),
    (lambda m: m.update(buffers={}), r"buffers is an object of 0; expected a list"),
    (lambda m: m["device"].update(spec_sha256="0" * 64), r"device\.json is not the device whose spec_sha256"),
    (lambda m: m["times"].update(predicted_seconds="1"), r"times\.predicted_seconds is \"1\""),
    (lambda m: m.update(extra=1), r"extra is no key of this format"),
    (lambda m: m.pop("cuts"), r"cuts is missing"),
    (lambda m: m.update(signature="x" * 200_000), r"signature is .*; expected at most 100000 characters"),
]


@pytest.mark.parametrize(("change", "expected"), HOSTILE, ids=[str(n) for n in range(len(HOSTILE))])
def test_hostile_manifests_are_refused_by_path_and_value(directory, change, expected):
    changed(directory, change)
    refused(directory, expected)


@pytest.mark.parametrize(
    ("name", "change", "expected"),
    [
        ("program.json", lambda d: d["nodes"].pop(), r"program\.json: nodes\[\d+\] is 'Stage'; expected the last"),
        ("program.json", lambda d: d.clear(), r"program\.json: the program is an object of 0; expected an object with"),
        ("candidates.json", lambda d: d.update(chosen=9), r"candidates\.json: chosen is no number of a candidate"),
        ("candidates.json", lambda d: d["candidates"][0].update(rank="1"), r"candidates\[0\]\.rank"),
        ("candidates.json", lambda d: d["candidates"][0].update(times_s=[-1]), r"candidates\[0\]\.times_s"),
        ("candidates.json", lambda d: d["candidates"][1].update(launches=[{}]), r"candidates\[1\]\.launches"),
        ("candidates.json", lambda d: d["candidates"][1].update(program=7), r"candidates\[1\]\.program"),
        ("selftest.json", lambda d: d["tests"][0]["outputs"].pop("C"), r"tests\[0\]\.outputs has 0 keys; expected exactly C"),
        ("selftest.json", lambda d: d["tests"][0]["outputs"]["C"]["offsets"].append(1), "offsets, "),
        ("selftest.json", lambda d: d["tests"][0]["outputs"]["C"]["offsets"].__setitem__(0, 1 << 40), "expected integers from 0"),
        ("selftest.json", lambda d: d["tests"][0]["outputs"]["C"]["want"].__setitem__(0, "x"), "expected numbers"),
        ("selftest.json", lambda d: d["tests"][0].update(seed=-1), "has seed -1"),
        ("device.json", lambda d: d.update(units="many"), r"device\.json: units is \"many\""),
    ],
)
def test_hostile_files_with_the_right_hash_are_refused(directory, name, change, expected):
    changed(directory, change, name)
    refused(directory, expected)


def test_texts_that_are_no_documents_are_refused(directory):
    for text, expected in [
        ("[" * 1000, "nests deeper than"),
        ("{", "not JSON"),
        ('{"format": 1, "format": 2}', "stands twice"),
        ('{"format": 1e999}', "expected a finite number"),
        ("[]", "the document is a list of 0; expected an object: the manifest"),
        ("\x00", "not JSON"),
    ]:
        (directory / "manifest.json").write_text(text)
        refused(directory, expected)
    (directory / "manifest.json").write_bytes(b"\xff\xfe")
    refused(directory, "no UTF-8")


def test_files_that_are_not_regular_are_refused_without_waiting(directory):
    shutil.copy(directory / "manifest.json", directory.parent / "elsewhere.json")
    (directory / "manifest.json").unlink()
    (directory / "manifest.json").symlink_to(directory.parent / "elsewhere.json")
    refused(directory, r"manifest\.json is no regular file")
    (directory / "manifest.json").unlink()
    os.mkfifo(directory / "manifest.json")
    refused(directory, r"manifest\.json is no regular file")


def test_files_of_any_size_are_refused_unread(directory):
    with (directory / "manifest.json").open("wb") as file:
        file.truncate(1 << 33)
    refused(directory, r"manifest\.json has more than 64000000 bytes")
