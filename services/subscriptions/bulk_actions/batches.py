"""The batches of members that a bulk action changes, or that its undo restores."""

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
    OptOutKind,
    Subscription,
    SubscriptionStatus,
    Tier,
)
from services.subscriptions import deny_lists
from services.subscriptions.members import opt_out_checks
from services.subscriptions.tags import MAX_TAGS_OF_MEMBER
from storage.unit_of_work import UnitOfWork

# A batch of this size locks its list for a fraction of a second.
MAX_BATCH_MEMBERS = 10_000
# An array of ids is sorted and has no duplicates.
_WITH_TAG = (
    "tag_ids = ARRAY(SELECT DISTINCT each FROM unnest(m.tag_ids || CAST(:tag_id AS bigint)) AS each"
    " ORDER BY each)"
)
_WITHOUT_TAG = "tag_ids = array_remove(m.tag_ids, CAST(:tag_id AS bigint))"
_HAS_TAG = "CAST(:tag_id AS bigint) = ANY (m.tag_ids)"
# Deleted tags may be in the array, but don't count.
_LIVING_TAGS = "(SELECT count(*) FROM tags WHERE tags.id = ANY (m.tag_ids))"
_HAS_ROOM = (
    f"(cardinality(m.tag_ids) < {MAX_TAGS_OF_MEMBER} OR {_LIVING_TAGS} < {MAX_TAGS_OF_MEMBER})"
)
_TAGS = "ARRAY['tags']"
_TYPE = (
    "CASE WHEN c.paid_expiry_before IS DISTINCT FROM c.paid_expiry_after"
    " THEN ARRAY['type', 'paid_expiry'] ELSE ARRAY['type'] END"
)
# The condition that the action wrote the newest event that changed the column. Each change has an
# event. The events of one member are in order, because a lock on the member or list protects them.
_IS_THE_LAST = """(m.updated_at = c.applied_at OR c.applied_at = (
        SELECT e.created_at FROM subscription_events AS e
        WHERE e.list_id = m.list_id AND e.user_id = m.user_id
            AND e.{column}_before IS DISTINCT FROM e.{column}_after
        ORDER BY e.id DESC LIMIT 1))"""
# A later bulk action stores this action's tier as the earlier value. The undo of the later action
# must not restore this tier.
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
# A person who left gets no mail, even if they had not disabled it.
_NO_OPT_OUT = opt_out_checks.build_no_opt_out_condition("m")
_HAS_NOT_LEFT = opt_out_checks.build_no_opt_out_condition("m", OptOutKind.LIST)


@dataclass(frozen=True)
class Words:
    """The parts of the SQL statements that differ between actions.

    ``m`` is the subscription, and ``c`` is the row of ``bulk_changes``.

    Attributes:
        event: the name of the action in the member's history.
        sets: the columns that the action sets.
        restores: the columns that the undo sets.
        is_still: the condition that the member still has the value that the action set.
        also: a further part of the undo's statement.
        names: the names of the changed values in the history, except status and mail.
        mail_before: whether the member got mail before the action.
        mail_undone: whether the member got mail before the undo.
    """

    event: str
    sets: str
    restores: str
    is_still: str
    also: str = ""
    names: str = "CAST(NULL AS text[])"
    mail_before: str = "m.email_enabled"
    mail_undone: str = "m.email_enabled"


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

# ORDER BY matches the index of the list. With the primary key, Postgres might read all members of
# other lists in between.
NEXT = """
SELECT max(id), count(*), clock_timestamp() FROM (
    SELECT id FROM subscriptions
    WHERE list_id = ANY (ARRAY[CAST(:list_id AS bigint)]) AND status = :status AND id > :after
    ORDER BY list_id, id LIMIT :most
) AS next
"""

# OFFSET 0 makes Postgres look up one row at a time. Its statistics don't include a bulk action that
# has just begun.
CHANGE = """
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

RESTORE = """
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


