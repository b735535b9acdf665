import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

from core import clock
from core.refusals.requests import FILE_NOT_WRITTEN

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
Limit = Annotated[int, typer.Option(min=1, max=1000)]

Row = Mapping[str, Any]


def group(sentence: str) -> typer.Typer:
    """A group of commands, which the sentence describes."""
    return typer.Typer(no_args_is_help=True, add_completion=False, help=sentence)


def fields(record: object, names: str) -> dict[str, Any]:
    """The record's fields of these names, which blanks part."""
    return {name: getattr(record, name) for name in names.split()}


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
    from rich.table import Table

    table = Table()
    for name in records[0]:
        # People copy ids from here, so a long one is folded, not cut.
        table.add_column(name, overflow="fold")
    for record in records:
        table.add_row(*(_text(value) for value in record.values()))
    Console().print(table)


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
        return clock.iso(value)
    raise TypeError(f"no JSON form for {type(value).__name__}")


def _text(value: object) -> str:
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, list):
        return " ".join(map(str, value))
    return "" if value is None else str(value)
