"""Counts who joined and left each list before the trigger counted it, from what is known of it.

List by list beside running code. A list's figures are replaced by a count of all that its history
tells in the same snapshot, what the trigger has counted meanwhile included, so a migration that was
killed begins anew. No worker of this release folds the rows meanwhile.
"""

from storage.migrations import online

revision = "0038b"
down_revision = "0038"
branch_labels = None
depends_on = None

LISTS = """
SELECT id FROM lists WHERE EXISTS (
    SELECT FROM subscriptions WHERE list_id = lists.id AND status = 'active'
) OR EXISTS (
    SELECT FROM subscriptions WHERE list_id = lists.id AND status <> 'active'
) ORDER BY id
"""

# An import notes no event for each new member, and old events are gone: a change that no event
# tells of is one of the day on which the record was made. The tier of then is not known, but only
# that of today. Whoever is active has joined once more than they left.
COUNT_BEFORE = """
WITH gone_days AS (
    DELETE FROM member_days WHERE list_id = :key
), gone_deltas AS (
    DELETE FROM member_day_deltas WHERE list_id = :key
), members AS MATERIALIZED (
    SELECT user_id, source, type, created_at, 1 AS active
    FROM subscriptions WHERE list_id = :key AND status = 'active'
    UNION ALL
    SELECT user_id, source, type, created_at, 0
    FROM subscriptions WHERE list_id = :key AND status <> 'active'
), noted AS MATERIALIZED (
    SELECT user_id, created_at, difference FROM (
        SELECT user_id, created_at, CAST(status_after IS NOT DISTINCT FROM 'active' AS int)
            - CAST(status_before IS NOT DISTINCT FROM 'active' AS int) AS difference
        FROM subscription_events WHERE list_id = :key
    ) AS e WHERE difference <> 0
), unnoted AS (
    SELECT m.user_id, m.created_at, m.active - coalesce(n.difference, 0) AS difference
    FROM members AS m LEFT JOIN (
        SELECT user_id, sum(difference) AS difference FROM noted GROUP BY user_id
    ) AS n ON n.user_id = m.user_id
)
INSERT INTO member_day_deltas (list_id, day, source, type, joined, gone, moved_in, moved_out)
SELECT :key, CAST(c.created_at AT TIME ZONE 'UTC' AS date), m.source, m.type,
    sum(greatest(c.difference, 0)), sum(greatest(-c.difference, 0)), 0, 0
FROM (
    SELECT * FROM noted UNION ALL SELECT * FROM unnoted WHERE difference <> 0
) AS c JOIN members AS m ON m.user_id = c.user_id
GROUP BY 2, 3, 4
"""


def upgrade() -> None:
    online.for_each(LISTS, COUNT_BEFORE)


def downgrade() -> None:
    """The rows go with their table."""
