"""Keep release 1.0.0 from importing a file without the owner's status_values and encoding.

Release 1.0.0 ignores both columns, so it would add people whom the owner has marked as
unsubscribed.
"""

from alembic import op

revision = "0122"
down_revision = "0121"
branch_labels = None
depends_on = None


_REQUIRE_IMPORT_OPTIONS = """
CREATE FUNCTION require_import_options() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    RAISE serialization_failure USING
        MESSAGE = format('import %s needs a worker that reads all of its options', NEW.id);
END
$$;

CREATE TRIGGER imports_require_options BEFORE UPDATE OF is_split ON imports
    FOR EACH ROW WHEN (
        NEW.is_split AND NOT OLD.is_split
        AND (NEW.status_values IS NOT NULL OR NEW.encoding IS NOT NULL)
        AND NOT coalesce(NEW.description ? 'sheet', false)
    )
    EXECUTE FUNCTION require_import_options();
"""


def upgrade() -> None:
    op.execute(_REQUIRE_IMPORT_OPTIONS)
