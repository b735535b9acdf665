"""Counts the bytes that owners had stored before triggers counted them.

Apart from the migration that makes the triggers, whose locks writers would otherwise wait for. Safe
under running code: add before you use, stop using before you remove, and never rewrite or scan a
large table under a lock.
"""

from alembic import op

revision = "0012b"
down_revision = "0012"
branch_labels = None
depends_on = None

# In one snapshot: what is stored, less what the triggers have counted of it so far.
COUNT_BEFORE = """
INSERT INTO storage_uses (user_id, bytes)
SELECT user_id, sum(bytes) FROM (
    SELECT user_id, CASE status WHEN 2 THEN size WHEN 3 THEN 0 ELSE original_size END AS bytes
    FROM attachments
    UNION ALL
    SELECT user_id, size + chunk_bytes FROM imports WHERE finished_at IS NULL
    UNION ALL
    SELECT user_id, coalesce(size, 0) FROM exports
    WHERE kind = 'members' AND files_removed_at IS NULL
    UNION ALL
    SELECT user_id, -bytes FROM storage_uses
) AS uncounted
GROUP BY user_id HAVING sum(bytes) <> 0 ORDER BY user_id
ON CONFLICT (user_id) DO UPDATE SET bytes = storage_uses.bytes + excluded.bytes
"""


def upgrade() -> None:
    op.execute(COUNT_BEFORE)


def downgrade() -> None:
    """The rows go with their table."""
