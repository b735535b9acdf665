"""The commands of ``pressroom events``, which show what has happened to an account."""

from typing import Annotated, Any

import typer

from cli.connection import open_command_resources
from cli.output import Email, Json, Limit, create_group, print_records, select_fields
from services import security_events
from services.accounts import accounts
from services.feed import reading
from services.feed.catalogue import FeedEventType
from services.feed.reading import render_events
from services.paging import PageRequest

app = create_group("Show events of users' accounts and lists.")


@app.command("account")
def account_events(email: Email, limit: Limit = 50, as_json: Json = False) -> None:
    """Show events of a user's account, such as logins, newest first."""
    with open_command_resources() as resources, resources.unit_of_work() as uow:
        user = accounts.get_user_by_email(uow, email)
        events = security_events.list_events(uow, user.id, PageRequest(limit)).rows
        names = "id occurred_at type ip user_agent credential_kind credential_id detail"
        print_records([select_fields(each, names) for each in events], as_json=as_json)


@app.command("feed")
def feed_events(
    email: Email,
    types: Annotated[
        list[FeedEventType] | None,
        typer.Option(
            "--type", help="Show only this event type. Repeat the option for several types."
        ),
    ] = None,
    limit: Limit = 50,
    as_json: Json = False,
) -> None:
    """Show a user's event feed, newest first."""
    with open_command_resources() as resources, resources.unit_of_work() as uow:
        account_id = accounts.get_account_by_email(uow, email)
        event_types = set(types or FeedEventType)
        rows = reading.list_newest_events(uow.session, account_id, types=event_types, limit=limit)
        events = render_events(uow.session, rows)
    print_records(events if as_json else [_brief(each) for each in events], as_json=as_json)


def _brief(event: dict[str, Any]) -> dict[str, Any]:
    subject = event["subject"]
    known = {name: value for name, value in event["data"].items() if value is not None}
    return {
        **{name: event[name] for name in ("id", "occurred_at", "type", "list_id")},
        "subject": subject and f"{subject['kind']} {subject['id']}",
        "data": known,
    }
