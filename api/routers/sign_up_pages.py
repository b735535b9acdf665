from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response

from api.access.requirements import PUBLIC
from api.limits.bulkheads import RECORDS
from api.pages.frame import page
from api.parameters import PathId, StateOf
from services.mailing import lists
from services.mailing.subscriptions.mail_urls import SUBSCRIBED_PATH

# No operations of the API, so not in its document.
router = APIRouter(dependencies=[PUBLIC], include_in_schema=False)


@router.get(SUBSCRIBED_PATH)
@RECORDS.threaded
def show_subscribed(state: StateOf, list_id: Annotated[PathId, Query(alias="list")]) -> Response:
    """What happened to a sign-up by a form; the same for each address, as it names none."""
    with state.resources.unit_of_work() as uow:
        mailing_list = lists.get(uow, list_id)
        must_confirm = mailing_list.confirm_required
        return page("subscribed.html", list_title=mailing_list.title, must_confirm=must_confirm)