class MemberBatch(NamedTuple):
    """The next members of a list in one status. Some of them may not match the filter.

    Attributes:
        after: the last id of the previous batch.
        last: the last id of this batch.
        seen: the number of members in the batch.
        at: a time after the list was locked. All earlier changes are older.
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
    """Return the next batch of a bulk action, or ``None`` at the end of the list.

    The caller must hold the list's lock until the batch is committed.
    """
    after = bulk.reached_id or 0
    if bulk.reached_status is not None:
        reached_status = SubscriptionStatus(bulk.reached_status)
        statuses = statuses[statuses.index(reached_status) :]
    for status in statuses:
        values = {"list_id": bulk.list_id, "status": status, "after": after}
        values["most"] = MAX_BATCH_MEMBERS
        last, seen, at = uow.session.execute(text(NEXT), values).one()
        if seen:
            return MemberBatch(status, after, last, seen, at)
        after = 0
    return None


def change_batch(
    uow: UnitOfWork, bulk: BulkAction, batch: MemberBatch, condition: ColumnElement[bool]
) -> Counts:
    """Change the members of the batch that match the condition."""
    matched, stored = _store_changes(uow, bulk, batch, condition)
    if not stored:
        return Counts(matched, 0)
    words = WORDS[BulkActionKind(bulk.action)]
    values = _values(bulk) | batch._asdict() | {"event": words.event}
    changed = uow.session.scalar(text(CHANGE.format(**vars(words))), values)
    return Counts(matched, changed or 0)


def _store_changes(
    uow: UnitOfWork, bulk: BulkAction, batch: MemberBatch, condition: ColumnElement[bool]
) -> tuple[int, int]:
    """Store the earlier values of members that will change.

    Return how many members match the condition, and how many of them will change.
    """
    member = Subscription
    change = cast("Table", BulkChange.__table__)
    conditions = [
        member.list_id == bulk.list_id,
        member.status == batch.status.value,
        member.id > batch.after,
        member.id <= batch.last,
        # Erased people aren't members. Their records have no address.
        member.email.is_not(None),
        condition,
    ]
    if batch.status is SubscriptionStatus.PENDING:
        # Skip people who opted out after they signed up.
        conditions.append(not_(opt_out_checks.HAS_LEFT))
    if batch.status is SubscriptionStatus.REMOVED and bulk.action == BulkActionKind.REMOVE:
        # The members whom this action removed have this status now; skip them.
        is_changed = change.c.bulk_id == bulk.id, change.c.subscription_id == member.id
        conditions.append(~exists().where(*is_changed))
    expiry = _expiry_after(bulk).label("paid_expiry_after")
    matching = (
        select(
            *(member.id, member.updated_at, member.status, member.type, member.paid_expiry),
            *(expiry, _differs(bulk).label("differs")),
        )
        .where(*conditions)
        .cte("fitting")
    )
    columns = ("subscription_id", "updated_at_before", "status_before", "type_before")
    names = ["bulk_id", "applied_at", *columns, "paid_expiry_before", "paid_expiry_after"]
    values: list[ColumnElement[Any]] = [literal(bulk.id), literal(batch.at), *matching.c[:6]]
    stored = (
        insert(change)
        .from_select(names, select(*values).where(matching.c.differs))
        # A member whose status changes during the action may be in two batches.
        .on_conflict_do_nothing()
        .returning(change.c.subscription_id)
        .cte("kept")
    )
    counts = (
        select(func.count()).select_from(each).scalar_subquery() for each in (matching, stored)
    )
    matched_count, stored_count = uow.session.execute(select(*counts)).one()
    return matched_count, stored_count


def _differs(bulk: BulkAction) -> ColumnElement[bool]:
    """The SQL condition that the action changes the member."""
    member = Subscription
    has_tag = literal(bulk.tag_id) == any_(member.tag_ids)
    action = BulkActionKind(bulk.action)
    match action:
        case BulkActionKind.TAG:
            of_member = MemberTag.id == any_(member.tag_ids)
            count = select(func.count()).select_from(MemberTag).where(of_member).scalar_subquery()
            # Tags are only counted if the array may contain the ids of deleted tags.
            has_room = or_(
                func.cardinality(member.tag_ids) < MAX_TAGS_OF_MEMBER, count < MAX_TAGS_OF_MEMBER
            )
            return ~has_tag & has_room
        case BulkActionKind.UNTAG:
            return has_tag
        case BulkActionKind.REMOVE:
            return member.status != SubscriptionStatus.REMOVED.value
        case BulkActionKind.SET_TYPE:
            expiry = _expiry_after(bulk)
            return or_(member.type != bulk.type, member.paid_expiry.is_distinct_from(expiry))
        case BulkActionKind.EMAIL_OFF:
            return member.email_enabled.is_(True)


def _expiry_after(bulk: BulkAction) -> ColumnElement[Any]:
    """Return the end of the member's tier after the action.

    If the action sets a paid tier, an end in the past is removed. The free tier has no end.
    """
    expiry = Subscription.paid_expiry
    if bulk.action != BulkActionKind.SET_TYPE:
        return expiry.expression
    # Without the cast, NULL has the type text in a common table expression.
    none = sqlalchemy.cast(null(), expiry.type)
    return none if bulk.type == Tier.FREE else case((expiry > func.now(), expiry), else_=none)


def restore_batch(
    uow: UnitOfWork, bulk: BulkAction, most: int | None = None
) -> tuple[Counts, int | None]:
    """Undo the next batch of changes. Return its counts, and its last member or ``None``.

    ``matched`` is the number of restored members. ``changed`` is how many of them became active.
    """
    statement = RESTORE.format(**vars(WORDS[BulkActionKind(bulk.action)]))
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
