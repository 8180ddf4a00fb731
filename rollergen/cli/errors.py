"""Every error of the command line is one line and exit code 2; no tracebacks."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from rollergen.errors import RollergenError


def _fail(kind: str, message: str, as_json: bool) -> NoReturn:
    line = "; ".join(" ".join(problem.split()) for problem in message.splitlines() if problem.strip())
    if as_json:
        click.echo(json.dumps({"error": {"kind": kind, "message": line}}))
    else:
        click.echo(f"rollergen: {line}", err=True)
    sys.exit(2)


def _usage(error: click.UsageError) -> str:
    """How the command is called, where an argument is missing or one is too many."""
    counted = isinstance(error, click.MissingParameter) or error.message.startswith("Got unexpected extra argument")
    return f" {error.ctx.get_usage()}" if counted and error.ctx is not None else ""


def _tell(message: Warning | str, *where: Any) -> None:
    """A warning as one line, without the place in the source."""
    click.echo(f"rollergen: warning: {' '.join(str(message).split())}", err=True)


class OneLineErrors(click.Group):
    """A group whose usage errors and `RollergenError`s end as one line, or a JSON object after --json.

    Warnings are lines, too.
    """

    def main(self, args: Sequence[str] | None = None, *rest: Any, **extra: Any) -> Any:
        words = list(sys.argv[1:] if args is None else args)
        as_json = "--json" in words
        extra["standalone_mode"] = False
        try:
            with warnings.catch_warnings():
                warnings.showwarning = _tell  # type: ignore[assignment]
                result = super().main(words, *rest, **extra)
        except click.exceptions.NoArgsIsHelpError as error:
            click.echo(error.format_message())
            sys.exit(0)
        except click.UsageError as error:
            _fail("usage", f"{error.format_message()}{_usage(error)}", as_json)
        except click.ClickException as error:
            _fail("usage", error.format_message(), as_json)
        except RollergenError as error:
            _fail(type(error).__name__, str(error), as_json)
        except click.Abort:
            _fail("interrupted", "interrupted", as_json)
        sys.exit(result if isinstance(result, int) else 0)
