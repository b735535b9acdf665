from typing import Annotated

import typer

from cli.connection import connected
from cli.output import Json, show
from services.mailing import lists
from services.mailing.subscriptions import mail_urls, trace_ids
from services.mailing.subscriptions.trace_ids import Trace
from services.people import accounts

app = typer.Typer(add_completion=False)


@app.command()
def trace(
    list_name: Annotated[str, typer.Argument(metavar="LIST", help="Its id or slug.")],
    email: Annotated[str, typer.Argument(metavar="EMAIL")],
    as_json: Json = False,
) -> None:
    """Make a trace id. It stands for the person on the list, so send it to that person alone."""
    with connected() as resources, resources.unit_of_work() as uow:
        mailing_list = lists.get_named(uow, list_name, archived=True)
        person = accounts.get_by_email(uow, email)
        made = Trace(mailing_list.id, person.id, trace_ids.new_delivery(uow))
        trace_id = trace_ids.make(resources.keyring, made)
        url = mail_urls.unsubscribe_url(resources.settings, trace_id)
    show({"trace_id": trace_id, "unsubscribe_url": url}, as_json=as_json)
