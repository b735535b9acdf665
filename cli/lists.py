from typing import Annotated

import typer

from cli.connection import connected
from cli.output import Json, group, show
from services.mailing import lists
from services.people import accounts

app = group("Lists that people subscribe to.")
# With a callback, `create` stays a subcommand while it is the only one.
app.callback()(lambda: None)


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
