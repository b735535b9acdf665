"""Add the columns origin to subscriptions, consent_entries and consent_claims.

Release 1.0.0 doesn't use the columns ``origin``, so the members that it adds have no origin. When
release 1.0.0 erases a person, the person's consent entries are deleted, and a trigger clears the
origin of the person's subscriptions.
"""

from alembic import op

revision = "0118"
down_revision = "0117"
branch_labels = None
depends_on = None


_CLEAR_ORIGIN = """
CREATE FUNCTION clear_origin() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    NEW.origin = NULL;
    RETURN NEW;
END
$$;

CREATE TRIGGER subscriptions_clear_origin BEFORE UPDATE OF email ON subscriptions
    FOR EACH ROW WHEN (NEW.email IS NULL AND NEW.origin IS NOT NULL)
    EXECUTE FUNCTION clear_origin();
"""


def upgrade() -> None:
    for table in ("subscriptions", "consent_entries", "consent_claims"):
        op.execute(f"ALTER TABLE {table} ADD COLUMN origin jsonb")
    op.execute(_CLEAR_ORIGIN)
