"""The commands of ``pressroom attachments``: uploaded images."""

from typing import Annotated

import typer

from cli.connection import connected
from cli.output import Json, group, show_all
from core import clock
from services.attachments import strays

app = group("Uploaded images.")
# With a callback, a group stays a group while it has only one command.
app.callback()(lambda: None)
STRAYS_LEFT = 1


@app.command("sweep")
def sweep_attachments(
    fix: Annotated[
        bool,
        typer.Option("--fix", help="Remove objects without a row, fail rows without an object."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Find rows without objects and objects without rows. The exit code is 1 if any are left."""
    with connected() as resources:
        rows = []
        for stray in strays.find_strays(resources, now=clock.now()):
            if fix:
                strays.repair_stray(resources, stray)
            rows.append({"fault": stray.kind, "key": stray.key, "mended": fix})
    show_all(rows, as_json=as_json)
    if rows and not fix:
        raise typer.Exit(STRAYS_LEFT)
