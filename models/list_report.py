from sqlalchemy import ForeignKey, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from models.declarative import CreatedAt, Model, SerialId


class ListReport(Model):
    """A person's word that they did not ask for a list; one for each person and list."""

    __tablename__ = "list_reports"
    __table_args__ = (UniqueConstraint("list_id", "user_id"),)

    id: Mapped[SerialId]
    list_id: Mapped[int] = mapped_column(ForeignKey("lists.id"))
    # NULL after the person was erased: the report still counts.
    user_id: Mapped[int | None] = mapped_column(
        ForeignKey("users.id", ondelete="SET NULL"), index=True
    )
    created_at: Mapped[CreatedAt] = mapped_column(index=True)
