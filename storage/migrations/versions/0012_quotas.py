"""What owners have of what their plans bound: stored bytes, calls of the composer.

Safe under running code: add before you use, stop using before you remove, and never rewrite or
scan a large table under a lock.
"""

from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

# The bytes of a row's objects, and the columns that decide them. A failed upload keeps its original
# for some days at most; the file of an import goes when the import ends; a roster is the sender's.
COUNTED = {
    "attachments": (
        "CASE {row}.status WHEN 2 THEN {row}.size WHEN 3 THEN 0 ELSE {row}.original_size END",
        "status, size",
    ),
    "imports": (
        "CASE WHEN {row}.finished_at IS NULL THEN {row}.size + {row}.chunk_bytes ELSE 0 END",
        "finished_at, chunk_bytes",
    ),
    "exports": (
        "CASE WHEN {row}.kind = 'members' AND {row}.files_removed_at IS NULL THEN coalesce({row}.size, 0) ELSE 0 END",
        "size, files_removed_at",
    ),
}
COUNT = """
CREATE FUNCTION count_stored_{table}() RETURNS trigger LANGUAGE plpgsql AS $$
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


def upgrade() -> None:
    op.execute(
        "CREATE TABLE storage_uses ("
        " user_id bigint CONSTRAINT pk_storage_uses PRIMARY KEY"
        " CONSTRAINT fk_storage_uses_user_id REFERENCES users (id) ON DELETE CASCADE,"
        " bytes bigint NOT NULL)"
    )
    op.execute(
        "CREATE TABLE composer_uses ("
        " user_id bigint CONSTRAINT pk_composer_uses PRIMARY KEY"
        " CONSTRAINT fk_composer_uses_user_id REFERENCES users (id) ON DELETE CASCADE,"
        " day date NOT NULL, calls bigint NOT NULL)"
    )
    op.execute(
        "ALTER TABLE imports"
        " ADD COLUMN chunk_bytes bigint DEFAULT 0 NOT NULL,"
        " ADD COLUMN over_quota bigint DEFAULT 0 NOT NULL,"
        " ADD COLUMN by_operator boolean DEFAULT false NOT NULL"
    )
    op.execute("ALTER TABLE exports ADD COLUMN by_operator boolean DEFAULT false NOT NULL")
    for table, (expression, columns) in COUNTED.items():
        new, old = expression.format(row="NEW"), expression.format(row="OLD")
        op.execute(COUNT.format(table=table, new=new, old=old))
        op.execute(
            f"CREATE TRIGGER {table}_count_stored"
            f" AFTER INSERT OR DELETE OR UPDATE OF {columns} ON {table}"
            f" FOR EACH ROW EXECUTE FUNCTION count_stored_{table}()"
        )
    op.execute("CREATE INDEX ix_lists_open ON lists (user_id) WHERE archived_at IS NULL")


def downgrade() -> None:
    op.drop_index("ix_lists_open", "lists")
    for table in COUNTED:
        op.execute(f"DROP TRIGGER {table}_count_stored ON {table}")
        op.execute(f"DROP FUNCTION count_stored_{table}()")
    op.drop_column("exports", "by_operator")
    op.drop_column("imports", "by_operator")
    op.drop_column("imports", "over_quota")
    op.drop_column("imports", "chunk_bytes")
    op.drop_table("composer_uses")
    op.drop_table("storage_uses")
