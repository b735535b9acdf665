"""Delete the mailing and the stated reason of an opt-out when its person is erased.

Release 1.1.0 ignores both columns, and only removes the person's id. A trigger therefore deletes
them. The migration deletes the values that processes of release 1.1.0 left since migration 0136.
"""

from alembic import op

revision = "0144"
down_revision = "0143"
branch_labels = None
depends_on = None

_CLEAR_CAUSE = """
CREATE FUNCTION clear_opt_out_cause() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    NEW.mailing_id = NULL;
    NEW.reason = NULL;
    RETURN NEW;
END
$$;

CREATE TRIGGER opt_outs_clear_cause BEFORE UPDATE OF user_id ON opt_outs
    FOR EACH ROW WHEN (NEW.user_id IS NULL)
    EXECUTE FUNCTION clear_opt_out_cause();
"""


def upgrade() -> None:
    op.execute(_CLEAR_CAUSE)
    op.execute("""
    UPDATE opt_outs SET mailing_id = NULL, reason = NULL
    WHERE user_id IS NULL AND (mailing_id IS NOT NULL OR reason IS NOT NULL)
    """)
