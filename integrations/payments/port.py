"""The port of payment providers: Pressroom's calls, and the facts that it may learn.

A provider tells of a payment in many ways: by a webhook, by a page that the payer returns to, by
the reply to a call. Each becomes the same `Evidence`: facts that, once true, stay true, so that
neither their order nor their number matters.
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
    """The status of a dispute goes from open to won or lost, and never back.

    A payment may have several disputes: its order is open while one is, else lost if one was lost.
    """

    OPEN = "open"
    WON = "won"
    LOST = "lost"


@dataclass(frozen=True)
class Evidence:
    """The facts that the provider named about one payment; ``None``: not named."""

    # The order, by at least one of: our number, the checkout's, the payment's own.
    order_id: int | None = None
    session_id: str | None = None
    payment_id: str | None = None
    # The amount of the order in the minor unit, and its currency, where the provider says them.
    amount_minor: int | None = None
    currency: str | None = None
    # The money has come, and isn't merely promised.
    paid: bool = False
    # A promised payment (a bank debit, say) fell through: the checkout can't be paid then.
    failed: bool = False
    # The time for paying is over. A payment that a payer promised before may still come.
    expired: bool = False
    # The checkout takes no payment any more, and no promised payment is under way.
    closed: bool = False
    # The sum of all refunds so far, in the minor unit, and of those among them that failed.
    refunded_minor: int | None = None
    refunds_failed_minor: int | None = None
    # The sum of all disputes so far, of those among them that have ended, and of those that were
    # lost. Each only grows; what is open is the first without the second.
    disputes_minor: int | None = None
    disputes_ended_minor: int | None = None
    disputes_lost_minor: int | None = None


@dataclass(frozen=True)
class Event:
    """The content of a webhook whose signature has been checked."""

    # The provider's id; the same for each delivery of one event.
    id: str
    type: str
    created_at: datetime
    # It is ``None`` for an event that doesn't concern orders.
    evidence: Evidence | None


class Payments(Protocol):
    """An account at a provider. Every call has a time limit.

    Calls raise ``TransientError`` for trouble that may pass by itself (the provider is away, slow,
    or limits us) and ``payments.refused`` (``provider_failed``) for calls that it refuses.
    """

    channel: PaymentChannel

    def open(self, checkout: Checkout) -> OpenedCheckout:
        """Open a checkout; asked again for the same order, answer the same one."""

    def evidence(self, session_id: str) -> Evidence:
        """All that the provider knows about a checkout now, refunds and disputes included."""

    def close(self, session_id: str) -> Evidence:
        """Accept no payment from now on, and answer what is known after that.

        A checkout that was paid, promised or closed before stays as it is.
        """

    def refunds(self, payment_id: str) -> Evidence:
        """The refunds of a payment as they are now, with those that failed."""

    def disputes(self, payment_id: str) -> Evidence:
        """The disputes of a payment as they are now."""

    def order_of(self, payment_id: str) -> int | None:
        """Our number of the order that a payment is for; none if it isn't one of ours."""

    def event(self, body: bytes, signature: str) -> Event:
        """Read a webhook's raw body.

        Raises ``webhook.signature_invalid`` (malformed) for a signature that is missing, wrong or
        too old, ``webhook.unreadable`` (malformed) for a signed body of no event.
        """
