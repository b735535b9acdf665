"""The API endpoints for mailings, with counts of deliveries, bounces and complaints."""

from functools import partial

from fastapi import APIRouter

from api.auth.requirements import ListEditor, ListReader
from api.openapi.declarations import LIST_ERRORS, error_responses
from api.paging import Paging
from api.record_ids import ListId, PathId
from api.route_classes import JsonRoute
from api.schemas.envelope import Envelope, Page, build_envelope, build_page
from api.schemas.mailings import MailingChanges, MailingRecord
from api.state import Transaction
from core.errors import mailing, requests
from models import Mailing
from services.subscriptions import lists, mailings

router = APIRouter(tags=["Senders"], route_class=JsonRoute)


@router.get(
    "/lists/{list_id}/mailings",
    summary="List all mailings",
    responses=error_responses(*LIST_ERRORS, requests.CURSOR_INVALID),
)
def list_mailings(
    uow: Transaction, caller: ListReader, list_id: ListId, paging: Paging
) -> Envelope[Page[MailingRecord]]:
    """List the mailings of a list, newest first.

    A mailing begins when the list's roster, the file of recipients, is exported. Deliveries with
    the same label on the same day in UTC are one mailing too. Each mailing shows how many members
    had a delivery, a bounce, a complaint or an unsubscription, according to the reports of senders.
    Several reports of one kind about the same member count only once.
    """
    mailing_list = lists.get_own_list(uow, caller, list_id)

    def convert(rows: list[Mailing]) -> list[MailingRecord]:
        left_counts = mailings.count_left(uow, [row.id for row in rows])
        return [MailingRecord.of_mailing(row, left_counts.get(row.id, 0)) for row in rows]

    read = partial(mailings.list_mailings, uow, mailing_list.id)
    return build_envelope(build_page(paging, read, convert))


@router.get(
    "/lists/{list_id}/mailings/{mailing_id}",
    summary="Retrieve a mailing",
    responses=error_responses(*LIST_ERRORS, mailing.MAILING_NOT_FOUND),
)
def read_mailing(
    uow: Transaction, caller: ListReader, list_id: ListId, mailing_id: PathId
) -> Envelope[MailingRecord]:
    """Retrieve a mailing of a list.

    To read the people, search the list's members by the filters `bounced_mailing`,
    `complained_mailing` and `left_mailing`.
    """
    mailing_list = lists.get_own_list(uow, caller, list_id)
    row = mailings.get_mailing(uow, mailing_list.id, mailing_id)
    return build_envelope(_build_record(uow, row))


@router.patch(
    "/lists/{list_id}/mailings/{mailing_id}",
    summary="Update a mailing",
    responses=error_responses(*LIST_ERRORS, mailing.MAILING_NOT_FOUND),
)
def change_mailing(
    uow: Transaction,
    caller: ListEditor,
    list_id: ListId,
    mailing_id: PathId,
    body: MailingChanges,
) -> Envelope[MailingRecord]:
    """Rename a mailing."""
    mailing_list = lists.get_own_list(uow, caller, list_id)
    row = mailings.get_mailing(uow, mailing_list.id, mailing_id)
    row.label = body.label
    return build_envelope(_build_record(uow, row))


def _build_record(uow: Transaction, row: Mailing) -> MailingRecord:
    return MailingRecord.of_mailing(row, mailings.count_left(uow, [row.id]).get(row.id, 0))
