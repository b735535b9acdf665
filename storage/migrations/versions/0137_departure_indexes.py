"""Add indexes for finding members by why they left, and tell bounces from other imported opt-outs.

Releases up to 1.1.0 store the action ``unsubscribed`` for every imported opt-out. Only the opt-out
shows whether the person had complained, or whether a mail had bounced.
"""

from storage.migrations import online

revision = "0137"
down_revision = "0136"
branch_labels = None
depends_on = None

_DEPARTURE = (
    "status_before = 'active' AND (status_after IN ('unsubscribed', 'removed')"
    " AND action <> 'import_undone' OR action IN ('bounced', 'soft_bounced'))"
)
SET_ACTIONS = """
UPDATE subscription_events AS e
SET action = CASE o.source WHEN 'bounce' THEN 'bounced' ELSE 'complained' END
FROM opt_outs AS o
WHERE e.id IN (
    SELECT c.id FROM subscription_events AS c
    JOIN opt_outs AS p ON p.list_id = c.list_id AND p.user_id = c.user_id AND p.kind = 'list'
    WHERE c.via = 'import' AND c.action = 'unsubscribed' AND p.source IN ('bounce', 'complaint')
    LIMIT 50000
) AND o.list_id = e.list_id AND o.user_id = e.user_id AND o.kind = 'list'
"""


def upgrade() -> None:
    online.create_index(
        "ix_subscription_events_departures",
        "subscription_events",
        "list_id, created_at, action, reason, user_id",
        where=_DEPARTURE,
    )
    online.create_index(
        "ix_subscription_events_mailing_id",
        "subscription_events",
        "mailing_id, action, user_id",
        where="mailing_id IS NOT NULL",
    )
    online.create_index("ix_bounces_mailing_id", "bounces", "mailing_id, list_id, user_id")
    online.run_in_batches(SET_ACTIONS)
