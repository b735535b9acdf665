"""Changes members in batches for bulk actions, and restores members for an undo."""

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
from services.subscriptions.members import bounces, opt_out_checks
from services.subscriptions.tags import MAX_TAGS_OF_MEMBER
from storage.unit_of_work import UnitOfWork

# The maximum number of members that one batch changes. Changing one batch locks the list for less
# than a second.
MAX_BATCH_MEMBERS = 10_000
# The ids in ``tag_ids`` must be sorted and unique.
_WITH_TAG = (
    "tag_ids = ARRAY(SELECT DISTINCT each FROM unnest(m.tag_ids || CAST(:tag_id AS bigint)) AS each"
    " ORDER BY each)"
)
_WITHOUT_TAG = "tag_ids = array_remove(m.tag_ids, CAST(:tag_id AS bigint))"
_HAS_TAG = "CAST(:tag_id AS bigint) = ANY (m.tag_ids)"
# Count only existing tags, because ``tag_ids`` may contain ids of deleted tags.
_COUNT_TAGS = "(SELECT count(*) FROM tags WHERE tags.id = ANY (m.tag_ids))"
_HAS_ROOM_FOR_TAG = (
    f"(cardinality(m.tag_ids) < {MAX_TAGS_OF_MEMBER} OR {_COUNT_TAGS} < {MAX_TAGS_OF_MEMBER})"
)
_TAG_NAMES = "ARRAY['tags']"
_TYPE_NAMES = (
    "CASE WHEN c.paid_expiry_before IS DISTINCT FROM c.paid_expiry_after"
    " THEN ARRAY['type', 'paid_expiry'] ELSE ARRAY['type'] END"
)
# An SQL condition that is true if the column ``{column}`` hasn't changed since the bulk action. To
# detect later changes, the SQL condition compares the times of events, because every change to a
# member adds an event. A member's latest event has the highest id, because every change locks the
# member or the list.
_IS_LATEST_CHANGE = """(m.updated_at = c.applied_at OR c.applied_at = (
        SELECT e.created_at FROM subscription_events AS e
        WHERE e.list_id = m.list_id AND e.user_id = m.user_id
            AND e.{column}_before IS DISTINCT FROM e.{column}_after
        ORDER BY e.id DESC LIMIT 1))"""
