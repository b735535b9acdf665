"""The commands of ``pressroom senders``, which manage sources of bounce and complaint reports."""

import sys
from typing import Annotated, Any

import typer

from cli.connection import open_command_resources
from cli.output import Email, Json, create_group, print_record, print_records, select_fields
from core.errors.senders import SENDER_NOT_FOUND
from core.settings import Settings
from integrations.senders.port import SenderProvider
from models import Sender
from services.accounts import accounts
from services.senders import senders
from services.senders.provider_keys import KEY_NAMES, MAX_KEY_CHARACTERS
from services.senders.senders import MAX_NAME_CHARACTERS, NewSender
from services.subscriptions import lists

app = create_group("Manage senders, which report bounces and complaints.")

_FIELDS = "id name provider list_ids any_list key_id state last_report_at last_refused_at"
# The columns of the table that ``pressroom senders list`` prints. The table must fit into a narrow
# terminal.
_ROW_FIELDS = "id name provider state last_report_at"


def _check_name(name: str) -> str:
    if not 1 <= len(stripped := name.strip()) <= MAX_NAME_CHARACTERS:
        raise typer.BadParameter(f"must have 1 to {MAX_NAME_CHARACTERS} characters")
    return stripped


@app.command("create")
def create_sender(
    email: Email,
    *,
    provider: Annotated[SenderProvider, typer.Option(help="The provider that posts reports.")],
    name: Annotated[str, typer.Option(help="A name for the sender.", callback=_check_name)],
    list_name: Annotated[
        list[str] | None,
        typer.Option(
            "--list",
            metavar="LIST",
            help=(
                "The id or slug of a list that the sender covers. Repeat the option for several "
                "lists. Without this option, the sender covers all lists of the account."
            ),
        ),
    ] = None,
    any_list: Annotated[
        bool,
        typer.Option("--any-list", help="Accept reports about every list of the installation."),
    ] = False,
    topic_arn: Annotated[
        str | None,
        typer.Option(
            metavar="ARN", help="The ARN of the Amazon SNS topic, only for the provider ses."
        ),
    ] = None,
    key_stdin: Annotated[
        bool,
        typer.Option("--key-stdin", help="Read the key of mailgun, sendgrid or resend from stdin."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Create a sender for an account. The sender's secret is shown only once.

    For the providers mailgun, sendgrid and resend, the command asks for the key of the provider.
    """
    keys = _read_keys(provider, from_stdin=key_stdin)
    with open_command_resources() as resources, resources.unit_of_work() as uow:
        account_id = accounts.get_account_by_email(uow, email)
        list_ids = [lists.get_named(uow, each).id for each in list_name or ()]
        new = NewSender(
            name,
            provider,
            list_ids=list_ids or None,
            any_list=any_list,
            topic_arn=topic_arn,
            keys=keys,
        )
        sender, secret = senders.add_sender(
            uow, account_id, new, key_id=None, detail="with a command on the server"
        )
        uow.session.refresh(sender)
        record = _describe(resources.settings, sender, _FIELDS) | {"secret": secret}
    print_record(record, as_json=as_json)


@app.command("list")
def list_senders(email: Email, as_json: Json = False) -> None:
    """Show an account's senders, newest first."""
    with open_command_resources() as resources, resources.unit_of_work() as uow:
        account_id = accounts.get_account_by_email(uow, email)
        columns = _FIELDS if as_json else _ROW_FIELDS
        rows = [
            _describe(resources.settings, sender, columns)
            for sender in senders.list_senders(uow, account_id)
        ]
    print_records(rows, as_json=as_json)


@app.command("revoke")
def revoke_sender(
    sender_id: Annotated[int, typer.Argument(metavar="ID")], as_json: Json = False
) -> None:
    """Delete a sender. Pressroom rejects all further requests to the sender's URL."""
    with open_command_resources() as resources, resources.unit_of_work() as uow:
        rows = senders.find_senders(uow, Sender.id == sender_id)
        if not rows:
            raise SENDER_NOT_FOUND()
        senders.end_senders(uow, rows[0].user_id, [sender_id])
    print_record({"id": sender_id, "revoked": 1}, as_json=as_json)


def _read_keys(provider: SenderProvider, *, from_stdin: bool) -> dict[str, str]:
    """Return the provider's key under its field name of the API, such as ``signing_key``.

    The dictionary is empty if the provider uses no key.
    """
    key_name = KEY_NAMES.get(provider)
    if key_name is None:
        if from_stdin:
            raise typer.BadParameter(
                f"the provider {provider} uses no key", param_hint="--key-stdin"
            )
        return {}
    if from_stdin:
        key = sys.stdin.read(MAX_KEY_CHARACTERS + 1).strip()
        if len(key) > MAX_KEY_CHARACTERS:
            rule = f"must have at most {MAX_KEY_CHARACTERS:,} characters"
            raise typer.BadParameter(rule, param_hint="--key-stdin")
        return {key_name: key}
    if not sys.stdin.isatty():
        raise typer.BadParameter("needs a terminal to ask for the key; use --key-stdin")
    return {key_name: str(typer.prompt("Key", hide_input=True, err=True))}


def _describe(settings: Settings, sender: Sender, columns: str) -> dict[str, Any]:
    url = senders.build_events_url(settings.public_base, sender.id)
    return {**select_fields(sender, columns), "url": url}
