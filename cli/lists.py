from dataclasses import asdict
from typing import Annotated

import typer

from cli.connection import connected
from cli.output import Json, Limit, group, show, show_all
from services.mailing import list_reports, lists, member_figures
from services.people import accounts

FAULTY = 1

app = group("Lists that people subscribe to.")


@app.command("create")
def create(
    owner_email: Annotated[str, typer.Argument(metavar="OWNER_EMAIL")],
    title: Annotated[str, typer.Option(help="The title that readers see.")],
    slug: Annotated[str, typer.Option(help="The list's name in URLs: a-z, 0-9 and '-'.")],
    as_json: Json = False,
) -> None:
    """Create a list."""
    with connected() as resources, resources.unit_of_work() as uow:
        owner = accounts.get_by_email(uow, owner_email)
        made = lists.create(uow, owner_id=owner.id, title=title, slug=slug)
        record = {"id": made.id, "slug": made.slug, "title": made.title, "user_id": owner.id}
    show(record, as_json=as_json)


@app.command("reports")
def reports(limit: Limit = 100, as_json: Json = False) -> None:
    """Show the lists that people reported because they had not asked for them."""
    with connected() as resources, resources.unit_of_work() as uow:
        found = list_reports.reported_lists(uow, limit=limit)
    show_all([asdict(each) for each in found], as_json=as_json)


@app.command("verify")
def verify(as_json: Json = False) -> None:
    """Check that the figures of all lists come to their members. With faults, show them, exit 1."""
    with connected() as resources:
        faults = member_figures.verify(resources)
    if faults or as_json:
        show_all([asdict(each) for each in faults], as_json=as_json)
    else:
        typer.echo("The figures of all lists come to their members.")
    if faults:
        raise typer.Exit(FAULTY)
