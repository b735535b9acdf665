"""How commands print their results."""

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
Limit = Annotated[int, typer.Option(min=1, max=1000, help="Show this many at most.")]
Email = Annotated[str, typer.Argument(metavar="EMAIL")]
ListName = Annotated[str, typer.Argument(metavar="LIST", help="Its id or slug.")]
Yes = Annotated[bool, typer.Option("--yes", help="Don't ask.")]

Row = Mapping[str, Any]

_ANY_WIDTH = 100_000


def group(sentence: str) -> typer.Typer:
    """A group of commands, which the sentence describes."""
    return typer.Typer(
        no_args_is_help=True, add_completion=False, rich_markup_mode=None, help=sentence
    )


def confirm(question: str, *, yes: bool, as_json: bool) -> None:
    """Ask a person at a terminal; scripts, which can't answer, are not asked."""
    if not (yes or as_json) and sys.stdin.isatty():
        typer.confirm(question, abort=True)


def fields(record: object, names: str) -> dict[str, Any]:
    """The record's fields of these names, which blanks part."""
    return {name: getattr(record, name) for name in names.split()}


def format_duration(seconds: float) -> str:
    """Return the duration with a single unit, such as "3 h"."""
    for unit, length in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length or seconds == length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def show(record: Row, *, as_json: bool) -> None:
    """Print one record: as JSON, or a name and a value on each line."""
    if as_json:
        typer.echo(json.dumps(record, default=_plain))
        return
    width = max(map(len, record))
    for name, value in record.items():
        typer.echo(f"{name:<{width}}  {_text(value)}")


def show_all(records: Sequence[Row], *, as_json: bool) -> None:
    """Print many records: as a JSON array, or as a table."""
    if as_json:
        typer.echo(json.dumps(records, default=_plain))
        return
    if not records:
        typer.echo("None.")
        return
    # Rich takes a moment to import, and only tables need it.
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
        # As text: what owners write is no markup.
        table.add_row(*map(Text, row))
    console = Console()
    needed = Measurement.get(console, console.options.update(max_width=_ANY_WIDTH), table)
    # People copy ids from here, and programs read what is piped to them. A terminal may break a
    # cell between its words, and nothing breaks it elsewhere.
    is_terminal = console.is_terminal
    console.width = max(console.width, needed.minimum) if is_terminal else needed.maximum
    console.print(table, crop=False)


@contextmanager
def written(target: Path) -> Iterator[BinaryIO]:
    """Open the file for a result; raise ``file.not_written`` when that or writing fails."""
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
    """The text on one line. Text of strangers must not command an operator's terminal."""
    return "".join(
        each if each.isprintable() else " " if each.isspace() else "\N{REPLACEMENT CHARACTER}"
        for each in text
    )
