"""Add ix_subscriptions_origin, and limit the size of origins in the consent tables."""

from storage.migrations import online

revision = "0119"
down_revision = "0118"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for table in ("consent_entries", "consent_claims"):
        online.add_constraint(
            table, f"ck_{table}_origin_bounded", "CHECK (octet_length(origin::text) <= 4000)"
        )
    online.create_index(
        "ix_subscriptions_origin",
        "subscriptions",
        "list_id, (casefold(origin::text COLLATE pg_unicode_fast)::jsonb) jsonb_path_ops, "
        "casefold(origin::text COLLATE pg_unicode_fast) gin_trgm_ops",
        where="origin IS NOT NULL",
        method="gin",
    )
