from datetime import UTC, datetime
from typing import Annotated

import typer

from cli.connection import connected
from cli.output import Json, fields, group, show, show_all
from core.scopes import Scope
from services.access import api_keys
from services.people import accounts

app = group("API keys.")

_KEY = "id name last_four scopes created_at expires_at last_used_at revoked_at"
# What has room in a narrow terminal.
_KEY_ROW = "id name last_four expires_at revoked_at"

Email = Annotated[str, typer.Argument(metavar="EMAIL")]


@app.command("create")
def create_key(
    email: Email,
    name: Annotated[str, typer.Option(help="What the key is for.")],
    scope: Annotated[
        list[Scope] | None,
        typer.Option(help="Repeat for several. Without one, the key may do all that its user may."),
    ] = None,
    expires_at: Annotated[
        datetime | None,
        typer.Option(
            formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"],
            help="When the key ends, in UTC. Without it, the key stays until it is revoked.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Create an API key. It is shown only now."""
    with connected() as resources, resources.unit_of_work() as uow:
        user = accounts.get_by_email(uow, email)
        key, secret = api_keys.create(
            uow,
            resources.keyring,
            user_id=user.id,
            name=name,
            scopes=scope or None,
            expires_at=expires_at and expires_at.replace(tzinfo=UTC),
        )
        record = fields(key, _KEY) | {"key": secret}
    show(record, as_json=as_json)


@app.command("list")
def list_keys(email: Email, as_json: Json = False) -> None:
    """Show a user's keys, newest first."""
    with connected() as resources, resources.unit_of_work() as uow:
        user = accounts.get_by_email(uow, email)
        found = api_keys.list_of(uow, user.id).rows
        shown = _KEY if as_json else _KEY_ROW
        show_all([fields(key, shown) for key in found], as_json=as_json)


@app.command("revoke")
def revoke_key(key_id: Annotated[int, typer.Argument(metavar="ID")], as_json: Json = False) -> None:
    """Revoke a key: its next request is refused."""
    with connected() as resources, resources.unit_of_work() as uow:
        revoked = api_keys.revoke(uow, key_id=key_id)
    show({"id": key_id, "revoked": revoked}, as_json=as_json)
