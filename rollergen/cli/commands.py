"""The commands of ``rollergen``: each is imported when it is called for, so that help and errors come at once."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

from rollergen.cli.errors import OneLineErrors
from rollergen.hal.errors import name_advice

_TOLD = {
    "build": "Build an operator, run it, check it, say how fast it is and why.",
    "run": "Run an ONNX model: compile it, check every layer, time it.",
    "explain": "Explain an operator's kernel, or a model layer by layer.",
    "devices": "List the devices; show, check, compare, probe or begin one.",
    "ops": "List the operators with their sizes; of those named, examples.",
    "cache": "List, clear or verify the kernels that were built before.",
    "records": "List, export, import, merge or prune measured candidates.",
    "verify": "Train and judge the learned verifier.",
    "campaign": "Measure the operators of a file on a cluster.",
    "bench": "List and run the benches of a checkout, show their results.",
}


COMMANDS = {name: (f"{name}:{name}", told) for name, told in _TOLD.items()}


class Advised(click.Group):
    """A group whose error for an unknown command names those that there are."""

    def resolve_command(self, context: click.Context, args: list[str]) -> Any:
        if not args[0].startswith("-") and self.get_command(context, args[0]) is None:
            advice = name_advice(args[0], self.list_commands(context))
            raise click.UsageError(f"there is no command {args[0]!r}; {advice}")
        return super().resolve_command(context, args)


class Told(Advised):
    """A group of commands, each with the place of its function in ``rollergen.cli`` and what help says of it."""

    told: dict[str, tuple[str, str]]

    def list_commands(self, context: click.Context | None) -> list[str]:
        return list(self.told)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in self.told:
            return None
        module, _, function = self.told[name][0].partition(":")
        return getattr(import_module(f"rollergen.cli.{module}"), function)  # type: ignore[no-any-return]

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, told) for name, (_, told) in self.told.items()])

    def shell_complete(self, context: click.Context, incomplete: str) -> list[Any]:
        from click.shell_completion import CompletionItem

        found = ((name, told) for name, (_, told) in self.told.items() if name.startswith(incomplete))
        return [CompletionItem(name, help=told) for name, told in found]


class Commands(Told, OneLineErrors):
    """The commands of ``rollergen``."""

    told = COMMANDS
