"""The console page with a list's mailings.

The page shows the deliveries, bounces, complaints and unsubscriptions that senders have reported
for each mailing.
"""

from fastapi.responses import Response

from api.console.assets import CONSOLE_PATH
from api.console.requests import Console, build_router
from api.paging import Cursor
from api.record_ids import ListId
from api.state import Transaction
from services.paging import PageRequest
from services.subscriptions import mailings

router = build_router(f"{CONSOLE_PATH}/lists")

MAILINGS_ON_PAGE = 50


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
