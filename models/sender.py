"""Senders and their reports.

A sender is a registered source of reports about the mail of lists. A sender covers certain lists,
and its reports can change only the members of these lists.
"""

from datetime import datetime
from enum import StrEnum

from sqlalchemy import (
    CheckConstraint,
    ForeignKey,
    Identity,
    Index,
    Integer,
    SmallInteger,
    func,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column

from core.ids import AccountId, PersonId, random_id
from models.declarative import CreatedAt, Model, SerialId, UpdatedAt, allow_values
from models.waiting_work import WaitingWork


class SenderState(StrEnum):
    # The sender has never posted a report.
    WAITING = "waiting"
    WORKING = "working"
    # A sender is failing if Pressroom rejected many of the sender's requests within an hour, if
    # Amazon SNS ended the subscription to the sender's topic, or if no report arrived after a large
    # mailing. The column `warnings` contains the reasons why a sender is failing.
    FAILING = "failing"
    # Pressroom rejects all requests of the sender, because the owner paused the sender or because
    # the sender's API key expired.
    PAUSED = "paused"


class ReportOutcome(StrEnum):
    """The outcome of a report: ``APPLIED``, or the reason why the report changed nothing."""

    APPLIED = "applied"
    # An earlier report about the same event took effect.
    DUPLICATE = "duplicate"
    # The report is outdated, because the person joined the list, turned mail on, or changed the
    # e-mail address after the reported event.
    STALE = "stale"
    # The mailing began more than 30 days ago.
    LATE = "late"
    # The report is about an open or a click, which Pressroom doesn't record.
    OFF = "off"
    # Pressroom has no use for the reported event, such as SendGrid's `processed`.
    IGNORED = "ignored"
    # No member of the lists that the sender covers was found for the report.
    UNMATCHED = "unmatched"
    # Pressroom can't read the event.
    INVALID = "invalid"


class Sender(Model):
    __tablename__ = "senders"
    __table_args__ = (
        allow_values("state", SenderState),
        CheckConstraint("char_length(name) BETWEEN 1 AND 200", name="name_bounded"),
        Index("ix_senders_user_id_id", "user_id", text("id DESC")),
        Index(None, "key_id", postgresql_where="key_id IS NOT NULL"),
        Index(None, "deleted_at", postgresql_where="deleted_at IS NOT NULL"),
    )

    # The ids are random, because strangers can post to the URL of any sender whose id they guess.
    # Release 1.1.0 numbers the senders that it creates.
    id: Mapped[int] = mapped_column(Identity(), primary_key=True, default=random_id)
    user_id: Mapped[AccountId] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"))
    # The API key that created the sender, or that last changed the sender's secret, key or topic.
    # If the owner revokes the API key, the sender is deleted, unless the owner keeps the sender.
    # NULL if the owner created the sender, or last changed its secret, key or topic, while logged
    # in to the console. `key_id` is also NULL if the owner revoked the API key but kept the sender.
    key_id: Mapped[int | None] = mapped_column(ForeignKey("api_keys.id", ondelete="SET NULL"))
    name: Mapped[str]
    # A value of ``integrations.senders.port.SenderProvider``.
    provider: Mapped[str]
    # The ids of the lists that the sender covers, or NULL if it covers all lists of the owner.
    list_ids: Mapped[list[int] | None]
    # True if the sender covers the lists of all owners.
    any_list: Mapped[bool] = mapped_column(default=False, server_default=text("false"))
    # The ARN of the Amazon SNS topic from which the reports come. NULL for all providers except
    # `ses` (Amazon SES), because only Amazon SES reports through Amazon SNS.
    topic_arn: Mapped[str | None]
    state: Mapped[str] = mapped_column(default=SenderState.WAITING, server_default="waiting")
    # Codes of problems that the owner should solve, such as `sns_signature_v1`.
    warnings: Mapped[list[str]] = mapped_column(default=list, server_default=text("'{}'"))
    last_report_at: Mapped[datetime | None]
    last_refused_at: Mapped[datetime | None]
    # When the sender got its state, or its latest warning. A database trigger sets `state_since`.
    # NULL before migration 0143, or if a `waiting` sender never changed its state or got a warning.
    state_since: Mapped[datetime | None]
    # When the owner last dismissed the warning that the sender is failing.
    dismissed_at: Mapped[datetime | None]
    created_at: Mapped[CreatedAt]
    updated_at: Mapped[UpdatedAt]
    # When the sender was deleted. A deleted sender's row remains until the sender's reports have
    # expired.
    deleted_at: Mapped[datetime | None]


class SenderSecret(Model):
    __tablename__ = "sender_secrets"

    id: Mapped[SerialId]
    sender_id: Mapped[int] = mapped_column(ForeignKey("senders.id", ondelete="CASCADE"), index=True)
    # A random text that is needed to decrypt the secret (see ``storage.encryption``).
    context: Mapped[str] = mapped_column(unique=True)
    wrapped_key: Mapped[bytes]
    wrapped_by: Mapped[str]
    created_at: Mapped[CreatedAt]
    # When the secret expires. NULL for the sender's latest secret, which doesn't expire.
    expires_at: Mapped[datetime | None] = mapped_column(index=True)


class SenderBody(WaitingWork, Model):
    """The worker processes the last reports and deletes the body in one transaction, so that each
    report takes effect exactly once. The body is encrypted, because it contains personal data and
    links.
    """

    __tablename__ = "sender_bodies"
    __table_args__ = (
        # The API uses this index to limit the number and the total size of the request bodies that
        # are stored for a sender.
        Index("ix_sender_bodies_sender_id_size", "sender_id", "size"),
        Index(None, "received_at"),
    )

    sender_id: Mapped[int] = mapped_column(ForeignKey("senders.id", ondelete="CASCADE"))
    received_at: Mapped[datetime] = mapped_column(server_default=func.now())
    # The number of bytes of the encrypted body.
    size: Mapped[int]
    # A random text that is needed to decrypt the body (see ``storage.encryption``).
    context: Mapped[str]
    wrapped_key: Mapped[bytes]
    wrapped_by: Mapped[str]
    body: Mapped[bytes]
    # The number of tries that ended with an error.
    failures: Mapped[int] = mapped_column(SmallInteger, default=0, server_default="0")
    # True if a worker has stored the members' opt-outs in the body. Workers store the opt-outs in
    # all senders' bodies before they process any other reports.
    has_opt_outs_applied: Mapped[bool] = mapped_column(server_default=text("false"))
    # How many reports of the body were processed. A body with many reports takes several
    # transactions.
    applied_reports: Mapped[int] = mapped_column(Integer, default=0, server_default="0")


class SenderReport(Model):
    __tablename__ = "sender_reports"
    __table_args__ = (
        Index("ix_sender_reports_sender_id_id", "sender_id", text("id DESC")),
        # The erasure of a person uses these indexes to find the reports about the person.
        Index(None, "user_id", postgresql_where="user_id IS NOT NULL"),
        Index(None, "recipient", postgresql_where="recipient IS NOT NULL"),
    )

    id: Mapped[SerialId]
    sender_id: Mapped[int] = mapped_column(ForeignKey("senders.id", ondelete="CASCADE"))
    received_at: Mapped[datetime]
    occurred_at: Mapped[datetime]
    # A value of ``integrations.senders.port.ReportKind``, or NULL for an event that Pressroom
    # ignores or can't read.
    kind: Mapped[str | None]
    outcome: Mapped[str]
    # The class of a bounce, such as `hard`. For an event that Pressroom ignores or can't read, the
    # column contains the provider's name for the type of the event.
    code: Mapped[str | None]
    # The enhanced status code of a bounce, such as `5.1.1`.
    status: Mapped[str | None]
    # The id of the job that exported the recipients of the mailing. For a mail that Pressroom
    # itself sent, such as a confirmation mail, the id of the job that sent the mail. NULL if the
    # report contains no valid delivery id.
    mailing_id: Mapped[int | None]
    list_id: Mapped[int | None]
    user_id: Mapped[PersonId | None]
    # The masked address of the recipient, such as `a…@e….org`. NULL if the report contains no valid
    # address, or if Pressroom found the member, because `user_id` then identifies the recipient.
    recipient: Mapped[str | None]


class SenderCount(Model):
    """How many of a sender's reports had the same outcome in one hour.

    A row with the outcome `refused` counts rejected requests instead of reports.
    """

    __tablename__ = "sender_counts"
    __table_args__ = (Index(None, "hour"),)

    sender_id: Mapped[int] = mapped_column(
        ForeignKey("senders.id", ondelete="CASCADE"), primary_key=True
    )
    hour: Mapped[datetime] = mapped_column(primary_key=True)
    outcome: Mapped[str] = mapped_column(primary_key=True)
    count: Mapped[int]
