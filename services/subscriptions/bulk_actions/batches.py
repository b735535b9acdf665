"""Batches of members: the next of a list to be changed, and the next to be changed back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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

from models import (
    BulkAction,
    BulkActionKind,
    BulkChange,
    MemberTag,
    Subscription,
    SubscriptionStatus,
    Tier,
)
from services.subscriptions import deny_lists
from services.subscriptions.members import opt_outs
from services.subscriptions.tags import MAX_TAGS_OF_MEMBER
from storage.unit_of_work import UnitOfWork


@dataclass(frozen=True)
class Words:
    """The parts of the statements that differ from action to action.

    Attributes:
        event: the action in the member's history.
        names: what changed beside status and mail, for the history.
        sets, restores: columns of the subscription ``m``; ``c`` is the row of ``bulk_changes``.
        is_still: whether the undo concerns what the action set.
        also: what the undo does beside it, as one more part of the statement.
        mail_before, mail_undone: whether the member got mail before the action, and its undo.
    """

    event: str
    sets: str
    restores: str
    is_still: str
    also: str = ""
    names: str = "CAST(NULL AS text[])"
    mail_before: str = "m.email_enabled"
    mail_undone: str = "m.email_enabled"


# An array of ids is sorted, and has each once.
_WITH_TAG = (
    "tag_ids = ARRAY(SELECT DISTINCT each FROM unnest(m.tag_ids || CAST(:tag_id AS bigint)) AS each"
    " ORDER BY each)"
)
_WITHOUT_TAG = "tag_ids = array_remove(m.tag_ids, CAST(:tag_id AS bigint))"
_HAS_TAG = "CAST(:tag_id AS bigint) = ANY (m.tag_ids)"
# The ids of deleted tags take none.
_LIVING_TAGS = "(SELECT count(*) FROM tags WHERE tags.id = ANY (m.tag_ids))"
_HAS_ROOM = (
    f"(cardinality(m.tag_ids) < {MAX_TAGS_OF_MEMBER} OR {_LIVING_TAGS} < {MAX_TAGS_OF_MEMBER})"
)
_TAGS = "ARRAY['tags']"
_TYPE = (
    "CASE WHEN c.paid_expiry_before IS DISTINCT FROM c.paid_expiry_after"
    " THEN ARRAY['type', 'paid_expiry'] ELSE ARRAY['type'] END"
)
# The newest event that changed the column is the action's. Each change has an event, and those of
# one member come in their order: they are written under the pair's lock or the list's.
_IS_THE_LAST = """(m.updated_at = c.applied_at OR c.applied_at = (
        SELECT e.created_at FROM subscription_events AS e
        WHERE e.list_id = m.list_id AND e.user_id = m.user_id
            AND e.{column}_before IS DISTINCT FROM e.{column}_after
        ORDER BY e.id DESC LIMIT 1))"""
# A later bulk action keeps the tier of this one for its own undo, by which it must not come back.
_FORGET_TYPE = """, later AS (
    UPDATE bulk_changes AS l SET type_before = c.type_before,
        paid_expiry_before = CASE WHEN l.paid_expiry_before IS NOT DISTINCT FROM c.paid_expiry_after
            THEN c.paid_expiry_before ELSE l.paid_expiry_before END
    FROM batch AS c CROSS JOIN LATERAL (
        SELECT ctid AS place FROM bulk_changes
        WHERE subscription_id = c.subscription_id AND bulk_id <> c.bulk_id
            AND applied_at > c.applied_at AND type_before = :type
        OFFSET 0
    ) AS found
    WHERE l.ctid = found.place
)"""
_SAID_NO = """NOT EXISTS (
        SELECT FROM opt_outs AS o WHERE o.list_id = m.list_id AND o.user_id = m.user_id"""
# A person who left gets no mail, whatever they said about the mail itself.
_NO_OPT_OUT = f"{_SAID_NO})"
_HAS_NOT_LEFT = f"{_SAID_NO} AND o.kind = 'list')"

WORDS: Mapping[BulkActionKind, Words] = {
    BulkActionKind.TAG: Words(
        "edited", names=_TAGS, sets=_WITH_TAG, restores=_WITHOUT_TAG, is_still=_HAS_TAG
    ),
    BulkActionKind.UNTAG: Words(
        "edited",
        names=_TAGS,
        sets=_WITHOUT_TAG,
        restores=_WITH_TAG,
        is_still=f"NOT {_HAS_TAG} AND {_HAS_ROOM}"
        " AND EXISTS (SELECT FROM tags WHERE tags.id = :tag_id)",
    ),
    BulkActionKind.REMOVE: Words(
        "removed",
        sets="status = 'removed'",
        restores="status = c.status_before",
        is_still=f"m.status = 'removed' AND {_IS_THE_LAST.format(column='status')}"
        f" AND (c.status_before = 'unsubscribed' OR {_HAS_NOT_LEFT}"
        " AND m.email <> ALL (CAST(:denied AS text[])))",
    ),
    BulkActionKind.SET_TYPE: Words(
        "edited",
        names=_TYPE,
        sets="type = :type, paid_expiry = c.paid_expiry_after",
        restores="type = c.type_before, paid_expiry ="
        " CASE WHEN m.paid_expiry IS NOT DISTINCT FROM c.paid_expiry_after"
        " THEN c.paid_expiry_before ELSE m.paid_expiry END",
        is_still="m.type = :type",
        also=_FORGET_TYPE,
    ),
    BulkActionKind.EMAIL_OFF: Words(
        "email_disabled",
        sets="email_enabled = false",
        restores="email_enabled = true",
        is_still=f"NOT m.email_enabled AND {_IS_THE_LAST.format(column='email_enabled')}"
        f" AND {_NO_OPT_OUT}",
        mail_before="true",
        mail_undone="false",
    ),
}

# In the order of the list's own index: by the primary key alone Postgres might read all that other
# lists have in between.
NEXT = """
SELECT max(id), count(*), clock_timestamp() FROM (
    SELECT id FROM subscriptions
    WHERE list_id = ANY (ARRAY[CAST(:list_id AS bigint)]) AND status = :status AND id > :after
    ORDER BY list_id, id LIMIT :most
) AS next
"""

# OFFSET 0 makes Postgres look up one row at a time: its statistics know nothing of a bulk action
# that was begun just now.
APPLY = """
WITH changed AS (
    UPDATE subscriptions AS m SET {sets}, updated_at = c.applied_at
    FROM bulk_changes AS c CROSS JOIN LATERAL (
        SELECT ctid AS place FROM subscriptions WHERE id = c.subscription_id OFFSET 0
    ) AS found
    WHERE c.bulk_id = :bulk_id AND c.subscription_id > :after AND c.subscription_id <= :last
        AND c.status_before = :status AND c.applied_at = :at AND m.ctid = found.place
    RETURNING m.list_id, m.user_id, c.status_before, m.status, {mail_before} AS had_mail,
        m.email_enabled, {names} AS names
), noted AS (
    INSERT INTO subscription_events (list_id, user_id, action, actor, actor_id, via, status_before,
        status_after, email_enabled_before, email_enabled_after, changed, created_at)
    SELECT list_id, user_id, :event, 'owner', :user_id, 'bulk', status_before, status, had_mail,
        email_enabled, names, :at
    FROM changed
)
SELECT count(*) FROM changed
"""

# Selects the e-mail addresses of the members in the next batch of an undo.
REMOVED_ADDRESSES = """
SELECT m.email FROM (
    SELECT subscription_id FROM bulk_changes
    WHERE bulk_id = :bulk_id AND subscription_id > :after
    ORDER BY subscription_id LIMIT :most
) AS c CROSS JOIN LATERAL (
    SELECT email FROM subscriptions WHERE id = c.subscription_id OFFSET 0
) AS m
WHERE m.email IS NOT NULL
"""

TAKE_BACK = """
WITH first AS (
    SELECT subscription_id FROM bulk_changes
    WHERE bulk_id = :bulk_id AND subscription_id > :after
    ORDER BY subscription_id LIMIT :most
), batch AS (
    -- A range, not a join: the plan of a join would rely on statistics of a new bulk action.
    DELETE FROM bulk_changes WHERE bulk_id = :bulk_id
        AND subscription_id > :after AND subscription_id <= (SELECT max(subscription_id) FROM first)
    RETURNING *
), restored AS (
    UPDATE subscriptions AS m SET {restores}, updated_at =
        CASE WHEN m.updated_at = c.applied_at THEN c.updated_at_before ELSE clock_timestamp() END
    FROM batch AS c CROSS JOIN LATERAL (
        SELECT ctid AS place, status FROM subscriptions WHERE id = c.subscription_id OFFSET 0
    ) AS found
    WHERE m.ctid = found.place AND m.email IS NOT NULL AND {is_still}
    RETURNING m.list_id, m.user_id, found.status AS was, m.status, {mail_undone} AS had_mail,
        m.email_enabled, {names} AS names
), noted AS (
    INSERT INTO subscription_events (list_id, user_id, action, actor, actor_id, via, status_before,
        status_after, email_enabled_before, email_enabled_after, changed)
    SELECT list_id, user_id, 'bulk_undone', 'owner', :user_id, 'bulk', was, status, had_mail,
        email_enabled, names
    FROM restored
){also}
SELECT (SELECT count(*) FROM restored),
    (SELECT count(*) FROM restored WHERE status = 'active' AND was <> 'active'),
    (SELECT max(subscription_id) FROM first)
"""


# A batch keeps its list for a fraction of a second.
MAX_BATCH_MEMBERS = 10_000


class MemberBatch(NamedTuple):
    """The next members of a list in one status, whether they fit the filter or not.

    Attributes:
        after, last: their ids are above the first and not above the second.
        seen: how many they are.
        at: a moment since the list was locked: earlier changes are older, later ones younger.
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
    uow: UnitOfWork, bulk: BulkAction, statuses: Sequence[SubscriptionStatus]
) -> MemberBatch | None:
    """The members after those that were looked at; ``None`` at the end of the list.

    Call it, and what comes after it, under the list's lock.
    """
    status, after = bulk.reached_status, bulk.reached_id or 0
    left = statuses if status is None else statuses[statuses.index(SubscriptionStatus(status)) :]
    for each in left:
        values = {"list_id": bulk.list_id, "status": each, "after": after}
        values["most"] = MAX_BATCH_MEMBERS
        last, seen, at = uow.session.execute(text(NEXT), values).one()
        if seen:
            return MemberBatch(each, after, last, seen, at)
        after = 0
    return None


