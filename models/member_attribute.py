"""What an owner keeps of members beside name and address: fields with a type, and tags.

The values stand in ``subscriptions``: fields by the field's id, tags by their ids. So a field or a
tag that gets another name, or ends, rewrites no member.
"""

from datetime import datetime
from enum import StrEnum

from sqlalchemy import CheckConstraint, ForeignKey, Index, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from models.declarative import CreatedAt, Model, SerialId, known


class FieldType(StrEnum):
    TEXT = "text"
    NUMBER = "number"
    DATE = "date"
    BOOLEAN = "boolean"
    CHOICE = "choice"


class MemberField(Model):
    """A field of all lists of one owner. A retired one is shown nowhere; its values stay."""

    __tablename__ = "fields"
    __table_args__ = (
        known("type", FieldType),
        CheckConstraint("key ~ '^[a-z][a-z0-9_]{0,39}$'", name="key_form"),
        CheckConstraint("(type = 'choice') = (cardinality(choices) > 0)", name="choices_of_choice"),
        Index("ix_fields_user_id", "user_id"),
        Index(
            "uq_fields_user_id_key",
            "user_id",
            "key",
            unique=True,
            postgresql_where="retired_at IS NULL",
        ),
    )

    id: Mapped[SerialId]
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"))
    key: Mapped[str]
    label: Mapped[str]
    description: Mapped[str | None]
    type: Mapped[str]
    choices: Mapped[list[str]] = mapped_column(default=list, server_default=text("'{}'"))
    # Whether people may set it themselves, by a form.
    is_public: Mapped[bool] = mapped_column(default=False, server_default=text("false"))
    retired_at: Mapped[datetime | None]
    created_at: Mapped[CreatedAt]


class MemberTag(Model):
    """A word by which an owner groups the members of one list."""

    __tablename__ = "tags"
    __table_args__ = (
        CheckConstraint("char_length(name) BETWEEN 1 AND 40", name="name_bounded"),
        UniqueConstraint("list_id", "folded"),
    )

    id: Mapped[SerialId]
    list_id: Mapped[int] = mapped_column(ForeignKey("lists.id"))
    # As it was first written.
    name: Mapped[str]
    # The name without regard to case. Python folds it: what the database takes for one letter
    # depends on its locale.
    folded: Mapped[str]
    created_at: Mapped[CreatedAt]
