"""``rollergen cache``: what was kept, whether it is whole, and away with it."""

import json
import sqlite3
from contextlib import closing

from click.testing import CliRunner

from rollergen.__main__ import main
from rollergen.store.location import store_path

PRODUCT = ("build", "matmul", "m=64", "n=80", "k=48", "--device", "v100", "--top-k", "2")


def run(*words):
    return CliRunner().invoke(main, list(words))


def ok(*words):
    result = run(*words)
    assert result.exit_code == 0, result.output
    return result.output


def found(*words):
    return json.loads(ok(*words, "--json"))


def test_nothing_kept_yet_is_no_error_and_makes_no_file():
    assert found("cache", "list")["kernels"] == []
    assert found("cache", "verify") == {"path": str(store_path()), "checked": {}, "problems": []}
    assert found("cache", "clear")["kernels"] == 0
    assert "nothing kept yet" in ok("cache", "verify")
    assert not store_path().exists()


def test_list_shows_what_was_built():
    ok(*PRODUCT)
    (one,) = found("cache", "list")["kernels"]
    assert one["signature"].startswith("kernel(A: float32[64, 48]") and one["device"] == "v100"
    assert (one["candidates"], one["profiled"], one["measured_seconds"], one["usable"]) == (2, False, None, True)
    text = ok("cache", "list")
    assert "-> C: float32[64, 80]" in text and "on v100" in text and "1 kernels, 0 records" in text


def test_a_build_without_cache_keeps_nothing():
    ok(*PRODUCT, "--no-cache")
    assert found("cache", "list")["kernels"] == []


def test_profiled_candidates_leave_records_that_clear_spares_unless_asked():
    ok("build", "relu", "shape=8x512", "--top-k", "2")
    counts = found("cache", "list")
    assert (len(counts["kernels"]), counts["records"]) == (1, 2)
    assert found("cache", "clear")["kernels"] == 1
    assert found("cache", "list")["records"] == 2
    assert "all is well" in ok("cache", "verify")
    assert found("cache", "clear", "--records")["records"] == 2
    assert found("cache", "list")["records"] == 0


def test_verify_names_what_is_wrong_and_exits_with_1():
    ok(*PRODUCT)
    with closing(sqlite3.connect(store_path())) as connection:
        connection.execute("UPDATE sources SET text = text || ' '")
        connection.commit()
    result = run("cache", "verify", "--json")
    assert result.exit_code == 1
    problems = json.loads(result.output)["problems"]
    assert any("is not what was written" in text for text in problems)
    assert run("cache", "verify").exit_code == 1


def test_verify_notices_kernels_that_would_be_emitted_otherwise(monkeypatch):
    ok(*PRODUCT)
    monkeypatch.setattr("rollergen.emit.writing.emit", lambda program, device: None)
    result = run("cache", "verify", "--deep")
    assert result.exit_code == 1 and "is no longer emitted as it was" in result.output


def test_a_file_that_is_no_database_is_one_line_and_clear_removes_it():
    store_path().parent.mkdir()
    store_path().write_bytes(b"letters, not tables " * 500)
    result = run("cache", "list")
    assert result.exit_code == 2 and "is damaged" in result.output and "Traceback" not in result.output
    assert json.loads(run("cache", "verify", "--json").output)["error"]["kind"] == "StoreError"
    assert "could not be read" in ok("cache", "clear")
    assert not store_path().exists()
