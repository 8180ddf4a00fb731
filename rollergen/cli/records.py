"""``rollergen records``: the measurements that builds and collections have left."""

from __future__ import annotations

import contextlib
import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.markup import escape
from rich.table import Table

from rollergen.cli.commands import Advised
from rollergen.cli.output import NewFile, console
from rollergen.errors import ArgumentError
from rollergen.hal.files.trusted import open_untrusted

if TYPE_CHECKING:
    from rollergen.store.record_files import RecordFile

_json = click.option("--json", "as_json", is_flag=True, help="One JSON object instead of text.")
_file = click.Path(path_type=Path, dir_okay=False)
_present_file = click.Path(path_type=Path, dir_okay=False, exists=True, readable=True)
_DAY = 86400.0
_MAGIC = b"SQLite format 3\0"


@click.group(cls=Advised)
def records() -> None:
    """List, export, import, merge or prune records of measured programs.

    They lie in the store of rollergen cache; ROLLERGEN_CACHE_DIR names another directory.
    """


@records.command("list", short_help="Count the records of each operator and device.")
@_json
def list_(as_json: bool) -> None:
    """How many records there are of each operator and device, and what became of them."""
    from rollergen.store.collection import stored, tally
    from rollergen.store.location import store_path

    found = list(tally(stored(store_path())))
    if as_json:
        click.echo(json.dumps(found))
        return
    rows = Table("operator", "device", "records", "states", "best ms")
    for one in found:
        extents = " ".join(f"{name}={extent}" for name, extent in one["extents"].items())
        states = ", ".join(f"{count} {state}" for state, count in one["states"].items())
        best = "" if one["best_ms"] is None else f"{one['best_ms']:.4g}"
        operator = f"{one['class']} {extents} {one['dtype']}"
        rows.add_row(escape(operator), escape(one["device"]), str(one["records"]), states, best)
    console.print(rows)


@records.command(short_help="Write all records to a file.")
@click.argument("out", type=NewFile())
@_json
def export(out: Path, as_json: bool) -> None:
    """Write all records to OUT: JSON Lines (.jsonl, .jsonl.gz, .jsonl.xz) or a table (.parquet)."""
    if out.exists():
        raise ArgumentError(f"{out} exists; expected a new file")

    from rollergen.store.collection import stored
    from rollergen.store.location import store_path
    from rollergen.store.record_files import append
    from rollergen.store.record_tables import write_table

    found = stored(store_path())
    if out.suffix == ".parquet":
        write_table(out, found)
    else:
        for key, device in found.devices.items():
            append(out, device, [one for one in found.records if one["device"]["spec"] == key])
    _say(as_json, f"wrote {len(found.records)} records to {out}", records=len(found.records), path=str(out))


@records.command("import", short_help="Append the records of files.")
@click.argument("files", nargs=-1, required=True, type=_present_file)
@click.option(
    "--from", "origin", type=click.Choice(["rollergen", "kernel_tuner"]), default="rollergen", show_default=True,
    help="Who wrote FILES; kernel_tuner: T4 results, which need --kernel, --device and --size.",
)  # fmt: skip
@click.option("--kernel", help="The kernel that was tuned, such as clblast-gemm.")
@click.option("--device", help="The device that ran it: a name or a spec's file.")
@click.option("--size", "sizes", multiple=True, metavar="NAME=EXTENT", help="Of the problem: m, n, k (several times).")
@_json
def import_(
    files: tuple[Path, ...], origin: str, kernel: str | None, device: str | None, sizes: tuple[str, ...], as_json: bool
) -> None:
    """Append the records of FILES (of export, or of rollergen verify collect) that the store lacks.

    Of Kernel Tuner's results those configurations become records for which there is an rProgram; the others are
    refused by name.
    """
    if origin == "kernel_tuner":
        _take_tuned(files, kernel, device, sizes, as_json)
        return
    if kernel or device or sizes:
        raise ArgumentError("--kernel, --device and --size belong to --from kernel_tuner; rollergen's files hold them")
    for path in files:
        if _is_store(path):
            raise ArgumentError(f"{path} is a store (an SQLite file); rollergen records merge takes its records")
    from rollergen.store.record_tables import read_any

    _take_in([read_any(path) for path in files], as_json)


