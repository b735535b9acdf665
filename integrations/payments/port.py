"""What Pressroom asks of a payment provider, and what it may learn from one.

A provider tells of a payment in many ways: a webhook, a page that a payer returns to, an answer to
a question. Each becomes the same `Evidence`: facts that, once true, stay true, so that it doesn't
matter in which order they arrive, or how often.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol


class PaymentChannel(StrEnum):
    STRIPE = "stripe"
    SANDBOX = "sandbox"


@dataclass(frozen=True)
class Checkout:
    """A page of the provider's on which one order can be paid, once, until it expires."""

    order_id: int
    # In the currency's minor unit: cents, or yen.
    amount_minor: int
    currency: str
    description: str
    # Where the payer's browser goes afterwards.
    return_url: str
    expires_at: datetime


@dataclass(frozen=True)
class OpenedCheckout:
    # The provider's name for it.
    session_id: str
    payment_url: str
    expires_at: datetime


class DisputeStatus(StrEnum):
    """Only ever goes from open to won or lost."""

    OPEN = "open"
    WON = "won"
    LOST = "lost"


@dataclass(frozen=True)
class Evidence:
    """What the provider said about one payment. A fact that it didn't mention is absent."""

    # Which order: by our number, by the checkout's, or by the payment's own. One at least.
    order_id: int | None = None
    session_id: str | None = None
    payment_id: str | None = None
    # What was asked for, in the minor unit, and in which currency, where the provider says it.
    amount_minor: int | None = None
    currency: str | None = None
    # The money is there; not merely promised.
    paid: bool = False
    # A promised payment (a bank debit, say) fell through: this checkout can't be paid any more.
    failed: bool = False
    expired: bool = False
    # Given back so far, in the minor unit.
    refunded_minor: int | None = None
    dispute: DisputeStatus | None = None
    # What a dispute is about, in the minor unit: the whole payment or a part of it.
    disputed_minor: int | None = None


@dataclass(frozen=True)
class Event:
    """One webhook's content, whose signature has been checked."""

    # Of the provider; the same for each delivery of one event.
    id: str
    type: str
    created_at: datetime
    # None for what is of no concern to orders.
    evidence: Evidence | None


class Payments(Protocol):
    """One account at one provider. Every call has a time limit.

    Calls raise ``TransientError`` for what may pass by itself (the provider is away, slow, or
    limits us) and ``payments.refused`` (``provider_failed``) for what the provider refuses.
    """

    channel: PaymentChannel

    def open(self, checkout: Checkout) -> OpenedCheckout:
        """Open a checkout; asked again for the same order, answer the same one."""

    def evidence(self, session_id: str) -> Evidence:
        """All that the provider knows about a checkout now, refunds and disputes included."""

    def close(self, session_id: str) -> None:
        """Let nobody pay from now on; a checkout that was paid or is closed stays what it is."""

    def order_of(self, payment_id: str) -> int | None:
        """Our number for the order a payment is for; none if it isn't one of ours."""

    def event(self, body: bytes, signature: str) -> Event:
        """Read a webhook's raw body.

        Raises ``webhook.signature_invalid`` (malformed) for a signature that is missing, wrong or
        too old, ``webhook.unreadable`` (malformed) for a signed body of no event.
        """
