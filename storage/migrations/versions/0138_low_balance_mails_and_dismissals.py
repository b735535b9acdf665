"""Add columns for mails about low balances, and for dismissed warnings about failures.

Release 1.1.0 ignores the columns. A trigger sets ``credit_accounts.low_mail_due`` when a charge of
any release causes the event ``credits.low``. Balances that are already low cause no mail.
"""

from alembic import op

revision = "0138"
down_revision = "0137"
branch_labels = None
depends_on = None

_NOTE_LOW_BALANCE = """
CREATE FUNCTION note_low_balance() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    NEW.low_mail_due = true;
    RETURN NEW;
END
$$;

CREATE TRIGGER credit_accounts_note_low_balance BEFORE UPDATE OF low_told ON credit_accounts
    FOR EACH ROW WHEN (NEW.low_told AND NOT OLD.low_told)
    EXECUTE FUNCTION note_low_balance();
"""


def upgrade() -> None:
    op.execute("ALTER TABLE credit_accounts ADD COLUMN low_mail_due boolean DEFAULT false NOT NULL")
    # The index is empty, because the column is false in all rows.
    op.execute(
        "CREATE INDEX ix_credit_accounts_low_mail_due ON credit_accounts (user_id)"
        " WHERE low_mail_due"
    )
    op.execute(_NOTE_LOW_BALANCE)
    for table in ("imports", "webhook_endpoints"):
        op.execute(f"ALTER TABLE {table} ADD COLUMN dismissed_at timestamp with time zone")
