"""Two records of one person that become one, and accounts that moved to another address.

Safe under running code: add before you use, stop using before you remove, and never rewrite or
scan a large table under a lock. The release before leaves the jobs and mails of a merge alone,
whose kinds it does not know, and refuses an address that has a record, as it always did.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0043"
down_revision = "0042"
branch_labels = None
depends_on = None

# The role of our processes may add what shows consent and read it. These functions of the owner's
# move it from one record to the other of a merge that is under way, and of no other.
HAND_OVER_ENTRIES = """
CREATE FUNCTION hand_over_consent_entries(merge_id bigint, most integer) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    gone bigint;
    kept bigint;
    given bigint;
BEGIN
    SELECT g.merged_id, g.user_id INTO gone, kept FROM account_merges AS g
    WHERE g.id = merge_id AND g.status IN ('merging', 'merged');
    UPDATE consent_entries SET user_id = kept WHERE id = ANY(ARRAY(
        SELECT id FROM consent_entries WHERE user_id = gone LIMIT most));
    GET DIAGNOSTICS given = ROW_COUNT;
    RETURN given;
END
$$
"""
HAND_OVER_CLAIMS = """
CREATE FUNCTION hand_over_consent_claims(merge_id bigint, of_list bigint) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    gone bigint;
    kept bigint;
    given bigint;
BEGIN
    SELECT b.id, a.id INTO gone, kept
    FROM account_merges AS g
    JOIN subscriptions AS b ON b.user_id = g.merged_id AND b.list_id = of_list
    JOIN subscriptions AS a ON a.user_id = g.user_id AND a.list_id = of_list
    WHERE g.id = merge_id AND g.status IN ('merging', 'merged');
    -- One member has one claim of each kind by an import.
    INSERT INTO consent_claims (import_id, subscription_id, how, occurred_at, ip, url, wording,
        claimed_by, of_list_id)
    SELECT import_id, kept, how, occurred_at, ip, url, wording, claimed_by, of_list_id
    FROM consent_claims WHERE subscription_id = gone AND kept IS NOT NULL
    ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS given = ROW_COUNT;
    DELETE FROM consent_claims WHERE subscription_id = gone AND kept IS NOT NULL;
    RETURN given;
END
$$
"""


def upgrade() -> None:
    op.add_column("users", sa.Column("merged_into", sa.BigInteger(), nullable=True))
    op.create_table(
        "moved_accounts",
        sa.Column("user_id", sa.BigInteger(), autoincrement=False, nullable=False),
        _moment("moved_at", default=True),
        sa.ForeignKeyConstraint(
            ["user_id"], ["users.id"], name=op.f("fk_moved_accounts_user_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("user_id", name=op.f("pk_moved_accounts")),
    )
    _make_merges()
    for function in (HAND_OVER_ENTRIES, HAND_OVER_CLAIMS):
        op.get_bind().exec_driver_sql(function)


def _make_merges() -> None:
    op.create_table(
        "account_merges",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("user_id", sa.BigInteger(), nullable=False),
        sa.Column("merged_id", sa.BigInteger(), nullable=True),
        sa.Column("email", sa.String(), nullable=True),
        sa.Column("former_email", sa.String(), nullable=True),
        sa.Column("status", sa.String(), server_default=sa.text("'asked'"), nullable=False),
        _moment("expires_at"),
        _moment("agreed_at"),
        sa.Column("job_id", sa.BigInteger(), nullable=True),
        sa.Column("stage", sa.String(), nullable=True),
        sa.Column("bookmark", sa.BigInteger(), nullable=True),
        sa.Column(
            "counts", JSONB(none_as_null=True), server_default=sa.text("'{}'"), nullable=False
        ),
        _moment("created_at", default=True),
        _moment("finished_at"),
        sa.CheckConstraint(
            "status IN ('asked', 'agreed', 'merging', 'merged')",
            name=op.f("ck_account_merges_status_known"),
        ),
        sa.CheckConstraint(
            "status = 'asked' OR merged_id IS NOT NULL",
            name=op.f("ck_account_merges_agreed_on_a_record"),
        ),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_account_merges_user_id")),
        sa.ForeignKeyConstraint(
            ["merged_id"], ["users.id"], name=op.f("fk_account_merges_merged_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_account_merges")),
    )
    op.create_index("ix_account_merges_user_id", "account_merges", ["user_id"])
    op.create_index(
        "uq_account_merges_asked",
        "account_merges",
        ["user_id"],
        unique=True,
        postgresql_where=sa.text("status = 'asked'"),
    )
    op.create_index("uq_account_merges_merged_id", "account_merges", ["merged_id"], unique=True)
    op.create_index("ix_account_merges_expires_at", "account_merges", ["expires_at"])


def _moment(name: str, *, default: bool = False) -> sa.Column[object]:
    made = sa.text("now()") if default else None
    return sa.Column(name, sa.DateTime(timezone=True), server_default=made, nullable=not default)


def downgrade() -> None:
    for function in (
        "hand_over_consent_claims(bigint, bigint)",
        "hand_over_consent_entries(bigint, integer)",
    ):
        op.execute(f"DROP FUNCTION {function}")
    op.drop_table("account_merges")
    op.drop_table("moved_accounts")
    op.drop_column("users", "merged_into")
