"""oauth

Safe under running code: add before you use, stop using before you remove, and never rewrite or
scan a large table under a lock.
"""

from datetime import datetime

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

NEVER_DELIVERY = "NOT 'delivery' = ANY (scopes)"


def _moment(name: str, *, given: bool = False) -> sa.Column[datetime]:
    kind = sa.DateTime(timezone=True)
    if given:
        return sa.Column(name, kind, server_default=sa.text("now()"), nullable=False)
    return sa.Column(name, kind, nullable=True)


def upgrade() -> None:
    op.create_table(
        "oauth_clients",
        sa.Column("client_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("secret_hmac", sa.LargeBinary(), nullable=True),
        sa.Column("redirect_uris", sa.ARRAY(sa.Text()), nullable=False),
        sa.Column("scopes", sa.ARRAY(sa.Text()), nullable=False),
        _moment("created_at", given=True),
        _moment("revoked_at"),
        sa.CheckConstraint(
            "octet_length(secret_hmac) = 32", name=op.f("ck_oauth_clients_hmac_length")
        ),
        sa.CheckConstraint(NEVER_DELIVERY, name=op.f("ck_oauth_clients_never_delivery")),
        sa.PrimaryKeyConstraint("client_id", name=op.f("pk_oauth_clients")),
    )
    op.create_table(
        "oauth_grants",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("user_id", sa.BigInteger(), nullable=False),
        sa.Column("client_id", sa.String(), nullable=False),
        sa.Column("scopes", sa.ARRAY(sa.Text()), nullable=False),
        _moment("created_at", given=True),
        _moment("updated_at", given=True),
        _moment("revoked_at"),
        sa.CheckConstraint(NEVER_DELIVERY, name=op.f("ck_oauth_grants_never_delivery")),
        sa.ForeignKeyConstraint(
            ["user_id"], ["users.id"], name=op.f("fk_oauth_grants_user_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["client_id"], ["oauth_clients.client_id"], name=op.f("fk_oauth_grants_client_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_oauth_grants")),
    )
    op.create_index(
        "uq_oauth_grants_user_id_client_id_live",
        "oauth_grants",
        ["user_id", "client_id"],
        unique=True,
        postgresql_where=sa.text("revoked_at IS NULL"),
    )
    op.create_index("ix_oauth_grants_user_id", "oauth_grants", ["user_id"])
    op.create_index("ix_oauth_grants_client_id", "oauth_grants", ["client_id"])
    op.create_table(
        "oauth_codes",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("grant_id", sa.BigInteger(), nullable=False),
        sa.Column("secret_hmac", sa.LargeBinary(), nullable=False),
        sa.Column("redirect_uri", sa.String(), nullable=False),
        sa.Column("scopes", sa.ARRAY(sa.Text()), nullable=False),
        sa.Column("challenge", sa.String(), nullable=False),
        _moment("created_at", given=True),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        _moment("used_at"),
        sa.CheckConstraint(
            "octet_length(secret_hmac) = 32", name=op.f("ck_oauth_codes_hmac_length")
        ),
        sa.CheckConstraint(
            "challenge ~ '^[A-Za-z0-9_-]{43}$'", name=op.f("ck_oauth_codes_challenge_form")
        ),
        sa.CheckConstraint(NEVER_DELIVERY, name=op.f("ck_oauth_codes_never_delivery")),
        sa.ForeignKeyConstraint(
            ["grant_id"],
            ["oauth_grants.id"],
            name=op.f("fk_oauth_codes_grant_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_oauth_codes")),
        sa.UniqueConstraint("secret_hmac", name=op.f("uq_oauth_codes_secret_hmac")),
    )
    op.create_index("ix_oauth_codes_grant_id", "oauth_codes", ["grant_id"])
    op.create_index("ix_oauth_codes_expires_at", "oauth_codes", ["expires_at"])
    op.create_table(
        "oauth_tokens",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("grant_id", sa.BigInteger(), nullable=False),
        sa.Column("family", sa.BigInteger(), nullable=False),
        sa.Column("secret_hmac", sa.LargeBinary(), nullable=False),
        sa.Column("scopes", sa.ARRAY(sa.Text()), nullable=False),
        _moment("created_at", given=True),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        _moment("rotated_at"),
        _moment("revoked_at"),
        sa.CheckConstraint(
            "octet_length(secret_hmac) = 32", name=op.f("ck_oauth_tokens_hmac_length")
        ),
        sa.CheckConstraint(
            "kind IN ('access', 'refresh')", name=op.f("ck_oauth_tokens_kind_known")
        ),
        sa.CheckConstraint(
            "rotated_at IS NULL OR kind = 'refresh'",
            name=op.f("ck_oauth_tokens_only_refresh_rotates"),
        ),
        sa.CheckConstraint(NEVER_DELIVERY, name=op.f("ck_oauth_tokens_never_delivery")),
        sa.ForeignKeyConstraint(
            ["grant_id"],
            ["oauth_grants.id"],
            name=op.f("fk_oauth_tokens_grant_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_oauth_tokens")),
        sa.UniqueConstraint("secret_hmac", name=op.f("uq_oauth_tokens_secret_hmac")),
    )
    op.create_index("ix_oauth_tokens_grant_id", "oauth_tokens", ["grant_id"])
    op.create_index("ix_oauth_tokens_family", "oauth_tokens", ["family"])
    op.create_index("ix_oauth_tokens_expires_at", "oauth_tokens", ["expires_at"])
