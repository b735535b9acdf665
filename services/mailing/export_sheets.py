"""The columns and rows of exports, by kind."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from sqlalchemy import Row, Select, and_, case, exists, not_, select, union_all

from core import clock
from models import MailingList, OptOut, Subscription, SubscriptionStatus
from services.jobs.lease import Lease
from services.mailing.spreadsheets import guard_cell
from services.mailing.subscriptions import mail_urls, opt_outs, trace_ids
from storage.resources import Resources

AnyRow = Row[*tuple[Any, ...]]
AnySelect = Select[*tuple[Any, ...]]


class Sheet(NamedTuple):
    header: tuple[str, ...]
    query: AnySelect
    line: Callable[[AnyRow], Iterable[str | int]]


_MEMBERS_HEADER = (
    *("email", "name", "status", "tier", "paid_expiry", "email_enabled", "source"),
    *("user_id", "created_at"),
)


def members(list_id: int) -> Sheet:
    """All members of the list, for its owner."""
    s = Subscription
    status = case((opt_outs.HAS_LEFT, SubscriptionStatus.UNSUBSCRIBED.value), else_=s.status)
    has_mail = and_(s.email_enabled, not_(opt_outs.HAS_NO_MAIL))
    # Two indexes begin with the list, and neither has all statuses: without them, the members of a
    # small list are looked for in the whole table.
    rows = Subscription.__table__.alias().c
    of_list = select(rows.id).where(rows.list_id == list_id)
    others = SubscriptionStatus.PENDING.value, SubscriptionStatus.UNSUBSCRIBED.value
    shown = union_all(
        of_list.where(rows.status == SubscriptionStatus.ACTIVE.value),
        of_list.where(rows.status.in_(others)),
    ).subquery()
    query = (
        select(s.email, s.name, status, s.type, s.paid_expiry, has_mail, s.source)
        .add_columns(s.user_id, s.created_at)
        .join(shown, shown.c.id == s.id)
        .order_by(shown.c.id)
    )
    return Sheet(_MEMBERS_HEADER, query, _members_line)


def _members_line(row: AnyRow) -> tuple[str | int, ...]:
    email, name, status, tier, paid_expiry, email_enabled, source, user_id, created_at = row
    shown = (guard_cell(email or ""), guard_cell(name or ""))
    expiry = "" if paid_expiry is None else clock.iso(paid_expiry)
    has_mail = "true" if email_enabled else "false"
    return *shown, status, tier, expiry, has_mail, source, user_id, clock.iso(created_at)


def roster(resources: Resources, lease: Lease, mailing_list: MailingList) -> Sheet:
    """The people who get the mail of the list, for its sender."""
    header = (
        *("email", "name", "user_id", "trace_id", "one_click_url"),
        *("list_id_header", "list_unsubscribe_header", "list_unsubscribe_post_header"),
    )
    s = Subscription
    # No active member with mail has an opt-out, but the sender must not have to rely on that.
    opted_out = exists().where(OptOut.list_id == mailing_list.id, OptOut.user_id == s.user_id)
    is_sent = (s.status == SubscriptionStatus.ACTIVE, s.email_enabled, s.email.is_not(None))
    query = (
        select(s.email, s.name, s.user_id)
        .where(s.list_id == mailing_list.id, *is_sent, ~opted_out)
        .order_by(s.id)
    )
    make = trace_ids.trace_id_factory(resources.keyring, mailing_list.id, lease.job_id)
    # A trace id needs no escaping in a URL, so it is appended to the part that all rows share.
    one_click = mail_urls.one_click_url(resources.settings, mailing_list.id, "")
    unsubscribe = mail_urls.unsubscribe_url(resources.settings, "")
    list_id, _, post = mail_urls.list_headers(resources.settings, mailing_list, "").values()

    def line(row: AnyRow) -> tuple[str | int, ...]:
        email, name, user_id = row
        trace_id = make(user_id)
        urls = (one_click + trace_id, list_id, f"<{unsubscribe}{trace_id}>", post)
        return email, guard_cell(name or ""), user_id, trace_id, *urls

    return Sheet(header, query, line)
