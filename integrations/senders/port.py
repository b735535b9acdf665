"""The interface that the adapter of each sender's provider implements.

A sender is a program that sends the mails of a list. The sender's provider, such as Amazon SES,
posts reports about the mails to Pressroom: deliveries, bounces, complaints and so on. Each provider
has a different proof of authenticity and a different body. An adapter verifies the proof, and
converts the body into `Report` objects.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol


class SenderProvider(StrEnum):
    """A provider that can post reports. ``generic`` is Pressroom's own form of reports."""

    GENERIC = "generic"
    SES = "ses"
    POSTMARK = "postmark"
    MAILGUN = "mailgun"
    SENDGRID = "sendgrid"
    BREVO = "brevo"
    RESEND = "resend"


class ReportKind(StrEnum):
    DELIVERED = "delivered"
    OPENED = "opened"
    CLICKED = "clicked"
    BOUNCED = "bounced"
    COMPLAINED = "complained"
    UNSUBSCRIBED = "unsubscribed"


class BounceClass(StrEnum):
    """The cause of a bounce.

    A hard bounce means that the address doesn't exist. A soft bounce means that the mailbox is
    temporarily unavailable. With ``blocked`` and ``content``, the cause lies with the sender: the
    recipient's server rejects the sender's server, or the content of the mail.
    """

    HARD = "hard"
    SOFT = "soft"
    BLOCKED = "blocked"
    CONTENT = "content"


@dataclass(frozen=True, slots=True)
class Report:
    """A provider's statement about one mail to one recipient.

    At least one of ``delivery_id`` and ``email`` is set.

    Attributes:
        delivery_id: the unverified delivery id that the provider returned, in any case.
        email: the recipient's address as the provider wrote it.
        occurred_at: the time of the event, or ``None`` if the provider sent no valid time.
        message_id: the provider's id of the mail.
        bounce_class: the cause of a bounce. Only reports of the kind ``bounced`` have a cause.
        status: the enhanced status code of a bounce (RFC 3463), such as ``5.1.1``.
        is_machine: whether the provider says that a program opened or clicked, not a person.
    """

    kind: ReportKind
    delivery_id: str | None = None
    email: str | None = None
    occurred_at: datetime | None = None
    message_id: str | None = None
    bounce_class: BounceClass | None = None
    status: str | None = None
    is_machine: bool = False


class UnusedReason(StrEnum):
    """The reason why Pressroom doesn't use an event of a provider.

    ``ignored`` means that the event's type has no effect in Pressroom, such as ``processed``.
    ``invalid`` means that Pressroom can't read the event.
    """

    IGNORED = "ignored"
    INVALID = "invalid"


@dataclass(frozen=True, slots=True)
class UnusedEvent:
    """An event in a body that yields no report.

    Attributes:
        event_type: the provider's name of the event's type, with at most 100 characters, or
            ``None`` if the event has no readable type.
    """

    reason: UnusedReason
    event_type: str | None = None
    occurred_at: datetime | None = None


class TopicChange(StrEnum):
    """A change of the subscription of a sender's URL to a topic of Amazon SNS."""

    CONFIRM = "confirm"
    UNSUBSCRIBED = "unsubscribed"


@dataclass(frozen=True)
class ParsedBody:
    """The content of a provider's body.

    Attributes:
        events: the reports and unused events, in the order of the body.
        warnings: codes that the owner should see, such as ``sns_signature_v1``.
        topic_change: the change of a subscription to a topic of Amazon SNS, or ``None`` for all
            other bodies.
        confirmation_token: the token that confirms the subscription to the topic. Only bodies with
            ``TopicChange.CONFIRM`` have a token.
    """

    events: tuple[Report | UnusedEvent, ...]
    warnings: frozenset[str] = frozenset()
    topic_change: TopicChange | None = None
    confirmation_token: str | None = None


@dataclass(frozen=True)
class SenderRequest:
    """A request that claims to come from a provider.

    Attributes:
        headers: the request's headers, keyed by their names in lower case.
        body: the body exactly as received, because signatures cover all of its bytes.
    """

    headers: Mapping[str, str]
    body: bytes
    received_at: datetime


@dataclass(frozen=True)
class SenderProof:
    """The data that verifies the requests of a sender.

    Attributes:
        secrets: the secrets or public keys of the sender, newest first. After a change, the former
            value is included for 24 hours.
        topic_arn: the topic of Amazon SNS. Only senders of the provider ``ses`` have a topic.
    """

    secrets: tuple[str, ...]
    topic_arn: str | None = None


class SenderAdapter(Protocol):
    """Reads the requests of a provider."""

    provider: SenderProvider

    async def verify(self, request: SenderRequest, proof: SenderProof) -> None:
        """Verify that the request comes from the sender's account at the provider.

        Raises ``sender.signature_invalid`` if the proof is missing, invalid or too old. Raises
        ``sender.busy`` if the proof can't be checked now, for example because a certificate can't
        be fetched.
        """

    def parse(self, body: bytes) -> ParsedBody:
        """Parse a verified body.

        The adapter of the generic form raises ``report.invalid`` and ``report.too_many``. All other
        adapters return unused events instead, because a provider would repeat a rejected body.
        """
