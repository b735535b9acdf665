"""Mailings, and the figures that reports of senders add to each mailing."""

from datetime import datetime

from sqlalchemy import ForeignKey, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from models.declarative import CreatedAt, Model


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


class MailingMark(Model):
    """A row that makes a report count once per member, mailing and kind."""

    __tablename__ = "mailing_marks"
    # Retention reads the oldest marks in this index.
    __table_args__ = (Index(None, "created_at"),)

    # The user id comes first, so that the erasure of a person finds the person's marks.
    user_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    list_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    # The id of the mailing. If a report names no mailing, a negative number that the provider's
    # message id or the day yields.
    mailing_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    # The name of a figure of ``Mailing``, such as `hard_bounced`.
    kind: Mapped[str] = mapped_column(primary_key=True)
    created_at: Mapped[CreatedAt]
