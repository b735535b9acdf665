"""Batches of members: the next of a list to be changed, and the next to be changed back."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple, cast

import sqlalchemy
from sqlalchemy import (
    ColumnElement,
    Table,
    any_,
    case,
    exists,
    func,
    literal,
    not_,
    null,
    or_,
    select,
    text,
)
from sqlalchemy.dialects.postgresql import insert

from models import BulkAct, BulkAction, BulkChange, Subscription, SubscriptionStatus, Tier
from services.mailing.attributes.tags import MAX_TAGS_OF_MEMBER
from services.mailing.bulk_acts import statements
from services.mailing.subscriptions import opt_outs
from storage.unit_of_work import UnitOfWork

# So that a batch keeps its list for a fraction of a second.
MAX_BATCH_MEMBERS = 10_000


class MemberBatch(NamedTuple):
    """The next members of a list in one status, whether they fit the filter or not.

    Attributes:
        after, last: their ids are above the first and not above the second.
        seen: how many they are.
        at: a moment since the list was locked. What changed before is older, and what will is
            younger.
    """

    status: SubscriptionStatus
    after: int
    last: int
    seen: int
    at: datetime


class Counts(NamedTuple):
    matched: int
    changed: int


def next_batch(
    uow: UnitOfWork, act: BulkAct, statuses: Sequence[SubscriptionStatus]
) -> MemberBatch | None:
    """The members after those that were looked at; ``None`` at the end of the list.

    Call it, and what comes after it, under the list's lock.
    """
    status, after = act.reached_status, act.reached_id or 0
    left = statuses if status is None else statuses[statuses.index(SubscriptionStatus(status)) :]
    for each in left:
        values = {"list_id": act.list_id, "status": each, "after": after}
        values["most"] = MAX_BATCH_MEMBERS
        last, seen, at = uow.session.execute(text(statements.NEXT), values).one()
        if seen:
            return MemberBatch(each, after, last, seen, at)
        after = 0
    return None


def apply(
    uow: UnitOfWork, act: BulkAct, batch: MemberBatch, condition: ColumnElement[bool]
) -> Counts:
    """Change those of the batch that fit the condition."""
    matched, kept = _keep(uow, act, batch, condition)
    if not kept:
        return Counts(matched, 0)
    words = statements.WORDS[BulkAction(act.action)]
    statement = statements.APPLY.format(
        sets=words.sets, names=words.names, mail_before=words.mail_before
    )
    values = _values(act) | batch._asdict() | {"event": words.event}
    changed = uow.session.scalar(text(statement), values)
    return Counts(matched, changed or 0)


def _keep(
    uow: UnitOfWork, act: BulkAct, batch: MemberBatch, condition: ColumnElement[bool]
) -> tuple[int, int]:
    """Write what is before, of those who will change; how many fit, and how many were written."""
    s, change = Subscription, cast("Table", BulkChange.__table__)
    own = [s.list_id == act.list_id, s.status == batch.status.value, s.id > batch.after]
    if batch.status is SubscriptionStatus.PENDING:
        # By the moment of the last change is told who left since they asked to come.
        own.append(not_(opt_outs.HAS_LEFT))
    if batch.status is SubscriptionStatus.REMOVED and act.action == BulkAction.REMOVE:
        # Those whom this act removed are met again.
        met = change.c.bulk_id == act.id, change.c.subscription_id == s.id
        own.append(~exists().where(*met))
    fitting = (
        select(s.id, s.updated_at, s.status, s.type, s.paid_expiry)
        .add_columns(_expiry_after(act).label("paid_expiry_after"), _differs(act).label("differs"))
        # An erased person is nobody's member, in whatever status their record is.
        .where(*own, s.id <= batch.last, s.email.is_not(None), condition)
        .cte("fitting")
    )
    columns = ("subscription_id", "updated_at_before", "status_before", "type_before")
    names = ["bulk_id", "applied_at", *columns, "paid_expiry_before", "paid_expiry_after"]
    values: list[ColumnElement[Any]] = [literal(act.id), literal(batch.at), *fitting.c[:6]]
    kept = (
        insert(change)
        .from_select(names, select(*values).where(fitting.c.differs))
        # A member who got another status meanwhile may be met twice.
        .on_conflict_do_nothing()
        .returning(change.c.subscription_id)
        .cte("kept")
    )
    counts = (select(func.count()).select_from(each).scalar_subquery() for each in (fitting, kept))
    matched, written = uow.session.execute(select(*counts)).one()
    return matched, written


def _differs(act: BulkAct) -> ColumnElement[bool]:
    """Whether the act changes the member."""
    s = Subscription
    has_tag = literal(act.tag_id) == any_(s.tag_ids)
    action = BulkAction(act.action)
    match action:
        case BulkAction.TAG:
            return ~has_tag & (func.cardinality(s.tag_ids) < MAX_TAGS_OF_MEMBER)
        case BulkAction.UNTAG:
            return has_tag
        case BulkAction.REMOVE:
            return s.status != SubscriptionStatus.REMOVED.value
        case BulkAction.SET_TYPE:
            return or_(s.type != act.type, s.paid_expiry.is_distinct_from(_expiry_after(act)))
        case BulkAction.EMAIL_OFF:
            return s.email_enabled.is_(True)


def _expiry_after(act: BulkAct) -> ColumnElement[Any]:
    """A tier that is given holds: an end that has passed goes. The free tier has none."""
    expiry = Subscription.paid_expiry
    if act.action != BulkAction.SET_TYPE:
        return expiry.expression
    # A bare NULL of a common table expression is a text.
    none = sqlalchemy.cast(null(), expiry.type)
    return none if act.type == Tier.FREE else case((expiry > func.now(), expiry), else_=none)


def take_back(uow: UnitOfWork, act: BulkAct) -> tuple[Counts, int | None]:
    """Undo the next batch of changes; its counts and its last member, ``None`` if there is none.

    ``matched`` is how many are as before, and ``changed`` how many of them are active by that.
    """
    words = statements.WORDS[BulkAction(act.action)]
    statement = statements.TAKE_BACK.format(
        restores=words.restores,
        is_still=words.is_still,
        also=words.also,
        names=words.names,
        mail_undone=words.mail_undone,
    )
    values = _values(act) | {"after": act.undo_reached_id or 0, "most": MAX_BATCH_MEMBERS}
    restored, made_active, last = uow.session.execute(text(statement), values).one()
    return Counts(restored, made_active), last


def _values(act: BulkAct) -> dict[str, Any]:
    ids = {"bulk_id": act.id, "user_id": act.user_id}
    return ids | {"tag_id": act.tag_id, "type": act.type}
