import unicodedata
from dataclasses import dataclass

from sqlalchemy import ColumnElement, RowMapping, and_, case, false, func, not_, or_, select

from core.errors import DomainError, malformed, not_found
from models import MailingList, Subscription, SubscriptionStatus, Tier, User
from services import accounts
from services.subscriptions import changes, counts
from services.subscriptions.changes import Via
from storage.unit_of_work import UnitOfWork

MOST_SUBSCRIPTIONS = 1000
# What the person takes part in; what they left they know.
_CURRENT = (SubscriptionStatus.ACTIVE, SubscriptionStatus.PENDING)


@dataclass(frozen=True)
class Filters:
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
    # Columns of subscriptions, and `user_name`: what the person calls themselves.
    rows: list[RowMapping]
    next_cursor: str | None


def mine(uow: UnitOfWork, user_id: int) -> list[tuple[Subscription, MailingList]]:
    """What the person subscribes to, newest first; at most 1,000."""
    query = (
        select(Subscription, MailingList)
        .join(MailingList, MailingList.id == Subscription.list_id)
        .where(
            Subscription.user_id == user_id,
            Subscription.status.in_(_CURRENT),
            MailingList.archived_at.is_(None),
        )
        .order_by(Subscription.id.desc())
        .limit(MOST_SUBSCRIPTIONS)
    )
    return [(each, of) for each, of in uow.session.execute(query)]


def relation(uow: UnitOfWork, list_id: int, user_id: int) -> Subscription:
    """The person's record on a list, in whatever status; raises ``subscription.not_found``."""
    found = changes.find(uow, list_id, user_id)
    if found is None:
        raise not_found("subscription.not_found", "There is no subscription to this list.")
    return found


def page(
    uow: UnitOfWork,
    list_id: int,
    filters: Filters,
    *,
    offset: int,
    limit: int,
    cursor: str | None = None,
) -> MemberPage:
    """A list's records, newest first; ``cursor``, of the page before, costs the same at any depth.

    Raises ``cursor.invalid``.
    """
    where = _where(list_id, filters)
    # Which rows first, by an index alone, then what is in them: an offset passes over many.
    wanted = select(Subscription.id).where(*where).order_by(Subscription.id.desc())
    if cursor is None:
        wanted = wanted.offset(offset)
    else:
        wanted = wanted.where(Subscription.id < _read_cursor(cursor))
    ids = wanted.limit(limit + 1).subquery()
    query = (
        select(*_COLUMNS, _SHOWN_NAME.label("user_name"))
        .join(ids, ids.c.id == Subscription.id)
        .join(User, User.id == Subscription.user_id)
        .order_by(Subscription.id.desc())
    )
    rows = list(uow.session.execute(query).mappings())
    more = len(rows) > limit
    rows = rows[:limit]
    return MemberPage(
        total=_total(uow, list_id, filters),
        rows=rows,
        next_cursor=str(rows[-1]["id"]) if more else None,
    )


_COLUMNS = tuple(Subscription.__table__.c)
# Who came by a login showed themselves to the list; of others its owner learns no name.
_SHOWN_NAME = case((Subscription.source == Via.LOGIN.value, User.name))


def _where(list_id: int, filters: Filters) -> list[ColumnElement[bool]]:
    conditions = [Subscription.list_id == list_id, Subscription.status == filters.status.value]
    if filters.email is not None:
        conditions.append(_address_is(filters.email))
    if filters.premium is not None:
        conditions.append(_premium_is(filters.premium))
    return conditions


def _address_is(wanted: str) -> ColumnElement[bool]:
    wanted = wanted.strip()
    if "\0" in wanted:
        # No address has one, and the database takes none.
        return false()
    if wanted.endswith("*"):
        beginning = unicodedata.normalize("NFC", wanted.removesuffix("*")).lower()
        return Subscription.email.startswith(beginning, autoescape=True)
    return Subscription.email == _as_kept(wanted)


def _as_kept(wanted: str) -> str:
    """The spelling of an address that records have; what is no address matches none of them."""
    try:
        return accounts.normalise_email(wanted)
    except DomainError:
        return wanted


def _premium_is(wanted: bool | Tier) -> ColumnElement[bool]:
    unexpired = or_(Subscription.paid_expiry.is_(None), Subscription.paid_expiry > func.now())
    paid = and_(Subscription.type != Tier.FREE.value, unexpired)
    if wanted is True:
        return paid
    if wanted is False or wanted is Tier.FREE:
        return not_(paid)
    return and_(paid, Subscription.type == wanted.value)


def _total(uow: UnitOfWork, list_id: int, filters: Filters) -> int:
    if filters == Filters():
        return counts.of_lists(uow, [list_id])[list_id]
    query = select(func.count()).select_from(Subscription).where(*_where(list_id, filters))
    return uow.session.scalar(query) or 0


def _read_cursor(cursor: str) -> int:
    if not cursor.isascii() or not cursor.isdigit() or len(cursor) > len(str(2**53)):
        raise malformed("cursor.invalid", "query.cursor must be a next_cursor of an earlier page.")
    return int(cursor)
