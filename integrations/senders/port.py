"""The interface that the adapter of each mail provider implements.

A mail provider, such as Amazon SES, reports to Pressroom what happened to sent mails, such as a
delivery or a complaint. The providers use different formats, and different proofs that a request is
genuine, such as signatures or secrets.

A *sender* is a source of reports that an owner has registered, for example the owner's account at a
provider.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol


class SenderProvider(StrEnum):
    """A provider that can post reports.

    ``generic`` stands for any program that uses Pressroom's own report format.
    """

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
    temporarily unavailable. A ``blocked`` bounce means that the recipient's server rejects the
    sending server. A ``content`` bounce means that the recipient's server rejects the content of
    the mail.
    """

    HARD = "hard"
    SOFT = "soft"
    BLOCKED = "blocked"
    CONTENT = "content"


@dataclass(frozen=True, slots=True)
class Report:
    """A provider's report of an event that concerns one mail to one recipient.

    A report contains a delivery id, an e-mail address, or both.

    Attributes:
        delivery_id: the delivery id exactly as in the provider's event, so it is unverified, and
            may contain capital letters.
        email: the recipient's address as the provider wrote it.
        occurred_at: the time of the event, or ``None`` if the provider sent no valid time.
        message_id: the provider's id of the mail.
        status: the enhanced status code of a bounce (RFC 3463), such as ``5.1.1``.
        is_machine: whether the provider says that a program, not a person, caused an open or click.
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
    """``ignored`` means that Pressroom has no use for the event, such as SendGrid's ``processed``.
    ``invalid`` means that Pressroom can't read the event.
    """

    IGNORED = "ignored"
    INVALID = "invalid"


@dataclass(frozen=True, slots=True)
class UnusedEvent:
    """``event_type`` is the provider's name for the type of the event, with at most 100 characters.

    ``event_type`` is ``None`` if the event's type is missing or invalid.
    """

    reason: UnusedReason
    event_type: str | None = None
    occurred_at: datetime | None = None


class TopicChange(StrEnum):
    """``confirm`` means that SNS asks Pressroom to confirm the sender's subscription to the topic.
    ``unsubscribed`` means that the subscription has ended.
    """

    CONFIRM = "confirm"
    UNSUBSCRIBED = "unsubscribed"


@dataclass(frozen=True)
class ParsedBody:
    """The result of parsing a provider's request body.

    Attributes:
        events: all events in the order of the request body, including unused events.
        warnings: codes of problems that the owner should solve, such as ``sns_signature_v1``.
        topic_change: set if the body is a message about the subscription to an SNS topic.
        confirmation_token: set if ``topic_change`` is ``TopicChange.CONFIRM``.
    """

    events: tuple[Report | UnusedEvent, ...]
    warnings: frozenset[str] = frozenset()
    topic_change: TopicChange | None = None
    confirmation_token: str | None = None


@dataclass(frozen=True)
class SenderRequest:
    """An unverified request to the URL of a sender.

    Attributes:
        headers: maps the name of each header, in lower case, to its value.
        body: the request body exactly as received, because a signature is valid only for the
            unchanged bytes. If the signature is in the body, the body is decompressed.
    """

    headers: Mapping[str, str]
    body: bytes
    received_at: datetime


@dataclass(frozen=True)
class SenderProof:
    """The secrets and keys with which an adapter verifies the requests of a sender.

    Attributes:
        secrets: the secrets or public keys of the sender, newest first. A former secret or key
            stays in ``secrets`` for 24 hours.
        topic_arn: the ARN of the sender's SNS topic, or ``None`` if the provider isn't ``ses``.
    """

    secrets: tuple[str, ...]
    topic_arn: str | None = None


@dataclass(frozen=True)
class ReusableProof:
    """A valid proof that doesn't cover the event in the request.

    An attacker could send a stolen proof together with another event, so the proof must be accepted
    only with the event with which it first arrived. The signed text ``token`` differs for each
    genuine event.
    """

    token: bytes
    event: bytes
    expires_at: datetime


class KeyMissing(Exception):
    """Raised if a request can't be verified before a public key is fetched.

    Attributes:
        fetch: an async function that fetches the key, and returns a function that verifies the
            request with the key. Both functions raise ``sender.signature_invalid``. ``fetch``
            raises ``sender.busy`` if the key can't be fetched now.
    """

    def __init__(self, fetch: Callable[[], Awaitable[Callable[[], None]]]) -> None:
        super().__init__()
        self.fetch = fetch


class SenderAdapter(Protocol):
    provider: SenderProvider

    def verify(self, request: SenderRequest, proof: SenderProof) -> ReusableProof | None:
        """Return ``None`` if the signature covers the events, or if the provider sends a secret
        instead.

        Raises ``sender.signature_invalid`` if the signature or secret in the request is missing,
        invalid or too old. Only the adapter of the provider ``ses`` raises ``KeyMissing``.
        """

    def parse(self, body: bytes) -> ParsedBody:
        """Parse the body of a verified request.

        Only the adapter of the provider ``generic`` raises errors. All other adapters return an
        ``UnusedEvent`` for each invalid event, because a mail provider would retry a rejected
        request.
        """
