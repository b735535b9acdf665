from typing import Any

from sqlalchemy import ForeignKey, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from models.declarative import CreatedAt, Model, SerialId, UpdatedAt


class Segment(Model):
    """A filter of a list's members that its owner keeps under a name."""

    __tablename__ = "segments"
    __table_args__ = (UniqueConstraint("list_id", "folded"),)

    id: Mapped[SerialId]
    list_id: Mapped[int] = mapped_column(ForeignKey("lists.id"))
    name: Mapped[str]
    # The name without regard to case, as tags have it.
    folded: Mapped[str]
    # As `services.mailing.segments.stored_filters` keeps it.
    filter: Mapped[dict[str, Any]]
    created_at: Mapped[CreatedAt]
    updated_at: Mapped[UpdatedAt]
