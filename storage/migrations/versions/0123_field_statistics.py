"""Collect statistics on the values of member fields, so that Postgres finds rare values fast.

Postgres doesn't use the statistics of a partial index such as ``ix_subscriptions_fields``. Without
statistics it assumes that 1 % of all members have a searched value. It then also reads the list's
part of ``ix_subscriptions_words``, which takes longer in a larger list.
"""

from alembic import op

revision = "0123"
down_revision = "0122"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "CREATE STATISTICS subscriptions_fields"
        " ON (CAST(casefold(CAST(fields AS text) COLLATE pg_unicode_fast) AS jsonb))"
        " FROM subscriptions"
    )
    # ANALYZE reads a sample of fixed size, so its duration doesn't depend on the number of members.
    op.execute("ANALYZE subscriptions")
