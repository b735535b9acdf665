"""Renditions of attachments, counted among what their owner stores, and the owner's words for them.

Safe under running code: add before you use, stop using before you remove, and never rewrite or
scan a large table under a lock.
"""

from alembic import op

revision = "0039"
down_revision = "0038e"
branch_labels = None
depends_on = None

# The bytes of a row's objects. A failed upload keeps its original for some days at most.
BEFORE = "CASE {row}.status WHEN 2 THEN {row}.size WHEN 3 THEN 0 ELSE {row}.original_size END"
WITH_RENDITIONS = BEFORE.replace(
    "THEN {row}.size",
    "THEN {row}.size + coalesce((SELECT sum((each ->> 'size')::bigint)"
    " FROM jsonb_array_elements({row}.renditions) AS each), 0)",
)
COUNT = """
CREATE OR REPLACE FUNCTION count_stored_attachments() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    owner bigint;
    difference bigint := 0;
BEGIN
    IF TG_OP <> 'INSERT' THEN
        owner := OLD.user_id;
        difference := -({old});
    END IF;
    IF TG_OP <> 'DELETE' THEN
        owner := NEW.user_id;
        difference := difference + ({new});
    END IF;
    IF difference <> 0 THEN
        INSERT INTO storage_uses (user_id, bytes) VALUES (owner, difference)
        ON CONFLICT (user_id) DO UPDATE SET bytes = storage_uses.bytes + excluded.bytes;
    END IF;
    RETURN NULL;
END
$$
"""
TRIGGER = (
    "CREATE OR REPLACE TRIGGER attachments_count_stored"
    " AFTER INSERT OR DELETE OR UPDATE OF {columns} ON attachments"
    " FOR EACH ROW EXECUTE FUNCTION count_stored_attachments()"
)


def upgrade() -> None:
    op.execute(
        "ALTER TABLE attachments"
        " ADD COLUMN renditions jsonb,"
        " ADD COLUMN alt_text varchar,"
        " ADD COLUMN title varchar,"
        " ADD COLUMN tags text[] DEFAULT '{}' NOT NULL"
    )
    _count(WITH_RENDITIONS, "status, size, renditions")


def downgrade() -> None:
    # Counted by the trigger for the last time.
    op.execute("UPDATE attachments SET renditions = NULL WHERE renditions IS NOT NULL")
    _count(BEFORE, "status, size")
    for column in ("tags", "title", "alt_text", "renditions"):
        op.drop_column("attachments", column)


def _count(expression: str, columns: str) -> None:
    new, old = expression.format(row="NEW"), expression.format(row="OLD")
    op.execute(COUNT.format(new=new, old=old))
    op.execute(TRIGGER.format(columns=columns))
