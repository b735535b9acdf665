"""The commands of ``pressroom attachments``, which manage uploaded images."""

from typing import Annotated

import typer

from cli.connection import open_command_resources
from cli.output import Json, create_group, print_records
from core import clock
from services.attachments import strays

app = create_group("Manage uploaded images.")
# Without a callback, Typer would replace a group that has a single command by that command.
app.callback()(lambda: None)
STRAYS_LEFT = 1


@app.command("sweep")
def sweep_attachments(
    fix: Annotated[
        bool,
        typer.Option(
            "--fix",
            help="Delete files without a row, and mark attachments without a file as failed.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Find attachments without a stored file, and files without a row.

    The exit code is 1 if faults remain.
    """
    with open_command_resources() as resources:
        rows = []
        for stray in strays.find_strays(resources, now=clock.now()):
            if fix:
                strays.repair_stray(resources, stray)
            rows.append({"fault": stray.kind, "key": stray.key, "mended": fix})
    print_records(rows, as_json=as_json)
    if rows and not fix:
        raise typer.Exit(STRAYS_LEFT)
