"""sessions

Safe under running code: add before you use, stop using before you remove, and never rewrite or
scan a large table under a lock.
"""

from datetime import datetime

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

NOW = sa.text("now()")


def upgrade() -> None:
    op.create_table(
        "user_sessions",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("user_id", sa.BigInteger(), nullable=False),
        sa.Column("secret_hmac", sa.LargeBinary(), nullable=False),
        sa.Column("browser", sa.String(), nullable=True),
        _moment("created_at", default=True),
        _moment("last_used_at", default=True),
        _moment("expires_at"),
        _moment("ended_at", nullable=True),
        sa.CheckConstraint(
            "octet_length(secret_hmac) = 32", name=op.f("ck_user_sessions_hmac_length")
        ),
        sa.ForeignKeyConstraint(
            ["user_id"], ["users.id"], name=op.f("fk_user_sessions_user_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_user_sessions")),
        sa.UniqueConstraint("secret_hmac", name=op.f("uq_user_sessions_secret_hmac")),
    )
    op.create_index(op.f("ix_user_sessions_user_id"), "user_sessions", ["user_id"])
    op.create_index(op.f("ix_user_sessions_expires_at"), "user_sessions", ["expires_at"])
    op.create_table(
        "login_attempts",
        sa.Column("subject", sa.LargeBinary(), nullable=False),
        sa.Column("attempts", sa.BigInteger(), nullable=False),
        _moment("paused_until"),
        _moment("tried_at"),
        sa.CheckConstraint(
            "octet_length(subject) = 32", name=op.f("ck_login_attempts_hmac_length")
        ),
        sa.PrimaryKeyConstraint("subject", name=op.f("pk_login_attempts")),
    )
    op.create_index(op.f("ix_login_attempts_tried_at"), "login_attempts", ["tried_at"])
    op.create_table(
        "account_mails",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("email", sa.String(), nullable=False),
        sa.Column("user_id", sa.BigInteger(), nullable=True),
        _moment("created_at", default=True),
        _moment("sent_at", nullable=True),
        sa.ForeignKeyConstraint(
            ["user_id"], ["users.id"], name=op.f("fk_account_mails_user_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_account_mails")),
    )
    op.create_index("ix_account_mails_email_kind", "account_mails", ["email", "kind"])
    op.create_index(op.f("ix_account_mails_user_id"), "account_mails", ["user_id"])
    op.create_index(op.f("ix_account_mails_created_at"), "account_mails", ["created_at"])
    _let_links_be_about_addresses()


def _let_links_be_about_addresses() -> None:
    op.add_column("mailed_links", sa.Column("email", sa.String(), nullable=True))
    op.alter_column("mailed_links", "user_id", existing_type=sa.BigInteger(), nullable=True)
    op.execute(
        "ALTER TABLE mailed_links ADD CONSTRAINT ck_mailed_links_about_somebody"
        " CHECK (user_id IS NOT NULL OR email IS NOT NULL) NOT VALID"
    )
    # Scans under a lock that lets others read and write.
    op.execute("ALTER TABLE mailed_links VALIDATE CONSTRAINT ck_mailed_links_about_somebody")
    op.create_index(op.f("ix_mailed_links_email"), "mailed_links", ["email"])


def downgrade() -> None:
    op.execute("DELETE FROM mailed_links WHERE user_id IS NULL")
    op.drop_index(op.f("ix_mailed_links_email"), table_name="mailed_links")
    op.drop_constraint("ck_mailed_links_about_somebody", "mailed_links", type_="check")
    op.alter_column("mailed_links", "user_id", existing_type=sa.BigInteger(), nullable=False)
    op.drop_column("mailed_links", "email")
    op.drop_table("account_mails")
    op.drop_table("login_attempts")
    op.drop_table("user_sessions")


def _moment(name: str, *, nullable: bool = False, default: bool = False) -> sa.Column[datetime]:
    return sa.Column(
        name,
        sa.DateTime(timezone=True),
        server_default=NOW if default else None,
        nullable=nullable,
    )