def apply(
    uow: UnitOfWork, bulk: BulkAction, batch: MemberBatch, condition: ColumnElement[bool]
) -> Counts:
    """Change those of the batch that fit the condition."""
    matched, kept = _keep(uow, bulk, batch, condition)
    if not kept:
        return Counts(matched, 0)
    words = WORDS[BulkActionKind(bulk.action)]
    values = _values(bulk) | batch._asdict() | {"event": words.event}
    changed = uow.session.scalar(text(APPLY.format(**vars(words))), values)
    return Counts(matched, changed or 0)


def _keep(
    uow: UnitOfWork, bulk: BulkAction, batch: MemberBatch, condition: ColumnElement[bool]
) -> tuple[int, int]:
    """Write what is before, of those who will change; how many fit, and how many were written."""
    s, change = Subscription, cast("Table", BulkChange.__table__)
    own = [s.list_id == bulk.list_id, s.status == batch.status.value, s.id > batch.after]
    if batch.status is SubscriptionStatus.PENDING:
        # By the moment of the last change is told who left since they asked to come.
        own.append(not_(opt_outs.HAS_LEFT))
    if batch.status is SubscriptionStatus.REMOVED and bulk.action == BulkActionKind.REMOVE:
        # The members whom this action removed have this status now; skip them.
        met = change.c.bulk_id == bulk.id, change.c.subscription_id == s.id
        own.append(~exists().where(*met))
    expiry = _expiry_after(bulk).label("paid_expiry_after")
    fitting = (
        select(s.id, s.updated_at, s.status, s.type, s.paid_expiry, expiry)
        .add_columns(_differs(bulk).label("differs"))
        # An erased person is nobody's member, in whatever status their record is.
        .where(*own, s.id <= batch.last, s.email.is_not(None), condition)
        .cte("fitting")
    )
    columns = ("subscription_id", "updated_at_before", "status_before", "type_before")
    names = ["bulk_id", "applied_at", *columns, "paid_expiry_before", "paid_expiry_after"]
    values: list[ColumnElement[Any]] = [literal(bulk.id), literal(batch.at), *fitting.c[:6]]
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


