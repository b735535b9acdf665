"""Senders and their reports.

A sender is a registered source of reports on list mail, such as a mail provider that posts bounces.
"""

from datetime import datetime
from enum import StrEnum

from sqlalchemy import CheckConstraint, ForeignKey, Index, SmallInteger, func, text
from sqlalchemy.orm import Mapped, mapped_column

from models.declarative import CreatedAt, Model, SerialId, UpdatedAt, allow_values


class SenderState(StrEnum):
    # No report has arrived since the sender was created.
    WAITING = "waiting"
    WORKING = "working"
    # Many requests were rejected within an hour, the subscription to the topic ended, or no report
    # arrived after a large mailing. The sender's `warnings` contain the reason.
    FAILING = "failing"
    # All requests of the sender are rejected. Either the sender's API key expired, or the owner
    # paused the sender.
    PAUSED = "paused"


class ReportOutcome(StrEnum):
    """The effect of a report."""

    # The report changed something.
    APPLIED = "applied"
    # A report on the same event was counted before.
    DUPLICATE = "duplicate"
    # The event happened before the person last joined the list, came back or turned mail on.
    STALE = "stale"
    # The mailing is older than 30 days.
    LATE = "late"
    # Pressroom doesn't record opens and clicks.
    OFF = "off"
    # Events of this type have no effect in Pressroom.
    IGNORED = "ignored"
    # No member of a covered list was found for the report.
    UNMATCHED = "unmatched"
    # Pressroom can't read the event.
    INVALID = "invalid"


class Sender(Model):
    """A registered source of reports on the mails of lists."""

    __tablename__ = "senders"
    __table_args__ = (
        allow_values("state", SenderState),
        CheckConstraint("char_length(name) BETWEEN 1 AND 200", name="name_bounded"),
        Index("ix_senders_user_id_id", "user_id", text("id DESC")),
        Index(None, "key_id", postgresql_where="key_id IS NOT NULL"),
        Index(None, "deleted_at", postgresql_where="deleted_at IS NOT NULL"),
    )

    id: Mapped[SerialId]
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"))
    # The API key with which a program created the sender or last changed the sender's secret. If
    # the API key is revoked, the sender is deleted. `key_id` is NULL if a session created the
    # sender or changed its secret. `key_id` is also NULL if the owner kept the sender when revoking
    # the API key.
    key_id: Mapped[int | None] = mapped_column(ForeignKey("api_keys.id", ondelete="SET NULL"))
    name: Mapped[str]
    # A value of ``integrations.senders.port.SenderProvider``.
    provider: Mapped[str]
    # The ids of the lists that the sender covers. NULL for all lists of the owner.
    list_ids: Mapped[list[int] | None]
    # True if the sender covers every list of the installation.
    any_list: Mapped[bool] = mapped_column(default=False, server_default=text("false"))
    # The ARN of a topic of Amazon SNS. Only senders with the provider `ses` have a topic.
    topic_arn: Mapped[str | None]
    state: Mapped[str] = mapped_column(default=SenderState.WAITING, server_default="waiting")
    # Codes of problems that the owner should solve, such as `sns_signature_v1`.
    warnings: Mapped[list[str]] = mapped_column(default=list, server_default=text("'{}'"))
    last_report_at: Mapped[datetime | None]
    last_refused_at: Mapped[datetime | None]
    created_at: Mapped[CreatedAt]
    updated_at: Mapped[UpdatedAt]
    # The time at which the sender was deleted. The row is kept until all reports are deleted.
    deleted_at: Mapped[datetime | None]


class SenderSecret(Model):
    """An encrypted secret or public key that verifies the requests of a sender."""

    __tablename__ = "sender_secrets"

    id: Mapped[SerialId]
    sender_id: Mapped[int] = mapped_column(ForeignKey("senders.id", ondelete="CASCADE"), index=True)
    # The random encryption context of the secret.
    context: Mapped[str] = mapped_column(unique=True)
    wrapped_key: Mapped[bytes]
    wrapped_by: Mapped[str]
    created_at: Mapped[CreatedAt]
    # When the secret expires, or NULL for the sender's latest secret.
    expires_at: Mapped[datetime | None] = mapped_column(index=True)


class SenderBody(Model):
    """The body of a verified request of a sender, which waits for a worker.

    The worker applies the reports in the body and deletes the row in one transaction, so that each
    report is applied exactly once. The body is encrypted, because it contains personal data and
    links.
    """

    __tablename__ = "sender_bodies"
    __table_args__ = (
        # The limits on a sender's waiting bodies and bytes are checked with this index.
        Index("ix_sender_bodies_sender_id_size", "sender_id", "size"),
        Index(None, "received_at"),
    )

    id: Mapped[SerialId]
    sender_id: Mapped[int] = mapped_column(ForeignKey("senders.id", ondelete="CASCADE"))
    received_at: Mapped[datetime] = mapped_column(server_default=func.now())
    # The number of bytes of the encrypted body.
    size: Mapped[int]
    # The random encryption context of the data key.
    context: Mapped[str]
    wrapped_key: Mapped[bytes]
    wrapped_by: Mapped[str]
    body: Mapped[bytes]
    # The number of failed attempts to apply the body. `due_at` is the time of the next attempt.
    failures: Mapped[int] = mapped_column(SmallInteger, default=0, server_default="0")
    due_at: Mapped[datetime] = mapped_column(server_default=func.now())


class SenderReport(Model):
    """An entry in the list of recent reports. A worker has handled the report."""

    __tablename__ = "sender_reports"
    __table_args__ = (
        Index("ix_sender_reports_sender_id_id", "sender_id", text("id DESC")),
        # When a person is erased, these indexes find the reports on the person.
        Index(None, "user_id", postgresql_where="user_id IS NOT NULL"),
        Index(None, "recipient", postgresql_where="recipient IS NOT NULL"),
    )

    id: Mapped[SerialId]
    sender_id: Mapped[int] = mapped_column(ForeignKey("senders.id", ondelete="CASCADE"))
    received_at: Mapped[datetime]
    occurred_at: Mapped[datetime]
    # A value of ``ReportKind``, or NULL for an event that Pressroom ignores or can't read.
    kind: Mapped[str | None]
    outcome: Mapped[str]
    # The cause of a bounce. For an event that Pressroom ignores or can't read, the provider's name
    # of the event's type.
    code: Mapped[str | None]
    # The enhanced status code of a bounce, such as `5.1.1`.
    status: Mapped[str | None]
    # The id of the mailing or of the single mail. NULL if the report has no valid delivery id.
    mailing_id: Mapped[int | None]
    list_id: Mapped[int | None]
    user_id: Mapped[int | None]
    # The masked address of the recipient, if no member was found.
    recipient: Mapped[str | None]


class SenderCount(Model):
    """The number of a sender's reports that had a certain outcome within an hour.

    The outcome `refused` is the exception. It counts rejected requests instead of reports.
    """

    __tablename__ = "sender_counts"
    __table_args__ = (Index(None, "hour"),)

    sender_id: Mapped[int] = mapped_column(
        ForeignKey("senders.id", ondelete="CASCADE"), primary_key=True
    )
    hour: Mapped[datetime] = mapped_column(primary_key=True)
    outcome: Mapped[str] = mapped_column(primary_key=True)
    count: Mapped[int]
