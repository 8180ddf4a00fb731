"""``rollergen devices``: commands about devices, of which ``list`` is the one without a name."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

import click

from rollergen.cli.commands import Told
from rollergen.hal.load import known_names

COMMANDS = {
    "list": ("device_list:list_devices", "List the devices, or just those named."),
    "show": ("device_facts:show", "Print every figure of a device with its source."),
    "check": ("device_facts:check", "Print what is likely wrong with a device."),
    "compare": ("device_facts:compare", "Print the figures in which two devices differ."),
    "what-if": ("device_what_if:what_if", "Predict an operator with other figures."),
    "sensitivity": ("device_sensitivity:sensitivity_command", "Show which figure moves a prediction."),
    "probe": ("device_probe:probe_command", "Measure the device that is present."),
    "fit": ("device_fit:fit_command", "Propose corrections from measured programs."),
    "new": ("device_new:new_command", "Begin the spec of a new device."),
}


class ListByDefault(Told):
    """``rollergen devices v100`` is ``rollergen devices list v100``."""

    told = COMMANDS

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        near = get_close_matches(args[0], COMMANDS, 1, 0.7) if len(args) > 1 else ()
        if near and near[0] != args[0] and args[0] not in known_names():
            raise click.UsageError(f"{args[0]!r} is no command of devices and no device; did you mean {near[0]}?")
        completing = ctx.resilient_parsing and not args
        if not completing and (not args or args[0] not in {*COMMANDS, *ctx.help_option_names}):
            args = ["list", *args]
        return super().parse_args(ctx, args)

    def shell_complete(self, context: click.Context, incomplete: str) -> list[Any]:
        from click.shell_completion import CompletionItem

        named = [CompletionItem(name) for name in known_names() if name.startswith(incomplete)]
        return [*super().shell_complete(context, incomplete), *named]


@click.group(cls=ListByDefault)
def devices() -> None:
    """List the devices, or show, check, compare and change one.

    DEVICE is a name or a .json file; without a command they are listed.
    """
