"""Prints the results of ``pressroom`` commands."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

from core import clock
from core.errors.requests import FILE_NOT_WRITTEN

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
Limit = Annotated[int, typer.Option(min=1, max=1000, help="The maximum number of rows to show.")]
Email = Annotated[str, typer.Argument(metavar="EMAIL")]
ListName = Annotated[str, typer.Argument(metavar="LIST", help="The list's id or slug.")]
Yes = Annotated[bool, typer.Option("--yes", help="Don't ask for confirmation.")]

Row = Mapping[str, Any]

_MAX_WIDTH = 100_000


def create_group(sentence: str) -> typer.Typer:
    return typer.Typer(
        no_args_is_help=True, add_completion=False, rich_markup_mode=None, help=sentence
    )


def confirm(question: str, *, yes: bool, as_json: bool) -> None:
    """Ask for confirmation at a terminal. Never ask a script, because a script can't answer."""
    if not (yes or as_json) and sys.stdin.isatty():
        typer.confirm(question, abort=True)


def select_fields(record: object, names: str) -> dict[str, Any]:
    """Return the fields whose names are in ``names``, separated by spaces."""
    return {name: getattr(record, name) for name in names.split()}


def format_duration(seconds: float) -> str:
    for unit, length in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length or seconds == length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def print_record(record: Row, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(record, default=_plain))
        return
    width = max(map(len, record))
    for name, value in record.items():
        typer.echo(f"{name:<{width}}  {_text(value)}")


def print_lists(lists: Mapping[str, Sequence[str]]) -> None:
    for name, lines in lists.items():
        typer.echo(f"\n{name}")
        for line in lines:
            typer.echo(f"  {_printable(line)}")


def print_records(records: Sequence[Row], *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(records, default=_plain))
        return
    if not records:
        typer.echo("None.")
        return
    # Import Rich only here, because the import is slow and only tables need Rich.
    from rich.console import Console
    from rich.measure import Measurement
    from rich.table import Table
    from rich.text import Text

    table = Table()
    rows = [[_text(value) for value in record.values()] for record in records]
    for name, cells in zip(records[0], zip(*rows, strict=True), strict=True):
        is_word = not any(" " in cell for cell in cells)
        table.add_column(name, no_wrap=is_word, overflow="ignore" if is_word else "fold")
    for row in rows:
        # Print cells as plain text, so that Rich doesn't interpret list owners' texts as markup.
        table.add_row(*map(Text, row))
    console = Console()
    needed = Measurement.get(console, console.options.update(max_width=_MAX_WIDTH), table)
    # In a terminal, cells are wrapped only between words, so that people can copy whole ids. In a
    # pipe, cells aren't wrapped, so that programs can read the table.
    is_terminal = console.is_terminal
    console.width = max(console.width, needed.minimum) if is_terminal else needed.maximum
    console.print(table, crop=False)


@contextmanager
def open_output_file(target: Path) -> Iterator[BinaryIO]:
    try:
        with target.open("wb") as out:
            yield out
    except OSError as error:
        raise FILE_NOT_WRITTEN(target=target, reason=error.strerror) from None


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return clock.format_timestamp(value)
    raise TypeError(f"no JSON form for {type(value).__name__}")


def _text(value: object) -> str:
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, list):
        value = " ".join(map(str, value))
    return "" if value is None else _printable(str(value))


def _printable(text: str) -> str:
    """Return the text on a single line, without control characters.

    Control characters in other people's texts could manipulate the operator's terminal.
    """
    return "".join(
        each if each.isprintable() else " " if each.isspace() else "\N{REPLACEMENT CHARACTER}"
        for each in text
    )
