"""What each act does to a member, and how it is taken back, by statements for many members."""

from collections.abc import Mapping
from dataclasses import dataclass

from models import BulkAction
from services.mailing.attributes.tags import MAX_TAGS_OF_MEMBER


@dataclass(frozen=True)
class Words:
    """What of the statements differs from act to act.

    Attributes:
        event: the action in the member's history.
        names: what changed beside status and mail, for the history.
        sets, restores: columns of the subscription ``m``; ``c`` is the row of ``bulk_changes``.
        is_still: whether the undo concerns what the act set.
        also: what the undo does beside it, as one more part of the statement.
        mail_before, mail_undone: whether the member got mail before the act, and before the undo.
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
_TAGS = "ARRAY['tags']"
_TYPE = (
    "CASE WHEN c.paid_expiry_before IS DISTINCT FROM c.paid_expiry_after"
    " THEN ARRAY['type', 'paid_expiry'] ELSE ARRAY['type'] END"
)
# The newest event that changed the column is the act's. Each change has an event, and those of one
# member come in their order: they are written under the pair's lock or the list's.
_IS_THE_LAST = """(m.updated_at = c.applied_at OR c.applied_at = (
        SELECT e.created_at FROM subscription_events AS e
        WHERE e.list_id = m.list_id AND e.user_id = m.user_id
            AND e.{column}_before IS DISTINCT FROM e.{column}_after
        ORDER BY e.id DESC LIMIT 1))"""
# A later act keeps the tier of this one for its own undo, by which it must not come back.
_FORGET_TYPE = """, later AS (
    UPDATE bulk_changes AS l SET type_before = c.type_before,
        paid_expiry_before = CASE WHEN l.paid_expiry_before IS NOT DISTINCT FROM c.paid_expiry_after
            THEN c.paid_expiry_before ELSE l.paid_expiry_before END
    FROM batch AS c CROSS JOIN LATERAL (
        SELECT tableoid AS part, ctid AS place FROM bulk_changes
        WHERE subscription_id = c.subscription_id AND bulk_id <> c.bulk_id
            AND applied_at > c.applied_at AND type_before = :type
        OFFSET 0
    ) AS found
    WHERE l.ctid = found.place AND l.tableoid = found.part
)"""
_SAID_NO = """NOT EXISTS (
        SELECT FROM opt_outs AS o WHERE o.list_id = m.list_id AND o.user_id = m.user_id"""
# A person who left gets no mail, whatever they said about the mail itself.
_NO_OPT_OUT = f"{_SAID_NO})"
_HAS_NOT_LEFT = f"{_SAID_NO} AND o.kind = 'list')"

WORDS: Mapping[BulkAction, Words] = {
    BulkAction.TAG: Words(
        "edited", names=_TAGS, sets=_WITH_TAG, restores=_WITHOUT_TAG, is_still=_HAS_TAG
    ),
    BulkAction.UNTAG: Words(
        "edited",
        names=_TAGS,
        sets=_WITHOUT_TAG,
        restores=_WITH_TAG,
        is_still=f"NOT {_HAS_TAG} AND cardinality(m.tag_ids) < {MAX_TAGS_OF_MEMBER}"
        " AND EXISTS (SELECT FROM tags WHERE tags.id = :tag_id)",
    ),
    BulkAction.REMOVE: Words(
        "removed",
        sets="status = 'removed'",
        restores="status = c.status_before",
        is_still=f"m.status = 'removed' AND {_IS_THE_LAST.format(column='status')}"
        f" AND (c.status_before = 'unsubscribed' OR {_HAS_NOT_LEFT})",
    ),
    BulkAction.SET_TYPE: Words(
        "edited",
        names=_TYPE,
        sets="type = :type, paid_expiry = c.paid_expiry_after",
        restores="type = c.type_before, paid_expiry ="
        " CASE WHEN m.paid_expiry IS NOT DISTINCT FROM c.paid_expiry_after"
        " THEN c.paid_expiry_before ELSE m.paid_expiry END",
        is_still="m.type = :type",
        also=_FORGET_TYPE,
    ),
    BulkAction.EMAIL_OFF: Words(
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

# OFFSET 0 makes Postgres look up one row at a time: its statistics know nothing of an act that was
# begun just now.
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

TAKE_BACK = """
WITH first AS (
    SELECT subscription_id FROM bulk_changes
    WHERE bulk_id = :bulk_id AND subscription_id > :after
    ORDER BY subscription_id LIMIT :most
), batch AS (
    -- A range, not a join: the plan of a join would rely on statistics of a new act.
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
