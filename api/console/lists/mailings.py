"""The console pages with a list's mailings, and with the figures and the people of one mailing.

The pages show the deliveries, bounces, complaints and unsubscriptions that senders have reported.
"""

from fastapi.responses import Response

from api.console.assets import CONSOLE_PATH
from api.console.lists.routes import build_members_query
from api.console.navigation import get_list_path
from api.console.requests import Console, ConsoleForm, EmptyForm, build_router, shows_errors_on
from api.console.typed_forms import parse_body, read_text
from api.paging import Cursor
from api.record_ids import ListId, PathId
from api.schemas.mailings import MailingChanges
from api.state import Transaction
from core.settings.notations import Retained
from services.paging import PageRequest
from services.subscriptions import mailings

router = build_router(f"{CONSOLE_PATH}/lists")

MAILINGS_ON_PAGE = 50
# Maps the filters for the people of a mailing to labels.
_PEOPLE = {
    "bounced_mailing": "Bounced",
    "complained_mailing": "Complained",
    "left_mailing": "Unsubscribed",
}


@router.get("/{list_id}/mailings")
def show_mailings(
    console: Console, uow: Transaction, list_id: ListId, cursor: Cursor = None
) -> Response:
    mailing_list = console.get_own_list(uow, list_id)
    page = mailings.list_mailings(
        uow, mailing_list.id, PageRequest(MAILINGS_ON_PAGE, cursor=cursor)
    )
    return console.render_page(
        "mailings.html",
        list=mailing_list,
        mailings=[
            (
                each,
                mailings.has_many_bounces(each.rows, each.hard_bounced),
                mailings.has_many_complaints(each.rows, each.complained),
            )
            for each in page.rows
        ],
        next_cursor=page.next_cursor,
    )


@router.get("/{list_id}/mailings/{mailing_id}")
def show_mailing(
    console: Console, uow: Transaction, list_id: ListId, mailing_id: PathId, form: EmptyForm
) -> Response:
    mailing_list = console.get_own_list(uow, list_id)
    mailing = mailings.get_mailing(uow, mailing_list.id, mailing_id)
    return console.render_page(
        "mailing.html",
        form.fill({"label": mailing.label or ""}),
        list=mailing_list,
        mailing=mailing,
        left=mailings.count_left(uow, [mailing.id]).get(mailing.id, 0),
        days=uow.settings.retention[Retained.BOUNCES],
        people=[(label, build_members_query(name, mailing.id)) for name, label in _PEOPLE.items()],
    )


@router.post("/{list_id}/mailings/{mailing_id}")
@shows_errors_on(show_mailing)
def rename_mailing(
    console: ConsoleForm, uow: Transaction, list_id: ListId, mailing_id: PathId
) -> Response:
    mailing_list = console.get_own_list(uow, list_id)
    mailing = mailings.get_mailing(uow, mailing_list.id, mailing_id)
    body = parse_body(MailingChanges, {"label": read_text(console.form, "label")})
    mailing.label = body.label
    path = f"{get_list_path(mailing_list.id)}/mailings/{mailing.id}"
    return console.redirect(path, "The name was saved.")
