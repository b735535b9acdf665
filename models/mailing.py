"""Mailings, and the figures that reports of senders add to each mailing."""

from datetime import datetime

from sqlalchemy import ForeignKey, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from models.declarative import Model


class Mailing(Model):
    """A delivery roster, and the mail that a sender makes from the roster.

    Each figure counts members, and each member once.
    """

    __tablename__ = "mailings"
    __table_args__ = (
        Index("ix_mailings_list_id_id", "list_id", text("id DESC")),
        Index(None, "created_at"),
    )

    # The id of the job that exported the roster. Delivery ids contain the mailing's id.
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    list_id: Mapped[int] = mapped_column(ForeignKey("lists.id"))
    label: Mapped[str | None]
    created_at: Mapped[datetime]
    # The number of rows in the roster.
    rows: Mapped[int]
    delivered: Mapped[int] = mapped_column(default=0, server_default="0")
    hard_bounced: Mapped[int] = mapped_column(default=0, server_default="0")
    soft_bounced: Mapped[int] = mapped_column(default=0, server_default="0")
    blocked: Mapped[int] = mapped_column(default=0, server_default="0")
    complained: Mapped[int] = mapped_column(default=0, server_default="0")
    unsubscribed: Mapped[int] = mapped_column(default=0, server_default="0")
    opened: Mapped[int] = mapped_column(default=0, server_default="0")
    machine_opened: Mapped[int] = mapped_column(default=0, server_default="0")
    clicked: Mapped[int] = mapped_column(default=0, server_default="0")