# When an undo removes a tier, it also removes the tier from the values that later bulk actions have
# stored. If later bulk actions kept the old values, undoing a later bulk action would restore the
# removed tier.
_UPDATE_LATER_ACTIONS = """, later AS (
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
# The undo of a bulk action turns mail on only for members who haven't opted out of the list or of
# the list's mail. The undo doesn't turn mail on for members whose mail a bounce turned off.
_NO_OPT_OUT = opt_out_checks.build_no_opt_out_condition("m")
_NO_BOUNCE = bounces.build_no_bounce_condition("m")
_HAS_NOT_LEFT = opt_out_checks.build_no_opt_out_condition("m", OptOutKind.LIST)


@dataclass(frozen=True)
class ActionSql:
    """The SQL fragments that depend on the kind of bulk action.

    ``m`` is the alias of the table ``subscriptions``, and ``c`` is the alias of ``bulk_changes``.

    Attributes:
        can_restore: an SQL condition for members that an undo is allowed to restore.
        further_statement: an additional common table expression of the undo.
        changed_names: an SQL array, without the status and the mail setting.
        mail_before_action: an SQL expression for the mail setting.
    """

    event: str
    set_values: str
    restore_values: str
    can_restore: str
    further_statement: str = ""
    changed_names: str = "CAST(NULL AS text[])"
    mail_before_action: str = "m.email_enabled"
    mail_before_undo: str = "m.email_enabled"


_SQL_BY_ACTION: Mapping[BulkActionKind, ActionSql] = {
    BulkActionKind.TAG: ActionSql(
        "edited",
        changed_names=_TAG_NAMES,
        set_values=_WITH_TAG,
        restore_values=_WITHOUT_TAG,
        can_restore=_HAS_TAG,
    ),
    BulkActionKind.UNTAG: ActionSql(
        "edited",
        changed_names=_TAG_NAMES,
        set_values=_WITHOUT_TAG,
        restore_values=_WITH_TAG,
        can_restore=f"NOT {_HAS_TAG} AND {_HAS_ROOM_FOR_TAG}"
        " AND EXISTS (SELECT FROM tags WHERE tags.id = :tag_id)",
    ),
    BulkActionKind.REMOVE: ActionSql(
        "removed",
        set_values="status = 'removed'",
        restore_values="status = c.status_before",
        can_restore=f"m.status = 'removed' AND {_IS_LATEST_CHANGE.format(column='status')}"
        f" AND (c.status_before = 'unsubscribed' OR {_HAS_NOT_LEFT}"
        " AND m.email <> ALL (CAST(:denied AS text[])))",
    ),
    BulkActionKind.SET_TYPE: ActionSql(
        "edited",
        changed_names=_TYPE_NAMES,
        set_values="type = :type, paid_expiry = c.paid_expiry_after",
        restore_values="type = c.type_before, paid_expiry ="
        " CASE WHEN m.paid_expiry IS NOT DISTINCT FROM c.paid_expiry_after"
        " THEN c.paid_expiry_before ELSE m.paid_expiry END",
        can_restore="m.type = :type",
        further_statement=_UPDATE_LATER_ACTIONS,
    ),
    BulkActionKind.EMAIL_OFF: ActionSql(
        "email_disabled",
        set_values="email_enabled = false",
        restore_values="email_enabled = true",
        can_restore=f"NOT m.email_enabled AND {_IS_LATEST_CHANGE.format(column='email_enabled')}"
        f" AND {_NO_OPT_OUT} AND {_NO_BOUNCE}",
        mail_before_action="true",
        mail_before_undo="false",
    ),
}

# ORDER BY repeats the columns of the index on a list's members, so that Postgres uses this index.
# The index of the primary key would be slow, because Postgres might read many members of unrelated
# lists.
_SELECT_NEXT_BATCH = """
SELECT max(id), count(*), clock_timestamp() FROM (
    SELECT id FROM subscriptions
    WHERE list_id = ANY (ARRAY[CAST(:list_id AS bigint)]) AND status = :status AND id > :after
    ORDER BY list_id, id LIMIT :most
) AS next
"""

# OFFSET 0 makes Postgres look up members one by one by id. A plain join of ``bulk_changes`` and
# ``subscriptions`` could be slow, because Postgres has no statistics about a new bulk action.
_CHANGE_MEMBERS = """
WITH changed AS (
    UPDATE subscriptions AS m SET {set_values}, updated_at = c.applied_at
    FROM bulk_changes AS c CROSS JOIN LATERAL (
        SELECT ctid AS place FROM subscriptions WHERE id = c.subscription_id OFFSET 0
    ) AS found
    WHERE c.bulk_id = :bulk_id AND c.subscription_id > :after AND c.subscription_id <= :last
        AND c.status_before = :status AND c.applied_at = :at AND m.ctid = found.place
    RETURNING m.list_id, m.user_id, c.status_before, m.status, {mail_before_action} AS had_mail,
        m.email_enabled, {changed_names} AS names
), noted AS (
    INSERT INTO subscription_events (list_id, user_id, action, actor, actor_id, via, status_before,
        status_after, email_enabled_before, email_enabled_after, changed, created_at)
    SELECT list_id, user_id, :event, 'owner', :user_id, 'bulk', status_before, status, had_mail,
        email_enabled, names, :at
    FROM changed
)
SELECT count(*) FROM changed
"""

# Selects the e-mail addresses of the members that the next batch of an undo tries to restore.
_SELECT_ADDRESSES = """
SELECT m.email FROM (
    SELECT subscription_id FROM bulk_changes
    WHERE bulk_id = :bulk_id AND subscription_id > :after
    ORDER BY subscription_id LIMIT :most
) AS c CROSS JOIN LATERAL (
    SELECT email FROM subscriptions WHERE id = c.subscription_id OFFSET 0
) AS m
WHERE m.email IS NOT NULL
"""

_RESTORE_MEMBERS = """
WITH first AS (
    SELECT subscription_id FROM bulk_changes
    WHERE bulk_id = :bulk_id AND subscription_id > :after
    ORDER BY subscription_id LIMIT :most
), batch AS (
    -- The condition is a range, because a join could have a bad plan for a new bulk action.
    DELETE FROM bulk_changes WHERE bulk_id = :bulk_id
        AND subscription_id > :after AND subscription_id <= (SELECT max(subscription_id) FROM first)
    RETURNING *
), restored AS (
    UPDATE subscriptions AS m SET {restore_values}, updated_at =
        CASE WHEN m.updated_at = c.applied_at THEN c.updated_at_before ELSE clock_timestamp() END
    FROM batch AS c CROSS JOIN LATERAL (
        SELECT ctid AS place, status FROM subscriptions WHERE id = c.subscription_id OFFSET 0
    ) AS found
    WHERE m.ctid = found.place AND m.email IS NOT NULL AND {can_restore}
    RETURNING m.list_id, m.user_id, found.status AS was, m.status, {mail_before_undo} AS had_mail,
        m.email_enabled, {changed_names} AS names
), noted AS (
    INSERT INTO subscription_events (list_id, user_id, action, actor, actor_id, via, status_before,
        status_after, email_enabled_before, email_enabled_after, changed)
    SELECT list_id, user_id, 'bulk_undone', 'owner', :user_id, 'bulk', was, status, had_mail,
        email_enabled, names
    FROM restored
){further_statement}
SELECT (SELECT count(*) FROM restored),
    (SELECT count(*) FROM restored WHERE status = 'active' AND was <> 'active'),
    (SELECT max(subscription_id) FROM first)
