"""``rollergen records``: the measurements that builds and collections have left."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from rollergen.cli.output import console
from rollergen.errors import ArgumentError
from rollergen.store.collection import add, prune, stored, tally
from rollergen.store.location import store_path
from rollergen.store.record_files import RecordFile, append, read
from rollergen.store.record_tables import read_table, write_table

_json = click.option("--json", "as_json", is_flag=True, help="One JSON object instead of text.")
_file = click.Path(path_type=Path, dir_okay=False)
_DAY = 86400.0


@click.group()
def records() -> None:
    """List, export, import, merge or prune records of measured programs.

    They lie in the store of rollergen cache; ROLLERGEN_CACHE_DIR names another directory.
    """


@records.command("list")
@_json
def list_(as_json: bool) -> None:
    """How many records there are of each operator and device, and what became of them."""
    found = list(tally(stored(store_path())))
    if as_json:
        click.echo(json.dumps(found))
        return
    rows = Table("operator", "device", "records", "states", "best ms")
    for one in found:
        extents = " ".join(f"{name}={extent}" for name, extent in one["extents"].items())
        states = ", ".join(f"{count} {state}" for state, count in one["states"].items())
        best = "" if one["best_ms"] is None else f"{one['best_ms']:.4g}"
        rows.add_row(f"{one['class']} {extents} {one['dtype']}", one["device"], str(one["records"]), states, best)
    console.print(rows)


@records.command()
@click.argument("out", type=_file)
@_json
def export(out: Path, as_json: bool) -> None:
    """Write all records to OUT: JSON Lines (.jsonl, .jsonl.gz, .jsonl.xz) or a table (.parquet)."""
    if out.exists():
        raise ArgumentError(f"{out} exists; expected a new file")
    found = stored(store_path())
    if out.suffix == ".parquet":
        write_table(out, found)
    else:
        for key, device in found.devices.items():
            append(out, device, [one for one in found.records if one["device"]["spec"] == key])
    _say(as_json, f"wrote {len(found.records)} records to {out}", records=len(found.records), path=str(out))


@records.command("import")
@click.argument("files", nargs=-1, required=True, type=_file)
@_json
def import_(files: tuple[Path, ...], as_json: bool) -> None:
    """Append the records of FILES (of export, or of rollergen verify collect) that the store lacks."""
    contents = [read_table(path) if path.suffix == ".parquet" else read(path) for path in files]
    _take_in(contents, as_json)


@records.command()
@click.argument("stores", nargs=-1, required=True, type=_file)
@_json
def merge(stores: tuple[Path, ...], as_json: bool) -> None:
    """Append the records of other STORES (their SQLite files) that this one lacks."""
    for path in stores:
        if not path.exists():
            raise ArgumentError(f"there is no store {path}")
    _take_in([stored(path) for path in stores], as_json)


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


def _take_in(contents: list[RecordFile], as_json: bool) -> None:
    offered = sum(len(one.records) for one in contents)
    taken = sum(add(store_path(), one) for one in contents)
    _say(as_json, f"took in {taken} of {offered} records; the others were there", offered=offered, taken=taken)


def _say(as_json: bool, text: str, **facts: Any) -> None:
    if as_json:
        click.echo(json.dumps(facts))
    else:
        console.print(text, highlight=False)
