"""Add the times at which webhooks and senders got their state, and dismissed warnings of senders.

Triggers also record the changes that release 1.1.0 makes. Earlier changes have no time.
"""

from alembic import op

revision = "0143"
down_revision = "0142"
branch_labels = None
depends_on = None

_NOTE_STATE = """
CREATE FUNCTION note_state() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    NEW.state_since = now();
    RETURN NEW;
END
$$;

CREATE TRIGGER senders_note_state BEFORE UPDATE OF state, warnings ON senders
    FOR EACH ROW WHEN (NEW.state <> OLD.state OR NOT NEW.warnings <@ OLD.warnings)
    EXECUTE FUNCTION note_state();

CREATE TRIGGER webhook_endpoints_note_state BEFORE UPDATE OF state ON webhook_endpoints
    FOR EACH ROW WHEN (NEW.state <> OLD.state)
    EXECUTE FUNCTION note_state();
"""


def upgrade() -> None:
    op.execute("ALTER TABLE senders ADD COLUMN dismissed_at timestamp with time zone")
    for table in ("senders", "webhook_endpoints"):
        op.execute(f"ALTER TABLE {table} ADD COLUMN state_since timestamp with time zone")
    op.execute(_NOTE_STATE)
