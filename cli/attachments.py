from typing import Annotated

import typer

from cli.connection import connected
from cli.output import Json, group, show, show_all
from core import clock
from services import rotation
from services.media.attachments import strays
from services.people.factors import totp

attachments = group("Uploaded images.")
encryption = group("Encryption keys.")
# With a callback, a group stays a group while it has only one command.
attachments.callback()(lambda: None)
encryption.callback()(lambda: None)

FOUND = 1


@attachments.command("sweep")
def sweep(
    fix: Annotated[
        bool,
        typer.Option("--fix", help="Remove objects without a row, fail rows without an object."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Find rows without objects and objects without rows. The exit code is 1 if any are left."""
    with connected() as resources:
        found = []
        for stray in strays.find(resources, now=clock.now()):
            if fix:
                strays.mend(resources, stray)
            found.append({"fault": stray.kind, "key": stray.key, "mended": fix})
    show_all(found, as_json=as_json)
    if found and not fix:
        raise typer.Exit(FOUND)


@encryption.command("rotate")
def rotate(as_json: Json = False) -> None:
    """Wrap each file's key and each app's secret under the first of PRESSROOM_ENCRYPTION_KEYS."""
    with connected() as resources:
        rewrapped = sum(rotation.rotate(resources))
        with resources.unit_of_work() as uow:
            rewrapped += totp.rotate(uow, resources.key_wrapper)
        current = resources.key_wrapper.current
    show({"rewrapped": rewrapped, "key": current}, as_json=as_json)
