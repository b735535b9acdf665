"""The commands of ``pressroom lists`` and ``pressroom trace``."""

from dataclasses import asdict
from typing import Annotated, Any

import typer

from cli.connection import open_command_resources
from cli.output import (
    Email,
    Json,
    Limit,
    ListName,
    Yes,
    confirm,
    create_group,
    print_record,
    print_records,
    select_fields,
)
from models import MailingList
from services.accounts import accounts
from services.subscriptions import (
    figures_verification,
    list_reports,
    lists,
    page_urls,
    subscriber_counts,
    text_reviews,
)
from services.subscriptions.consent import networks
from services.subscriptions.members import traces
from services.subscriptions.members.traces import Trace

FAULTY = 1

app = create_group("Manage lists.")


@app.command("create")
def create(
    owner_email: Annotated[str, typer.Argument(metavar="OWNER_EMAIL")],
    title: Annotated[str, typer.Option(help="The title that readers see.")],
    slug: Annotated[str, typer.Option(help="The list's name in URLs, from a-z, 0-9 and '-'.")],
    no_confirm: Annotated[
        bool,
        typer.Option(
            "--no-confirm",
            help=(
                "Turn off double opt-in, so that people subscribe without confirming their address."
            ),
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Create a list."""
    with open_command_resources() as resources, resources.unit_of_work() as uow:
        account_id = accounts.get_account_by_email(uow, owner_email)
        values = {"confirm_required": not no_confirm}
        mailing_list = lists.create_list(
            uow, account_id=account_id, title=title, slug=slug, fields=values
        )
        print_record(select_fields(mailing_list, "id slug title user_id"), as_json=as_json)


@app.command("list")
def list_lists(
    owner: Annotated[
        str | None, typer.Option(metavar="EMAIL", help="Show only lists of this user.")
    ] = None,
    archived: Annotated[
        bool, typer.Option("--archived", help="Show archived lists instead of active lists.")
    ] = False,
    limit: Limit = 100,
    as_json: Json = False,
) -> None:
    """Show lists with their numbers of active members, newest first."""
    with open_command_resources() as resources, resources.unit_of_work() as uow:
        account_id = None if owner is None else accounts.get_account_by_email(uow, owner)
        mailing_lists = lists.list_all(uow, account_id=account_id, archived=archived, limit=limit)
        counts = subscriber_counts.count_subscribers(uow, [each.id for each in mailing_lists])
        rows = [_brief(each, counts[each.id]) for each in mailing_lists]
    print_records(rows, as_json=as_json)


@app.command("show")
def show_list(list_name: ListName, as_json: Json = False) -> None:
    """Show a list, even if it is archived."""
    with open_command_resources() as resources, resources.unit_of_work() as uow:
        mailing_list = lists.get_named(uow, list_name, archived=True)
        [active] = subscriber_counts.count_subscribers(uow, [mailing_list.id]).values()
        owner = accounts.get_owner(uow, mailing_list.user_id)
        more = select_fields(
            mailing_list,
            "tagline description email_channel_enabled challenge_enabled challenge_provider"
            " confirm_required redirect_origins confirmed_redirect soft_bounce_limit updated_at"
            " archived_at",
        )
        largest_network = networks.count_largest_network(uow, mailing_list.id)
        row = {
            **_brief(mailing_list, active),
            "owner": owner.email,
            **more,
            "most_of_network": largest_network,
        }
        print_record(row, as_json=as_json)


@app.command("archive")
def archive(list_name: ListName, yes: Yes = False, as_json: Json = False) -> None:
    """Permanently archive a list. An archived list accepts no members and sends no mail."""
    confirm(f"Archive {list_name}?", yes=yes, as_json=as_json)
    with open_command_resources() as resources, resources.unit_of_work() as uow:
        mailing_list = lists.get_named(uow, list_name, archived=True)
        archived = lists.archive_list(uow, mailing_list)
        print_record(
            {"id": mailing_list.id, "slug": mailing_list.slug, "archived": archived},
            as_json=as_json,
        )


@app.command("reports")
def reports(limit: Limit = 100, as_json: Json = False) -> None:
    """Show the lists that readers reported as unwanted."""
    with open_command_resources() as resources, resources.unit_of_work() as uow:
        reported = list_reports.list_reported(uow, limit=limit)
    print_records([asdict(each) for each in reported], as_json=as_json)


@app.command("suspicious")
def suspicious(limit: Limit = 100, as_json: Json = False) -> None:
    """Show unreviewed lists and fields with suspicious words."""
    with open_command_resources() as resources, resources.unit_of_work() as uow:
        rows = text_reviews.list_suspicious(uow, limit=limit)
    print_records([asdict(each) for each in rows], as_json=as_json)


@app.command("verify")
def verify(as_json: Json = False) -> None:
    """Check the statistics of all lists. The exit code is 1 if any statistics are wrong."""
    with open_command_resources() as resources:
        faults = figures_verification.verify_figures(resources)
    if faults or as_json:
        print_records([asdict(each) for each in faults], as_json=as_json)
    else:
        typer.echo("The statistics of all lists match their members.")
    if faults:
        raise typer.Exit(FAULTY)


def _brief(mailing_list: MailingList, active: int) -> dict[str, Any]:
    named = select_fields(mailing_list, "id slug title user_id")
    return {**named, "active": active, "created_at": mailing_list.created_at}


trace_app = typer.Typer(add_completion=False, rich_markup_mode=None)


@trace_app.command()
def trace(list_name: ListName, email: Email, as_json: Json = False) -> None:
    """Create a trace id of a person on a list. Send the trace id only to this person."""
    with open_command_resources() as resources, resources.unit_of_work() as uow:
        mailing_list = lists.get_named(uow, list_name, archived=True)
        person = accounts.get_user_by_email(uow, email)
        new_trace = Trace(mailing_list.id, person.id, traces.allocate_delivery_number(uow))
        trace_id = traces.create_trace_id(resources.keyring, new_trace)
        url = page_urls.unsubscribe_url(resources.settings, trace_id)
    print_record({"trace_id": trace_id, "unsubscribe_url": url}, as_json=as_json)
