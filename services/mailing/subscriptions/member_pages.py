"""A list's records a page at a time, as its owner asks for them.

The statements are made once for each kind of question and kept: SQLAlchemy takes longer to make one
than Postgres to run it. They speak of tables and give rows, since a page may have a thousand.
"""

import re
import unicodedata
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, bindparam, case, func, not_, or_, select

from core.errors import DomainError
from core.refusals.requests import CURSOR_INVALID
from models import Subscription, SubscriptionStatus, Tier, User
from services.mailing import subscriber_counts
from services.mailing.subscriptions.changes import Via
from services.people import accounts
from storage.unit_of_work import UnitOfWork


@dataclass(frozen=True)
class MemberFilters:
    """Which of a list's records an owner asks for.

    Attributes:
        email: a whole address, or the beginning of one followed by ``*``.
        premium: ``True`` on a paid tier now, ``False`` not, or that tier now; ``None`` any.
    """

    status: SubscriptionStatus = SubscriptionStatus.ACTIVE
    email: str | None = None
    premium: bool | Tier | None = None


@dataclass(frozen=True)
class MemberPage:
    total: int
    # What is shown of subscriptions, and `user_name`: what the person calls themselves.
    rows: list[dict[str, Any]]
    next_cursor: str | None


def page(
    uow: UnitOfWork,
    list_id: int,
    filters: MemberFilters,
    *,
    offset: int,
    limit: int,
    cursor: str | None = None,
) -> MemberPage:
    """A list's records, newest first; ``cursor``, of the page before, costs the same at any depth.

    Raises ``cursor.invalid``.
    """
    question, values = _without_address(filters)
    values["list_id"] = list_id
    start = {"offset": offset} if cursor is None else {"before": _read_cursor(cursor)}
    found = uow.session.execute(
        _records(question, by_cursor=cursor is not None), values | start | {"limit": limit + 1}
    )
    names = tuple(found.keys())
    rows = [dict(zip(names, row, strict=True)) for row in found]
    more = len(rows) > limit
    rows = rows[:limit]
    return MemberPage(
        total=uow.session.execute(_total(question), values).scalar_one(),
        rows=rows,
        next_cursor=str(rows[-1]["id"]) if more else None,
    )


_ADDRESS, _BEGINNING = "an address", "the beginning of one*"


def _without_address(filters: MemberFilters) -> tuple[MemberFilters, dict[str, Any]]:
    """The kind of question, which all questions of that kind share, and the address apart."""
    # Who is on the free tier is just not on a paid one.
    premium = False if filters.premium is Tier.FREE else filters.premium
    question = replace(filters, email=None, premium=premium)
    email = None if filters.email is None else filters.email.strip()
    if email is None or email == "*":
        return question, {}
    if "\0" in email:
        # No address has one, and the database takes none.
        return replace(question, email=_ADDRESS), {"email": ""}
    if email.endswith("*"):
        beginning = unicodedata.normalize("NFC", email.removesuffix("*")).lower()
        pattern = re.sub(r"([\\%_])", r"\\\1", beginning) + "%"
        return replace(question, email=_BEGINNING), {"email": pattern}
    return replace(question, email=_ADDRESS), {"email": _as_kept(email)}


def _as_kept(wanted: str) -> str:
    """The spelling of an address that records have; what is no address matches none of them."""
    try:
        return accounts.normalise_email(wanted)
    except DomainError:
        return wanted


_record = Subscription.__table__.c
_person = User.__table__.c
# What an owner is shown, and no column that is added later.
_COLUMNS = (
    _record.id,
    _record.list_id,
    _record.user_id,
    _record.status,
    _record.type,
    _record.paid_expiry,
    _record.email_enabled,
    _record.name,
    _record.email,
    _record.source,
    _record.created_at,
    _record.updated_at,
)
# Who came by a login showed themselves to the list; of others its owner learns no name.
_SHOWN_NAME = case((_record.source == Via.LOGIN.value, _person.name)).label("user_name")


@cache
def _records(question: MemberFilters, *, by_cursor: bool) -> Select[Any]:
    # Which rows first, by an index alone, then what is in them: an offset passes over many.
    wanted = select(_record.id).where(*_where(question)).order_by(_record.id.desc())
    if by_cursor:
        wanted = wanted.where(_record.id < bindparam("before"))
    else:
        wanted = wanted.offset(bindparam("offset"))
    ids = wanted.limit(bindparam("limit")).subquery()
    return (
        select(*_COLUMNS, _SHOWN_NAME)
        .join_from(Subscription.__table__, ids, ids.c.id == _record.id)
        .join(User.__table__, _person.id == _record.user_id)
        .order_by(_record.id.desc())
    )


@cache
def _total(question: MemberFilters) -> Select[int]:
    return select(_how_many(question))


def _how_many(question: MemberFilters) -> ColumnElement[int]:
    if question.premium is False:
        # Few pay: taking them off is many times quicker than counting the others.
        everybody, paid = replace(question, premium=None), replace(question, premium=True)
        return _how_many(everybody) - _how_many(paid)
    if question == MemberFilters():
        return subscriber_counts.active_count(bindparam("list_id"))
    counted = select(func.count()).select_from(Subscription.__table__).where(*_where(question))
    return counted.scalar_subquery()


def _where(question: MemberFilters) -> list[ColumnElement[bool]]:
    conditions = [
        _record.list_id == bindparam("list_id"),
        _record.status == question.status.value,
    ]
    if question.email == _ADDRESS:
        conditions.append(_record.email == bindparam("email"))
    if question.email == _BEGINNING:
        conditions.append(_record.email.like(bindparam("email")))
    if question.premium is not None:
        conditions.append(_premium_is(question.premium))
    return conditions


def _premium_is(wanted: bool | Tier) -> ColumnElement[bool]:
    unexpired = or_(_record.paid_expiry.is_(None), _record.paid_expiry > func.now())
    paid = and_(_record.type != Tier.FREE.value, unexpired)
    if isinstance(wanted, bool):
        return paid if wanted else not_(paid)
    return and_(paid, _record.type == wanted.value)


def _read_cursor(cursor: str) -> int:
    if not cursor.isascii() or not cursor.isdigit() or len(cursor) > len(str(2**53)):
        raise CURSOR_INVALID()
    return int(cursor)