def _differs(bulk: BulkAction) -> ColumnElement[bool]:
    """Return whether the action changes the member."""
    s = Subscription
    has_tag = literal(bulk.tag_id) == any_(s.tag_ids)
    action = BulkActionKind(bulk.action)
    match action:
        case BulkActionKind.TAG:
            of_member = MemberTag.id == any_(s.tag_ids)
            living = select(func.count()).select_from(MemberTag).where(of_member).scalar_subquery()
            # The second is looked at where the first is false: ids of deleted tags may be there.
            most = MAX_TAGS_OF_MEMBER
            return ~has_tag & or_(func.cardinality(s.tag_ids) < most, living < most)
        case BulkActionKind.UNTAG:
            return has_tag
        case BulkActionKind.REMOVE:
            return s.status != SubscriptionStatus.REMOVED.value
        case BulkActionKind.SET_TYPE:
            return or_(s.type != bulk.type, s.paid_expiry.is_distinct_from(_expiry_after(bulk)))
        case BulkActionKind.EMAIL_OFF:
            return s.email_enabled.is_(True)


def _expiry_after(bulk: BulkAction) -> ColumnElement[Any]:
    """A tier that is given holds: an end that has passed goes. The free tier has none."""
    expiry = Subscription.paid_expiry
    if bulk.action != BulkActionKind.SET_TYPE:
        return expiry.expression
    # A bare NULL of a common table expression is a text.
    none = sqlalchemy.cast(null(), expiry.type)
    return none if bulk.type == Tier.FREE else case((expiry > func.now(), expiry), else_=none)


def take_back(
    uow: UnitOfWork, bulk: BulkAction, most: int | None = None
) -> tuple[Counts, int | None]:
    """Undo the next batch of changes; its counts and its last member, ``None`` if there is none.

    ``matched`` is how many are as before, and ``changed`` how many of them are active by that.
    """
    statement = TAKE_BACK.format(**vars(WORDS[BulkActionKind(bulk.action)]))
    values = _values(bulk) | {"after": bulk.undo_reached_id or 0}
    values["most"] = most or MAX_BATCH_MEMBERS
    if bulk.action == BulkActionKind.REMOVE:
        addresses = uow.session.scalars(text(REMOVED_ADDRESSES), values).all()
        values["denied"] = sorted(deny_lists.find_denied(uow, bulk.user_id, addresses))
    restored, made_active, last = uow.session.execute(text(statement), values).one()
    return Counts(restored, made_active), last


def _values(bulk: BulkAction) -> dict[str, Any]:
    ids = {"bulk_id": bulk.id, "user_id": bulk.user_id}
    return ids | {"tag_id": bulk.tag_id, "type": bulk.type}
