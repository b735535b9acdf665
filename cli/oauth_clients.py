from typing import Annotated, Any

import typer

from cli.connection import connected
from cli.output import Json, fields, group, show, show_all
from core.scopes import Scope
from models import OAuthClient
from services.oauth import clients

app = group("Programs that people may give access to.")


@app.command("create")
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name that people see.")],
    redirect_uri: Annotated[
        list[str],
        typer.Option(help="The exact URL that people are sent back to; repeat for several."),
    ],
    scope: Annotated[
        list[Scope], typer.Option(help="A scope that the program may ask for; repeat for several.")
    ],
    public: Annotated[
        bool,
        typer.Option(
            "--public", help="The program can't keep a secret: an app, or a page's script."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Register a program. Its secret is shown only now."""
    with connected() as resources, resources.unit_of_work() as uow:
        client, secret = clients.create(
            uow,
            resources.keyring,
            name=name,
            redirect_uris=redirect_uri,
            scopes=scope,
            public=public,
        )
        uow.session.refresh(client)
        record = _client(client) | {"client_secret": secret}
    show(record, as_json=as_json)


@app.command("list")
def list_clients(as_json: Json = False) -> None:
    """Show the 1,000 newest programs, newest first."""
    with connected() as resources, resources.unit_of_work() as uow:
        show_all([_client(each) for each in clients.list_of(uow)], as_json=as_json)


@app.command("revoke")
def revoke(
    client_id: Annotated[str, typer.Argument(metavar="CLIENT_ID")], as_json: Json = False
) -> None:
    """End a program's access to all accounts: its next request is refused."""
    with connected() as resources, resources.unit_of_work() as uow:
        revoked = clients.revoke(uow, client_id)
    show({"client_id": client_id, "revoked": revoked}, as_json=as_json)


def _client(client: OAuthClient) -> dict[str, Any]:
    return {
        **fields(client, "client_id name"),
        "public": client.secret_hmac is None,
        **fields(client, "redirect_uris scopes created_at revoked_at"),
    }
