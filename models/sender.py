"""Senders, which report about the mails of lists, and the reports of senders."""

from datetime import datetime
from enum import StrEnum

from sqlalchemy import CheckConstraint, ForeignKey, Index, SmallInteger, func, text
from sqlalchemy.orm import Mapped, mapped_column

from models.declarative import CreatedAt, Model, SerialId, UpdatedAt, allow_values


class SenderState(StrEnum):
    # No report has arrived since the sender was created.
    WAITING = "waiting"
    WORKING = "working"
    FAILING = "failing"
    # Calls of the sender are rejected, because its API key expired, or because the owner paused it.
    PAUSED = "paused"


class ReportOutcome(StrEnum):
    """The effect of a report."""

    # The report changed something.
    APPLIED = "applied"
    # The report was counted before.
    DUPLICATE = "duplicate"
    # The report is older than the latest action of the person.
    STALE = "stale"
    # The mailing is older than 30 days.
    LATE = "late"
    # The list or the person keeps no engagement.
    OFF = "off"
    # Pressroom doesn't use this kind of report.
    IGNORED = "ignored"
    # No member was found.
    UNMATCHED = "unmatched"
    # The report can't be read.
    INVALID = "invalid"


class Sender(Model):
    """A registered source of reports about the mails of lists."""

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
    # sender, or if the owner kept the sender when revoking the API key.
    key_id: Mapped[int | None] = mapped_column(ForeignKey("api_keys.id", ondelete="SET NULL"))
    name: Mapped[str]
    # A value of ``integrations.senders.port.SenderProvider``.
    provider: Mapped[str]
    # The ids of the lists that the sender covers. NULL for all lists of the owner.
    list_ids: Mapped[list[int] | None]
    # True if the sender covers every list of the installation.
    any_list: Mapped[bool] = mapped_column(default=False, server_default=text("false"))
    # The topic of Amazon SNS. Only senders of the provider `ses` have a topic.
    topic_arn: Mapped[str | None]
    state: Mapped[str] = mapped_column(default=SenderState.WAITING, server_default="waiting")
    # Codes of problems that the owner should solve, such as `sns_signature_v1`.
    warnings: Mapped[list[str]] = mapped_column(default=list, server_default=text("'{}'"))
    last_report_at: Mapped[datetime | None]
    last_refused_at: Mapped[datetime | None]
    created_at: Mapped[CreatedAt]
    updated_at: Mapped[UpdatedAt]
    # The time at which the sender was deleted. A deleted sender is kept longer than its reports.
    deleted_at: Mapped[datetime | None]


class SenderSecret(Model):
    """An encrypted secret or public key that verifies the calls of a sender."""

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
    """A verified body of a sender that waits for a worker.

    The worker deletes the row in the transaction that applies the reports of the body, so that each
    report is applied once. The body is encrypted, because it contains personal data and links.
    """

    __tablename__ = "sender_bodies"
    __table_args__ = (
        # Intake counts the waiting bodies and bytes of a sender in this index.
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
    # The number of failed attempts to apply the body, and the time of the next attempt.
    failures: Mapped[int] = mapped_column(SmallInteger, default=0, server_default="0")
    due_at: Mapped[datetime] = mapped_column(server_default=func.now())


class SenderReport(Model):
    """A report that a worker has applied, for the list of recent reports."""

    __tablename__ = "sender_reports"
    __table_args__ = (
        Index("ix_sender_reports_sender_id_id", "sender_id", text("id DESC")),
        # The erasure of a person uses these indexes to find reports about the person.
        Index(None, "user_id", postgresql_where="user_id IS NOT NULL"),
        Index(None, "recipient", postgresql_where="recipient IS NOT NULL"),
    )

    id: Mapped[SerialId]
    sender_id: Mapped[int] = mapped_column(ForeignKey("senders.id", ondelete="CASCADE"))
    received_at: Mapped[datetime]
    occurred_at: Mapped[datetime]
    # A kind of report, or NULL for an event that yields no report.
    kind: Mapped[str | None]
    outcome: Mapped[str]
    # The cause of a bounce, or the provider's name of an event that yields no report.
    code: Mapped[str | None]
    # The enhanced status code of a bounce, such as `5.1.1`.
    status: Mapped[str | None]
    # The id of a row in `mailings`, or NULL if the report names no mailing.
    mailing_id: Mapped[int | None]
    list_id: Mapped[int | None]
    user_id: Mapped[int | None]
    # The masked address of the recipient, if no member was found.
    recipient: Mapped[str | None]


class SenderCount(Model):
    """The number of a sender's reports with one outcome in one hour.

    The outcome `refused` counts rejected calls.
    """

    __tablename__ = "sender_counts"
    __table_args__ = (Index(None, "hour"),)

    sender_id: Mapped[int] = mapped_column(
        ForeignKey("senders.id", ondelete="CASCADE"), primary_key=True
    )
    hour: Mapped[datetime] = mapped_column(primary_key=True)
    outcome: Mapped[str] = mapped_column(primary_key=True)
    count: Mapped[int]
