"""When each table is vacuumed, and the room that pages keep for new versions of their rows.

A table whose rows change often is vacuumed after a hundredth of it changed, and has the room. What
only grows keeps the server's own settings.
"""

from alembic import op

revision = "0026f"
down_revision = "0026e"
branch_labels = None
depends_on = None

# Deleted or changed all the time: dead rows are looked at by each index scan until a vacuum.
BUSY = "autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000"
# Changed again and again, mostly in columns that no index has: the new version of a row stays in
# its page, where the next one takes its place without a vacuum.
HOT = "autovacuum_vacuum_scale_factor = 0.05, fillfactor = 80"

PARAMETERS = {
    # Claimed, renewed each second, and ended: five versions of each row.
    "jobs_p0": "autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000",
    "idempotency_records": BUSY,
    "subscriber_deltas": BUSY,
    "account_mails": BUSY,
    "mailed_links": BUSY,
    "object_removals": BUSY,
    "mail_counts": BUSY,
    "oauth_codes": BUSY,
    "oauth_tokens": BUSY,
    "login_attempts": f"{BUSY}, fillfactor = 80",
    "composer_uses": f"{BUSY}, fillfactor = 80",
    "upkeep": f"{BUSY}, fillfactor = 50",
    "subscriber_counts": HOT,
    "storage_uses": HOT,
    "credit_accounts": HOT,
    "user_sessions": HOT,
    "users": "autovacuum_vacuum_scale_factor = 0.02",
    "subscriptions": "autovacuum_vacuum_scale_factor = 0.02",
    "imports": HOT,
}


def upgrade() -> None:
    for table, parameters in PARAMETERS.items():
        op.execute(f"ALTER TABLE {table} SET ({parameters})")


def downgrade() -> None:
    for table, parameters in PARAMETERS.items():
        names = ", ".join(each.partition(" =")[0] for each in parameters.split(", "))
        op.execute(f"ALTER TABLE {table} RESET ({names})")