def _take_tuned(
    files: tuple[Path, ...], kernel: str | None, device: str | None, sizes: tuple[str, ...], as_json: bool
) -> None:
    if kernel is None or device is None:
        raise ArgumentError("--from kernel_tuner needs --kernel and --device: T4 results do not say what ran where")
    from rollergen.store.kernel_tuner import read_t4
    from rollergen.targets import resolve

    found = [read_t4(path, resolve(device), kernel, _extents(sizes)) for path in files]
    refused: Counter[str] = sum((Counter(one.refused) for one in found), Counter())
    if not as_json:
        for reason, count in refused.most_common():
            console.print(f"refused {count}: {reason}", highlight=False, markup=False)
    _take_in([one.file for one in found], as_json, refused=dict(refused))


def _extents(sizes: tuple[str, ...]) -> dict[str, int]:
    found = {}
    for text in sizes:
        name, _, extent = text.partition("=")
        if not extent.isdecimal():
            raise ArgumentError(f"--size {text}; expected NAME=EXTENT, such as m=4096")
        found[name] = int(extent)
    return found


@records.command(short_help="Append the records of other stores.")
@click.argument("stores", nargs=-1, required=True, type=_file)
@_json
def merge(stores: tuple[Path, ...], as_json: bool) -> None:
    """Append the records of other STORES (their SQLite files) that this one lacks."""
    for path in stores:
        if not path.is_file():
            raise ArgumentError(f"there is no store {path}")
        if not _is_store(path):
            raise ArgumentError(f"{path} is no store (an SQLite file); rollergen records import takes files of records")
    _take_in([_of_another(path) for path in stores], as_json)


def _of_another(store: Path) -> RecordFile:
    """Its records; an error says nothing of clearing, which would empty the store that takes them."""
    from rollergen.store.collection import stored
    from rollergen.store.database import CLEAR, StoreError

    try:
        return stored(store, own=False)
    except StoreError as error:
        raise StoreError(f"{str(error).partition(f'; {CLEAR}')[0]}; nothing was taken in") from None


def _is_store(path: Path) -> bool:
    """Whether a file begins as SQLite's do; asked before any connection is opened, as closing a file drops the locks
    that SQLite has on it."""
    with contextlib.suppress(OSError), open_untrusted(path) as file:
        return file.read(len(_MAGIC)) == _MAGIC
    return False


@records.command("prune")
@click.option("--older-than", type=float, metavar="DAYS", help="Records made longer ago.")
@click.option("--device", help="Records whose device's identity begins so.")
@click.option("--failed", is_flag=True, help="Records of programs that failed.")
@click.option("--yes", is_flag=True, help="Remove them; without it they are only counted.")
@_json
def prune_(older_than: float | None, device: str | None, failed: bool, yes: bool, as_json: bool) -> None:
    """Remove records for which every given condition holds."""
    if older_than is None and device is None and not failed:
        raise ArgumentError("prune needs a condition: --older-than DAYS, --device NAME or --failed")

    from rollergen.store.collection import prune, stored
    from rollergen.store.location import store_path

    useless = _useless(older_than, device, failed)
    if not yes:
        count = sum(useless(one) for one in stored(store_path()).records)
        _say(as_json, f"{count} records would be removed; --yes removes them", records=count, removed=False)
        return
    count = prune(store_path(), useless)
    _say(as_json, f"removed {count} records", records=count, removed=True)


def _useless(older_than: float | None, device: str | None, failed: bool) -> Callable[[dict[str, Any]], bool]:
    before = time.time() - (older_than or 0.0) * _DAY
    return lambda record: (
        (older_than is None or record.get("ts", 0) < before)
        and (device is None or str(record["device"].get("id")).startswith(device))
        and (not failed or record["result"]["status"] != "ok")
    )


def _take_in(contents: list[RecordFile], as_json: bool, **more: Any) -> None:
    from rollergen.store.collection import add
    from rollergen.store.location import store_path

    offered = sum(len(one.records) for one in contents)
    taken = sum(add(store_path(), one) for one in contents)
    _say(as_json, f"took in {taken} of {offered} records; the others were there", offered=offered, taken=taken, **more)


def _say(as_json: bool, text: str, **facts: Any) -> None:
    if as_json:
        click.echo(json.dumps(facts))
    else:
        console.print(text, highlight=False)
