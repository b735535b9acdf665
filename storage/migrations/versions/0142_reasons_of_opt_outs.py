"""Add the stated reason to opt-outs, and name imported bounces and complaints of release 1.1.0.

Release 1.1.0 ignores the column. Its workers therefore lose a reason that was stated while a bulk
action locked the list. A trigger names the departures that its workers import from now on.
"""

from alembic import op

revision = "0142"
down_revision = "0141"
branch_labels = None
depends_on = None

_NAME_IMPORTED_DEPARTURE = """
CREATE FUNCTION name_imported_departure() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    NEW.action = coalesce((
        SELECT CASE source WHEN 'bounce' THEN 'bounced' ELSE 'complained' END FROM opt_outs
        WHERE list_id = NEW.list_id AND user_id = NEW.user_id AND kind = 'list'
            AND source IN ('bounce', 'complaint')
    ), NEW.action);
    RETURN NEW;
END
$$;

CREATE TRIGGER subscription_events_name_imported_departure BEFORE INSERT ON subscription_events
    FOR EACH ROW WHEN (NEW.via = 'import' AND NEW.action = 'unsubscribed')
    EXECUTE FUNCTION name_imported_departure();
"""


def upgrade() -> None:
    op.execute("ALTER TABLE opt_outs ADD COLUMN reason varchar")
    op.execute(_NAME_IMPORTED_DEPARTURE)
