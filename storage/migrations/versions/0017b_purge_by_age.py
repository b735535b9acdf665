"""The purge of events by an age that the operator chooses, a year at least.

Safe under running code: add before you use, stop using before you remove, and never rewrite or
scan a large table under a lock.
"""

from alembic import op

revision = "0017b"
down_revision = "0017"
branch_labels = None
depends_on = None

# The release before calls the function of one argument, which stays. The trigger keeps events that
# are younger than a year from this one too.
PURGE_EVENTS = """
CREATE FUNCTION purge_events(most integer, days integer) RETURNS bigint LANGUAGE sql
SECURITY DEFINER SET search_path = public, pg_temp AS $$
    WITH purged AS (
        DELETE FROM events WHERE ctid = ANY(ARRAY(
            SELECT ctid FROM events
            WHERE occurred_at < now() - interval '1 year'
                AND occurred_at < now() - make_interval(days => days)
            ORDER BY occurred_at LIMIT most FOR UPDATE SKIP LOCKED
        )) RETURNING 1
    )
    SELECT count(*) FROM purged
$$
"""


def upgrade() -> None:
    op.execute(PURGE_EVENTS)


def downgrade() -> None:
    op.execute("DROP FUNCTION purge_events(integer, integer)")
