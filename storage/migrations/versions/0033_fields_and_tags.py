"""Fields of an owner, tags of a list, and what a subscription has of both.

The new columns have constants as defaults or none, so no row is rewritten. The release before goes
on writing rows without them.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0033"
down_revision = "0032c"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _make_fields()
    op.create_table(
        "tags",
        _id(),
        sa.Column("list_id", sa.BigInteger(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("folded", sa.String(), nullable=False),
        _created_at(),
        sa.CheckConstraint("char_length(name) BETWEEN 1 AND 40", name=op.f("ck_tags_name_bounded")),
        sa.ForeignKeyConstraint(["list_id"], ["lists.id"], name=op.f("fk_tags_list_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tags")),
        sa.UniqueConstraint("list_id", "folded", name=op.f("uq_tags_list_id_folded")),
    )
    empty = sa.text("'{}'")
    for column in (
        sa.Column("fields", _document(), server_default=empty, nullable=False),
        sa.Column("tag_ids", sa.ARRAY(sa.BigInteger()), server_default=empty, nullable=False),
        sa.Column("joined_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("submitted", _document(), nullable=True),
    ):
        op.add_column("subscriptions", column)
    op.add_column("mailed_links", sa.Column("submitted", _document(), nullable=True))
    op.add_column("subscription_events", sa.Column("changed", sa.ARRAY(sa.Text()), nullable=True))


def downgrade() -> None:
    op.drop_column("subscription_events", "changed")
    op.drop_column("mailed_links", "submitted")
    for name in ("submitted", "joined_at", "tag_ids", "fields"):
        op.drop_column("subscriptions", name)
    op.drop_table("tags")
    op.drop_table("fields")


def _id() -> sa.Column[int]:
    return sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False)


def _created_at() -> sa.Column[object]:
    kind = sa.DateTime(timezone=True)
    return sa.Column("created_at", kind, server_default=sa.text("now()"), nullable=False)


def _document() -> postgresql.JSONB[object]:
    return postgresql.JSONB(none_as_null=True, astext_type=sa.Text())


def _make_fields() -> None:
    op.create_table(
        "fields",
        _id(),
        sa.Column("user_id", sa.BigInteger(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("label", sa.String(), nullable=False),
        sa.Column("description", sa.String(), nullable=True),
        sa.Column("type", sa.String(), nullable=False),
        sa.Column("choices", sa.ARRAY(sa.Text()), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("is_public", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("retired_at", sa.DateTime(timezone=True), nullable=True),
        _created_at(),
        sa.CheckConstraint(
            "type IN ('text', 'number', 'date', 'boolean', 'choice')",
            name=op.f("ck_fields_type_known"),
        ),
        sa.CheckConstraint("key ~ '^[a-z][a-z0-9_]{0,39}$'", name=op.f("ck_fields_key_form")),
        sa.CheckConstraint(
            "(type = 'choice') = (cardinality(choices) > 0)",
            name=op.f("ck_fields_choices_of_choice"),
        ),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_fields_user_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_fields")),
    )
    op.create_index("ix_fields_user_id", "fields", ["user_id"])
    op.create_index(
        "uq_fields_user_id_key",
        "fields",
        ["user_id", "key"],
        unique=True,
        postgresql_where=sa.text("retired_at IS NULL"),
    )
