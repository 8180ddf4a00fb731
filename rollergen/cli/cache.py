"""``rollergen cache``: the kernels that were built before, and the file that holds them."""

from __future__ import annotations

import json
import sys
from datetime import datetime
from typing import Any

import click

from rollergen.cli.commands import Advised
from rollergen.cli.output import console

_json = click.option("--json", "as_json", is_flag=True, help="One JSON object instead of text.")


@click.group(cls=Advised)
def cache() -> None:
    """List, clear or verify the kernels and measurements that builds have left.

    They lie in the user's cache directory; ROLLERGEN_CACHE_DIR names another one, ROLLERGEN_CACHE_LIMIT another bound
    than 1GiB: beyond it, the kernels used longest ago are removed.
    """


@cache.command("list")
@_json
def list_(as_json: bool) -> None:
    """List what is kept, newest first."""
    from rollergen.gate.footprint import bytes_text
    from rollergen.store import admin
    from rollergen.store.location import store_path

    found = admin.listing(store_path())
    if as_json:
        click.echo(json.dumps(found))
        return
    for one in found["kernels"]:
        _say(_line(one))
    size = f"{bytes_text(found['bytes'])} of at most {bytes_text(found['limit_bytes'])}"
    _say(f"{len(found['kernels'])} kernels, {found['records']} records, {size} in {found['path']}")


@cache.command(short_help="Remove all kernels.")
@click.option("--records", "with_records", is_flag=True, help="Remove the records of measurements too.")
@_json
def clear(with_records: bool, as_json: bool) -> None:
    """Remove all kernels; records of measurements stay unless --records is given.

    A damaged file, and one that another version wrote, is removed altogether.
    """
    from rollergen.store import admin
    from rollergen.store.location import store_path

    removed = admin.clear(store_path(), with_records=with_records)
    if as_json:
        click.echo(json.dumps(removed))
    elif removed["kernels"] is None:
        _say(f"removed {removed['path']}, which could not be read")
    else:
        _say(f"removed {removed['kernels']} kernels and {removed['records']} records from {removed['path']}")


@cache.command()
@click.option("--deep", is_flag=True, help="Emit every candidate again, not just the chosen ones.")
@_json
def verify(deep: bool, as_json: bool) -> None:
    """Check every row of the file; exit code 1 where something is wrong."""
    from rollergen.store import admin
    from rollergen.store.location import store_path

    verdict = admin.verify(store_path(), deep=deep)
    if as_json:
        found = {"path": str(store_path()), "checked": verdict.checked, "problems": list(verdict.problems)}
        click.echo(json.dumps(found))
    else:
        rows = ", ".join(f"{count} {table}" for table, count in verdict.checked.items())
        _say(f"{store_path()}: {rows or 'nothing kept yet'}")
        for problem in verdict.problems:
            _say(f"  {problem}")
        _say(f"{len(verdict.problems)} problems: {_REMEDY}" if verdict.problems else "all is well")
    if verdict.problems:
        sys.exit(1)


_REMEDY = "the next build of a damaged kernel replaces its rows; rollergen cache clear removes all, --records too"


def _line(one: dict[str, Any]) -> str:
    """What stands under a kernel's signature."""
    from rollergen.explain.explanation import seconds_text

    measured = one["measured_seconds"]
    parts = [
        f"on {one['device']}",
        f"predicted {seconds_text(one['predicted_seconds'])}",
        "not measured" if measured is None else f"measured {seconds_text(measured)}",
        f"{one['candidates']} candidates",
        f"{datetime.fromtimestamp(one['made_at']):%Y-%m-%d %H:%M}",
        *(() if one["usable"] else (f"not used: made by {one['rollergen']}",)),
    ]
    return f"{one['signature']}\n  {', '.join(parts)}"


def _say(text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
