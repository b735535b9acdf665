"""The whole database: tables from the models, then functions, triggers and first rows.

Until 1.0.0 this migration is edited in place, with its number raised: a database that an earlier
text made is refused. At 1.0.0 it freezes its own copy of the tables and of ``storage/schema``, and
what changes from then on is a migration after it.
"""

from alembic import op

from models import Model
from storage.migrations import extensions
from storage.schema import functions

revision = "0106"
down_revision = None
branch_labels = None
depends_on = None

TRANSITIONS = {
    "created": ("pending", "failed"),
    "pending": ("paid", "paid_unclaimed", "failed", "expired", "review"),
    "expired": ("paid", "paid_unclaimed", "review"),
    "paid_unclaimed": ("paid", "refunded", "disputed", "review"),
    "paid": ("refunded", "disputed"),
    "disputed": ("paid", "refunded"),
    "review": ("paid", "paid_unclaimed", "refunded"),
    # A refund that failed leaves the money with the seller, so the order counts as paid again.
    "refunded": ("paid", "paid_unclaimed"),
    # An order that failed and was paid all the same goes to review.
    "failed": ("review",),
}

# Deleted or changed all the time: dead rows are looked at by each index scan until a vacuum.
BUSY = "autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000"
# Changed again and again, mostly in columns that no index has: the new version of a row stays in
# its page, where the next one takes its place without a vacuum.
HOT = "autovacuum_vacuum_scale_factor = 0.05, fillfactor = 80"
LARGE = "autovacuum_vacuum_scale_factor = 0.02"
# What only grows keeps the server's own settings.
STORAGE = {
    # Claimed, renewed each second, and ended: five versions of each row.
    "jobs": f"{LARGE}, autovacuum_vacuum_threshold = 1000",
    "idempotency_records": BUSY,
    "subscriber_deltas": BUSY,
    "member_day_deltas": BUSY,
    "account_mails": BUSY,
    "mailed_links": BUSY,
    "object_removals": BUSY,
    "mail_counts": BUSY,
    "oauth_codes": BUSY,
    "oauth_tokens": BUSY,
    "login_attempts": f"{BUSY}, fillfactor = 80",
    "composer_uses": f"{BUSY}, fillfactor = 80",
    "maintenance": f"{BUSY}, fillfactor = 50",
    "subscriber_counts": HOT,
    "member_days": HOT,
    "storage_uses": HOT,
    "credit_accounts": HOT,
    "user_sessions": HOT,
    "imports": HOT,
    "users": LARGE,
    "subscriptions": LARGE,
    "webhook_deliveries": LARGE,
    "subscription_events": LARGE,
    "feed_events": LARGE,
    "import_changes": LARGE,
    "bulk_changes": LARGE,
    # Changed with each delivery.
    "webhook_endpoints": "fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05",
    # Emptied all the time.
    "departures": "autovacuum_vacuum_scale_factor = 0.01",
}
# Triggers keep these keys: check_new_subscriptions.sql says why.
KEPT_BY_TRIGGERS = ("list_id", "user_id", "import_id")


def upgrade() -> None:
    extensions.require("pg_trgm")
    connection = op.get_bind()
    # A function may use what a later statement makes.
    connection.exec_driver_sql("SET LOCAL check_function_bodies = off")
    texts = functions()
    connection.exec_driver_sql(texts.pop("feed_place"))  # the default of a column
    connection.exec_driver_sql(texts.pop("network_of_ip"))  # a part of an index
    Model.metadata.create_all(connection, checkfirst=False)
    for text in texts.values():
        connection.exec_driver_sql(text, execution_options={"no_parameters": True})
    for table, parameters in STORAGE.items():
        op.execute(f"ALTER TABLE {table} SET ({parameters})")
    for column in KEPT_BY_TRIGGERS:
        name = f"fk_subscriptions_{column}"
        op.execute(f"ALTER TABLE subscriptions ALTER CONSTRAINT {name} NOT ENFORCED")
    op.execute("INSERT INTO feed_offsets (id, places) VALUES (1, 0)")
    for before, following in TRANSITIONS.items():
        for after in following:
            op.execute(f"INSERT INTO payment_order_transitions VALUES ('{before}', '{after}')")
