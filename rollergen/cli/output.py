"""What commands share: options, progress, numbers as text."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from rollergen.errors import ArgumentError, DeviceError, refuse_top_k
from rollergen.hal.errors import RuntimeUnavailableError, SpecError
from rollergen.verify.objectives import DEFAULT_OBJECTIVE, OBJECTIVES

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

ProgressCallback = Callable[[str, int, int], None]

console = Console(emoji=False)  # ":end:" is a part of a signature

records_argument = click.argument("records", nargs=-1, required=True, type=click.Path(path_type=Path, dir_okay=False))
objective_option = click.option(
    "--objective", type=click.Choice(OBJECTIVES), default=DEFAULT_OBJECTIVE,
    show_default=True, help="What the trees learn. residual: the log of time over predicted time; cautious: the same "
    "by fewer trees with larger leaves, of which half is believed; foremost: as cautious, the model's first programs "
    "weigh most; lambdarank: the order.",
)  # fmt: skip
constants_option = click.option(
    "--constants", type=click.Choice(["present", "recorded"]), default="present", show_default=True,
    help="The model's constants of built-in devices: as they are now, or as they lie beside the records.",
)  # fmt: skip


class NewFile(click.Path):
    """A file that is to be written; one in no directory, or that may not be written, is refused before any work."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False, writable=True, path_type=Path)

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Any:
        path = Path(os.fsdecode(super().convert(value, parameter, context)))
        parent = path.absolute().parent
        if not parent.is_dir():
            raise ArgumentError(f"{path} cannot be written: {parent} is no directory")
        if not os.access(parent, os.W_OK):
            raise ArgumentError(f"{path} cannot be written: {parent} is not writable")
        return path


class NewFolder(click.Path):
    """A folder that is to be written; one where nothing can be written is refused before any work."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Any:
        folder = Path(os.fsdecode(super().convert(value, parameter, context)))
        if folder.exists() and not folder.is_dir():
            raise ArgumentError(f"{folder} is a file; expected a new name, an empty directory or what was saved before")
        beside = next((one for one in folder.absolute().parents if one.exists()), folder)
        try:
            with TemporaryDirectory(dir=beside):  # as saving does; permissions do not tell what /proc refuses
                pass
        except OSError as error:
            raise ArgumentError(f"{folder} cannot be written: {beside}: {error.strerror}") from None
        return str(folder)


def save_option(what: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Where it is saved; ``what``: what runs from there."""
    return click.option("--save", "directory", type=NewFolder(), metavar="DIR", help=f"Save it in DIR; {what}.")


def _top_k(context: click.Context, parameter: click.Parameter, top_k: int | None) -> int | None:
    refuse_top_k(top_k)
    return top_k


def top_k_option(whose: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """How many candidates are made; a number that is none is refused before anything else is loaded."""
    return click.option("--top-k", type=int, callback=_top_k, help=f"How many of {whose} are emitted, 1 to 50.")


def operators(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Names of operators for a shell to complete."""
    from rollergen.bench.catalogue import OPERATORS

    return [name for name in OPERATORS if name.startswith(incomplete)]


def devices(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Names of devices for a shell to complete."""
    from rollergen.hal.load import known_names

    return [name for name in known_names() if name.startswith(incomplete)]


def refuse_unknown(device: str) -> None:
    """Raises DeviceError for a device that no spec describes, and for a language whose device is not present; loads
    nothing that computes, so that it comes at once."""
    from rollergen.hal.languages import language, language_names
    from rollergen.hal.load import known_names, load_device

    if device in known_names():
        return
    written, _, which = device.partition(":")
    if written not in language_names():
        try:
            load_device(device)  # a file, or the error that lists what is known
        except SpecError as error:
            raise DeviceError(str(error)) from None
    elif (find := language(written).present) is not None:
        try:
            find(which)
        except (RuntimeUnavailableError, SpecError) as error:
            raise DeviceError(f"device={device!r}: {error}") from None


def _known(context: click.Context, parameter: click.Parameter, device: str | None) -> str | None:
    if device is not None:
        refuse_unknown(device)
    return device


def device_argument(name: str = "device") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """An argument that names a device; an unknown one is refused before anything else is loaded."""
    return click.argument(name, shell_complete=devices, callback=_known)


device_option = click.option(
    "--device", shell_complete=devices, callback=_known, help="A name or a .json file; default: the best present."
)


def problem_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The arguments and options of every command that builds a kernel."""
    decorators = (
        click.argument("problem", shell_complete=operators),
        click.argument("sizes", nargs=-1, type=click.UNPROCESSED),
        device_option,
        click.option("--dtype", default="float32", show_default=True, help="Element type of every tensor."),
        top_k_option("the best programs"),
        click.option("--no-profile", is_flag=True, help="Take the model's first choice; measure nothing."),
        click.option("--no-cache", is_flag=True, help="Neither take a kernel that was built before nor keep this one."),
        click.option("--json", "as_json", is_flag=True, help="One JSON object instead of tables."),
    )
    for decorate in reversed(decorators):
        command = decorate(command)
    return command


def shown_in(bar: Progress, task: TaskID, name: str) -> ProgressCallback:
    """A callback that tells of `name` beside the bar of a task."""
    return lambda what, done, of: bar.update(task, description=f"{name}: {what} {done}/{of}")


@contextmanager
def progress_bar(shown: bool) -> Iterator[ProgressCallback]:
    """A callback for `build(progress=)`, drawn as bars on a terminal where `shown`."""
    if not (shown and console.is_terminal):
        yield lambda what, done, of: None
        return
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bars:
        tasks: dict[str, Any] = {"constructing": bars.add_task("constructing", total=None)}

        def update(what: str, done: int, of: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=of)
            bars.update(tasks[what], completed=done)
            bars.update(tasks["constructing"], total=1, completed=1)

        yield update
