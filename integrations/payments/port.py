"""The interface that the adapter of each payment provider implements.

Webhooks, page visits and API replies all yield `Evidence`, the facts about a payment. Facts about a
payment never become false, so evidence may arrive repeatedly and in any order.
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
    """A request for a payment page, on which the payer can pay an order once.

    Attributes:
        amount_minor: the amount in the currency's minor unit, such as cents.
        return_url: the page to which the payer returns after the payment.
    """

    order_id: int
    amount_minor: int
    currency: str
    description: str
    return_url: str
    expires_at: datetime


@dataclass(frozen=True)
class OpenedCheckout:
    """``session_id`` is the payment provider's id of the payment page."""

    session_id: str
    payment_url: str
    expires_at: datetime


class DisputeStatus(StrEnum):
    """The status of a dispute, which changes only from open to won or lost.

    An order has the dispute status ``open`` if any of its disputes is open. An order has the
    dispute status ``lost`` if a dispute was lost and none is open.
    """

    OPEN = "open"
    WON = "won"
    LOST = "lost"


@dataclass(frozen=True)
class Evidence:
    """Facts about a payment from the payment provider.

    A field of ``Evidence`` is ``None`` or false until the payment provider reports it. At least one
    of ``order_id``, ``session_id`` and ``payment_id`` is set.

    All amounts are in the currency's minor unit. The total amounts of refunds and disputes never
    decrease.

    Attributes:
        paid: whether the money has arrived. With delayed payment methods, such as bank debits, the
            money arrives days after the checkout.
        failed: whether a delayed payment has failed, so that the checkout can't be paid anymore.
        expired: whether the time for paying the order is over. A delayed payment that was started
            before the order expired can still arrive.
        closed: whether no payment for the checkout can arrive anymore.
        refunded_minor: the total amount of all refunds, including failed refunds.
        disputes_ended_minor: the total amount of all won and lost disputes.
    """

    order_id: int | None = None
    session_id: str | None = None
    payment_id: str | None = None
    amount_minor: int | None = None
    currency: str | None = None
    paid: bool = False
    failed: bool = False
    expired: bool = False
    closed: bool = False
    refunded_minor: int | None = None
    refunds_failed_minor: int | None = None
    disputes_minor: int | None = None
    disputes_ended_minor: int | None = None
    disputes_lost_minor: int | None = None


@dataclass(frozen=True)
class Event:
    """The content of a webhook whose signature is valid.

    Attributes:
        id: the provider's id of the event, which is the same in all deliveries of the event.
        evidence: the facts in the event, or ``None`` if the event isn't about an order.
    """

    id: str
    type: str
    created_at: datetime
    evidence: Evidence | None


class Payments(Protocol):
    """An account at a payment provider. Every call to the payment provider has a time limit.

    Calls raise ``TransientError`` if the payment provider is unreachable, slow or rate limited.
    Calls raise ``payments.refused`` (``provider_failed``) if the payment provider rejects the
    request.
    """

    channel: PaymentChannel

    def open_checkout(self, checkout: Checkout) -> OpenedCheckout:
        """Open a checkout. Repeated calls for the same order return the same checkout."""

    def fetch_evidence(self, session_id: str) -> Evidence:
        """Return evidence that includes refunds and disputes."""

    def close_checkout(self, session_id: str) -> Evidence:
        """Return the checkout's current state. The call has no effect on a checkout that is closed
        or paid or has a promised payment.
        """

    def fetch_refunds(self, payment_id: str) -> Evidence:
        """Return evidence with the total amounts of a payment's refunds."""

    def fetch_disputes(self, payment_id: str) -> Evidence:
        """Return evidence with the total amounts of a payment's disputes."""

    def find_order_id(self, payment_id: str) -> int | None:
        """Return the id of the paid order, or ``None`` if the payment isn't for an order."""

    def parse_event(self, body: bytes, signature: str) -> Event:
        """Raise ``webhook.signature_invalid`` if the signature is missing, wrong or too old, and
        ``webhook.unreadable`` if a signed body is not an event.
        """
