"""Mailings to lists, with counters of delivered, bounced and opened mails."""

from datetime import datetime

from sqlalchemy import ForeignKey, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from core.ids import PersonId
from models.declarative import CreatedAt, Model


class Mailing(Model):
    """A mailing begins when the list's roster is exported, or when its first delivery is requested.

    The roster is the file of recipients for the program that sends the mails. Each counter, such as
    `delivered`, counts a member at most once.
    """

    __tablename__ = "mailings"
    __table_args__ = (
        Index("ix_mailings_list_id_id", "list_id", text("id DESC")),
        Index(None, "created_at"),
        # Requests for deliveries with one label on one day in UTC belong to one mailing.
        Index(
            "ix_mailings_deliveries",
            "list_id",
            "requested_label",
            text("((created_at AT TIME ZONE 'UTC')::date)"),
            unique=True,
            postgresql_where="requested_label IS NOT NULL",
        ),
    )

    # The id of the job that exported the roster, or a number that no job has. Each delivery id of
    # the mailing contains this id.
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    list_id: Mapped[int] = mapped_column(ForeignKey("lists.id"))
    label: Mapped[str | None]
    # The label in the requests for deliveries, which stays if the owner renames the mailing. NULL
    # for rosters.
    requested_label: Mapped[str | None]
    created_at: Mapped[datetime]
    # The number of recipients in the roster, or of different members in the deliveries.
    rows: Mapped[int]
    # The number of recipients whose engagement the list recorded when they were exported. NULL for
    # mailings of release 1.1.0.
    measured: Mapped[int | None]
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
    """Records that a member was counted, so that a repeated report or delivery counts once."""

    __tablename__ = "mailing_marks"
    # Pressroom uses this index to find and delete old rows of this table.
    __table_args__ = (Index(None, "created_at"),)

    # The primary key starts with the user id, so that an erasure finds the person's rows quickly.
    user_id: Mapped[PersonId] = mapped_column(primary_key=True, autoincrement=False)
    list_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    # The id of the mailing, or a negative number if the report contains no delivery id. The
    # negative number is a hash of the provider's message id or, if the report contains no message
    # id either, of the event's date.
    mailing_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    # The name of the column of `mailings` that counts the member, such as `hard_bounced`. The mark
    # of a delivery is `rows`.
    kind: Mapped[str] = mapped_column(primary_key=True)
    created_at: Mapped[CreatedAt]
    # When the event happened according to the sender. NULL in rows of release 1.1.0.
    occurred_at: Mapped[datetime | None]
