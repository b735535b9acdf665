"""The commands of ``pressroom keys`` and ``pressroom oauth-clients``."""

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from cli.connection import open_command_resources
from cli.output import Email, Json, create_group, print_record, print_records, select_fields
from core.scopes import Scope
from models import OAuthClient
from services.access import api_keys
from services.accounts import accounts, own_keys
from services.oauth import clients
from services.senders import senders_of_keys
from services.subscriptions import lists

keys = create_group("Manage API keys.")

_KEY_FIELDS = "id name last_four scopes list_ids created_at expires_at last_used_at revoked_at"
# The fields of an API key that fit into a table in a narrow terminal.
_KEY_ROW_FIELDS = "id name last_four expires_at revoked_at"


@keys.command("create")
def create_key(
    email: Email,
    *,
    name: Annotated[str, typer.Option(help="A name that describes the key's purpose.")],
    scope: Annotated[
        list[Scope] | None,
        typer.Option(
            help=(
                "A scope of the key. Repeat the option for several scopes. Without this option, "
                "the key has full access."
            )
        ),
    ] = None,
    list_name: Annotated[
        list[str] | None,
        typer.Option(
            "--list",
            metavar="LIST",
            help=(
                "The id or slug of a list to which the scope delivery is limited. Repeat the "
                "option for several lists. Without this option, the scope covers every list."
            ),
        ),
    ] = None,
    expires_at: Annotated[
        datetime | None,
        typer.Option(
            formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"],
            help=(
                "The time in UTC when the key expires. Without this option, the key never expires."
            ),
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Create an API key. The key is shown only once."""
    with open_command_resources() as resources, resources.unit_of_work() as uow:
        account_id = accounts.get_account_by_email(uow, email)
        list_ids = [lists.get_named(uow, each).id for each in list_name or ()]
        key, secret = api_keys.create_key(
            uow,
            account_id=account_id,
            name=name,
            scopes=scope or None,
            list_ids=list_ids or None,
            expires_at=expires_at and expires_at.replace(tzinfo=UTC),
            by_operator=bool(list_ids),
        )
        if list_ids:
            own_keys.notify_owner(uow, key)
        record = select_fields(key, _KEY_FIELDS) | {"key": secret}
    print_record(record, as_json=as_json)


@keys.command("list")
def list_keys(email: Email, as_json: Json = False) -> None:
    """Show a user's API keys, newest first."""
    with open_command_resources() as resources, resources.unit_of_work() as uow:
        account_id = accounts.get_account_by_email(uow, email)
        rows = api_keys.list_keys(uow, account_id).rows
        columns = _KEY_FIELDS if as_json else _KEY_ROW_FIELDS
        print_records([select_fields(key, columns) for key in rows], as_json=as_json)


@keys.command("revoke")
def revoke_key(
    key_id: Annotated[int, typer.Argument(metavar="ID")],
    keep_endpoints: Annotated[
        bool,
        typer.Option(
            "--keep-endpoints", help="Keep the webhook endpoints and senders of all revoked keys."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Revoke an API key and all keys created with the key.

    Without --keep-endpoints, the webhook endpoints of all revoked keys are permanently disabled,
    and the senders of all revoked keys are deleted.
    """
    with open_command_resources() as resources, resources.unit_of_work() as uow:
        revoked = senders_of_keys.revoke_key(uow, key_id=key_id, keep_endpoints=keep_endpoints)
    print_record({"id": key_id, "revoked": revoked}, as_json=as_json)


oauth_clients = create_group("Manage OAuth clients, which users can authorize.")


@oauth_clients.command("create")
def create_client(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The program's name, which users see.")
    ],
    redirect_uri: Annotated[
        list[str],
        typer.Option(
            help="The exact redirect URI of the program. Repeat the option for several URIs."
        ),
    ],
    scope: Annotated[
        list[Scope],
        typer.Option(
            help="A scope that the program can request. Repeat the option for several scopes."
        ),
    ],
    public: Annotated[
        bool,
        typer.Option(
            "--public",
            help=(
                "Register a public client without a secret, such as an app or a script in a web "
                "page."
            ),
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Register an OAuth client. The client secret is shown only once."""
    with open_command_resources() as resources, resources.unit_of_work() as uow:
        client, secret = clients.register_client(
            uow,
            name=name,
            redirect_uris=redirect_uri,
            scopes=scope,
            public=public,
        )
        uow.session.refresh(client)
        record = _client(client) | {"client_secret": secret}
    print_record(record, as_json=as_json)


@oauth_clients.command("list")
def list_clients(as_json: Json = False) -> None:
    """Show the 1,000 newest OAuth clients, newest first."""
    with open_command_resources() as resources, resources.unit_of_work() as uow:
        print_records([_client(each) for each in clients.list_clients(uow)], as_json=as_json)


@oauth_clients.command("revoke")
def revoke_client(
    client_id: Annotated[str, typer.Argument(metavar="CLIENT_ID")], as_json: Json = False
) -> None:
    """Revoke an OAuth client and its access to all accounts."""
    with open_command_resources() as resources, resources.unit_of_work() as uow:
        revoked = clients.revoke_client(uow, client_id)
    print_record({"client_id": client_id, "revoked": revoked}, as_json=as_json)


def _client(client: OAuthClient) -> dict[str, Any]:
    return {
        **select_fields(client, "client_id name"),
        "public": client.secret_hmac is None,
        **select_fields(client, "redirect_uris scopes created_at revoked_at"),
    }
