"""Lists the recent reports of senders, and removes the masked addresses of erased people."""

from collections.abc import Collection
from typing import NamedTuple

from sqlalchemy import ARRAY, BigInteger, any_, cast, select, tuple_, update

from core import ids
from integrations.senders.port import ReportKind
from models import MailingList, ReportOutcome, SenderReport, Subscription, SubscriptionStatus
from services.access.caller import Caller
from services.paging import PageOfRows, PageRequest
from services.senders import senders
from storage.unit_of_work import UnitOfWork

# The maximum number of reports that Pressroom reads to fill one page of a filtered list of reports.
# Without a maximum, filling a page could be slow, because a sender may have millions of reports.
# The request for the next page continues the search.
_MAX_READ_REPORTS = 20_000
_STATUSES_AFTER_LEAVING = (SubscriptionStatus.UNSUBSCRIBED, SubscriptionStatus.REMOVED)


def list_reports(
    uow: UnitOfWork,
    caller: Caller,
    sender_id: int,
    *,
    page: PageRequest,
    outcome: ReportOutcome | None = None,
    kind: ReportKind | None = None,
) -> PageOfRows[SenderReport]:
    """List the newest reports first.

    If ``outcome`` or ``kind`` is set, a page can be short or empty although more pages follow.
    """
    sender = senders.get_sender(uow, caller, sender_id)
    query = select(SenderReport.id).where(SenderReport.sender_id == sender.id)
    if page.cursor is not None:
        query = query.where(SenderReport.id < ids.parse_id_cursor(page.cursor))
    is_filtered = outcome is not None or kind is not None
    read_limit = _MAX_READ_REPORTS if is_filtered else page.limit
    read_ids = list(uow.session.scalars(query.order_by(SenderReport.id.desc()).limit(read_limit)))
    reports = select(SenderReport).where(SenderReport.id == any_(cast(read_ids, ARRAY(BigInteger))))
    if outcome is not None:
        reports = reports.where(SenderReport.outcome == outcome)
    if kind is not None:
        reports = reports.where(SenderReport.kind == kind)
    rows = list(uow.session.scalars(reports.order_by(SenderReport.id.desc()).limit(page.limit)))
    if len(rows) == page.limit:
        return PageOfRows(rows, str(rows[-1].id))
    return PageOfRows(rows, str(read_ids[-1]) if len(read_ids) == read_limit else None)


class ReportedMember(NamedTuple):
    """``has_left``: whether the person unsubscribed or was removed from the list."""

    email: str
    has_left: bool


def find_members(
    uow: UnitOfWork, caller: Caller, pairs: Collection[tuple[int, int]]
) -> dict[tuple[int | None, int | None], ReportedMember]:
    """Map pairs of a list id and a user id to members, active and former.

    Omit erased people, and members of lists that the caller doesn't own.
    """
    query = (
        select(
            Subscription.list_id,
            Subscription.user_id,
            Subscription.email,
            Subscription.status.in_(_STATUSES_AFTER_LEAVING),
        )
        .join(MailingList, MailingList.id == Subscription.list_id)
        .where(
            MailingList.user_id == caller.account_id,
            tuple_(Subscription.list_id, Subscription.user_id).in_(pairs),
        )
    )
    return {
        (list_id, user_id): ReportedMember(email, has_left)
        for list_id, user_id, email, has_left in uow.session.execute(query)
        if email is not None
    }


def mask_recipient(address: str) -> str:
    """Return a masked address, such as ``a…@e….org``. A text without an ``@`` isn't masked."""
    local_part, _, domain = address.rpartition("@")
    name, _, top_level_domain = domain.rpartition(".")
    return f"{local_part[:1]}…@{name[:1]}….{top_level_domain}"


def forget_recipients(uow: UnitOfWork, addresses: Collection[str]) -> None:
    """Remove a person's masked addresses, current and former, from all senders' reports."""
    masks = {mask_recipient(address) for address in addresses}
    statement = update(SenderReport).where(SenderReport.recipient.in_(masks))
    uow.session.execute(statement.values(recipient=None))