"""


class MemberBatch(NamedTuple):
    """A batch of members with the same status, with ids above ``after``, up to ``last``.

    ``seen`` is the number of members, and ``at`` is the timestamp of the changes.
    """

    status: SubscriptionStatus
    after: int
    last: int
    seen: int
    at: datetime


class BatchCounts(NamedTuple):
    """How many members match the filter, and how many were changed."""

    matched: int
    changed: int


class RestoredMembers(NamedTuple):
    """How many members were restored, and how many of them became active.

    ``last_id`` is ``None`` if no members were left.
    """

    restored_count: int
    activated_count: int
    last_id: int | None


def next_batch(
    uow: UnitOfWork, bulk: BulkAction, statuses: Sequence[SubscriptionStatus]
) -> MemberBatch | None:
    """Return the next batch, or ``None`` after the last batch.

    The caller must lock the list until the changes are committed.
    """
    after = bulk.reached_id or 0
    if bulk.reached_status is not None:
        reached_status = SubscriptionStatus(bulk.reached_status)
        statuses = statuses[statuses.index(reached_status) :]
    for status in statuses:
        values = {
            "list_id": bulk.list_id,
            "status": status,
            "after": after,
            "most": MAX_BATCH_MEMBERS,
        }
        last, seen, at = uow.session.execute(text(_SELECT_NEXT_BATCH), values).one()
        if seen:
            return MemberBatch(status, after, last, seen, at)
        after = 0
    return None


def change_batch(
    uow: UnitOfWork, bulk: BulkAction, batch: MemberBatch, condition: ColumnElement[bool]
) -> BatchCounts:
    matched, stored = _store_changes(uow, bulk, batch, condition)
    if not stored:
        return BatchCounts(matched, 0)
    action_sql = _SQL_BY_ACTION[BulkActionKind(bulk.action)]
    values = _list_parameters(bulk) | batch._asdict() | {"event": action_sql.event}
    changed = uow.session.scalar(text(_CHANGE_MEMBERS.format(**vars(action_sql))), values)
    return BatchCounts(matched, changed or 0)


def _store_changes(
    uow: UnitOfWork, bulk: BulkAction, batch: MemberBatch, condition: ColumnElement[bool]
) -> tuple[int, int]:
    """Return how many members match the filter, and how many will be changed."""
    member = Subscription
    change = cast("Table", BulkChange.__table__)
    conditions = [
        member.list_id == bulk.list_id,
        member.status == batch.status.value,
        member.id > batch.after,
        member.id <= batch.last,
        # Skip records without an e-mail address, which belong to erased people.
        member.email.is_not(None),
        condition,
    ]
    if batch.status is SubscriptionStatus.PENDING:
        # Skip pending members who opted out of the list after their sign-up.
        conditions.append(not_(opt_out_checks.HAS_LEFT))
    if batch.status is SubscriptionStatus.REMOVED and bulk.action == BulkActionKind.REMOVE:
        # Skip members that an earlier batch of the same bulk action has removed.
        conditions.append(
            ~exists().where(change.c.bulk_id == bulk.id, change.c.subscription_id == member.id)
        )
    new_expiry = _build_new_expiry(bulk).label("paid_expiry_after")
    matching = (
        select(
            member.id,
            member.updated_at,
            member.status,
            member.type,
            member.paid_expiry,
            new_expiry,
            _build_change_condition(bulk).label("differs"),
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
        # A bulk action may process a member twice if the member's status changes while the bulk
        # action runs.
        .on_conflict_do_nothing()
        .returning(change.c.subscription_id)
        .cte("kept")
    )
    counts = (
        select(func.count()).select_from(each).scalar_subquery() for each in (matching, stored)
    )
    matched_count, stored_count = uow.session.execute(select(*counts)).one()
    return matched_count, stored_count


def _build_change_condition(bulk: BulkAction) -> ColumnElement[bool]:
    member = Subscription
    has_tag = literal(bulk.tag_id) == any_(member.tag_ids)
    action = BulkActionKind(bulk.action)
    match action:
        case BulkActionKind.TAG:
            tag_count = (
                select(func.count())
                .select_from(MemberTag)
                .where(MemberTag.id == any_(member.tag_ids))
                .scalar_subquery()
            )
            # If ``tag_ids`` is full, count only existing tags, because ``tag_ids`` may contain ids
            # of deleted tags.
            has_room = or_(
                func.cardinality(member.tag_ids) < MAX_TAGS_OF_MEMBER,
                tag_count < MAX_TAGS_OF_MEMBER,
            )
            return ~has_tag & has_room
        case BulkActionKind.UNTAG:
            return has_tag
        case BulkActionKind.REMOVE:
            return member.status != SubscriptionStatus.REMOVED.value
        case BulkActionKind.SET_TYPE:
            new_expiry = _build_new_expiry(bulk)
            return or_(member.type != bulk.type, member.paid_expiry.is_distinct_from(new_expiry))
        case BulkActionKind.EMAIL_OFF:
            return member.email_enabled.is_(True)


def _build_new_expiry(bulk: BulkAction) -> ColumnElement[Any]:
    """Keep only an expiry date in the future, and only for a paid tier."""
    expiry = Subscription.paid_expiry
    if bulk.action != BulkActionKind.SET_TYPE:
        return expiry.expression
    # Cast NULL to a timestamp, because Postgres treats a plain NULL in a common table expression as
    # text.
    none = sqlalchemy.cast(null(), expiry.type)
    return none if bulk.type == Tier.FREE else case((expiry > func.now(), expiry), else_=none)


def restore_batch(
    uow: UnitOfWork, bulk: BulkAction, max_members: int | None = None
) -> RestoredMembers:
    statement = _RESTORE_MEMBERS.format(**vars(_SQL_BY_ACTION[BulkActionKind(bulk.action)]))
    values = _list_parameters(bulk) | {"after": bulk.undo_reached_id or 0}
    values["most"] = max_members or MAX_BATCH_MEMBERS
    if bulk.action == BulkActionKind.REMOVE:
        addresses = uow.session.scalars(text(_SELECT_ADDRESSES), values).all()
        values["denied"] = sorted(deny_lists.find_denied(uow, bulk.user_id, addresses))
    restored_count, activated_count, last_id = uow.session.execute(text(statement), values).one()
    return RestoredMembers(restored_count, activated_count, last_id)


def _list_parameters(bulk: BulkAction) -> dict[str, Any]:
    return {
        "bulk_id": bulk.id,
        "user_id": bulk.user_id,
        "tag_id": bulk.tag_id,
        "type": bulk.type,
    }
