"""Second factors of people, and who is an operator.

Safe under running code: add before you use, stop using before you remove, and never rewrite or
scan a large table under a lock.
"""

from datetime import datetime

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    # A constant default is kept in the catalogue: no row is rewritten.
    operator: sa.Column[bool] = sa.Column(
        "is_operator", sa.Boolean(), server_default=sa.false(), nullable=False
    )
    op.add_column("users", operator)
    op.create_table(
        "totp_secrets",
        sa.Column("user_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("wrapped_secret", sa.LargeBinary(), nullable=False),
        sa.Column("wrapped_by", sa.String(), nullable=False),
        sa.Column("last_step", sa.BigInteger(), nullable=False),
        _created_at(),
        _person("totp_secrets"),
        sa.PrimaryKeyConstraint("user_id", name=op.f("pk_totp_secrets")),
    )
    op.create_table(
        "recovery_codes",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("user_id", sa.BigInteger(), nullable=False),
        sa.Column("code_hmac", sa.LargeBinary(), nullable=False),
        _created_at(),
        sa.Column("used_at", MOMENT, nullable=True),
        sa.CheckConstraint(
            "octet_length(code_hmac) = 32", name=op.f("ck_recovery_codes_hmac_length")
        ),
        _person("recovery_codes"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_recovery_codes")),
        sa.UniqueConstraint("code_hmac", name=op.f("uq_recovery_codes_code_hmac")),
    )
    op.create_index(op.f("ix_recovery_codes_user_id"), "recovery_codes", ["user_id"])
    op.create_table(
        "passkeys",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("user_id", sa.BigInteger(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("credential_id", sa.LargeBinary(), nullable=False),
        sa.Column("public_key", sa.LargeBinary(), nullable=False),
        sa.Column("sign_count", sa.BigInteger(), nullable=False),
        _created_at(),
        sa.Column("last_used_at", MOMENT, nullable=True),
        _person("passkeys"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_passkeys")),
        sa.UniqueConstraint("credential_id", name=op.f("uq_passkeys_credential_id")),
    )
    op.create_index(op.f("ix_passkeys_user_id"), "passkeys", ["user_id"])
    op.create_table(
        "spent_proofs",
        sa.Column("proof_hash", sa.LargeBinary(), nullable=False),
        sa.Column("expires_at", MOMENT, nullable=False),
        sa.CheckConstraint(
            "octet_length(proof_hash) = 32", name=op.f("ck_spent_proofs_hash_length")
        ),
        sa.PrimaryKeyConstraint("proof_hash", name=op.f("pk_spent_proofs")),
    )
    op.create_index("ix_spent_proofs_expires_at", "spent_proofs", ["expires_at"])


def downgrade() -> None:
    for table in ("spent_proofs", "passkeys", "recovery_codes", "totp_secrets"):
        op.drop_table(table)
    op.drop_column("users", "is_operator")


def _created_at() -> sa.Column[datetime]:
    return sa.Column("created_at", MOMENT, server_default=sa.text("now()"), nullable=False)


def _person(table: str) -> sa.ForeignKeyConstraint:
    name = op.f(f"fk_{table}_user_id")
    return sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=name, ondelete="CASCADE")
