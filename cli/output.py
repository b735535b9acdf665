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

Row = Mapping[str, Any]


def show(record: Row, *, as_json: bool) -> None:
    """One record: JSON, or a name and a value on each line."""
    if as_json:
        typer.echo(json.dumps(record, default=_plain))
        return
    width = max(map(len, record), default=0)
    for name, value in record.items():
        typer.echo(f"{name:<{width}}  {_text(value)}")


def show_all(records: Sequence[Row], *, as_json: bool) -> None:
    """Many records: a JSON array, or a table."""
    if as_json:
        typer.echo(json.dumps(records, default=_plain))
        return
    if not records:
        typer.echo("None.")
        return
    # Rich takes a moment to import; only tables need it.
    from rich.console import Console
    from rich.table import Table

    table = Table()
    for name in records[0]:
        # Ids are copied from here: whole, if on two lines.
        table.add_column(name, overflow="fold")
    for record in records:
        table.add_row(*(_text(value) for value in record.values()))
    Console().print(table)


@contextmanager
def written(target: Path) -> Iterator[BinaryIO]:
    """The file to write a result to; raises ``file.not_written``."""
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
