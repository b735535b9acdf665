"""The interface of payment providers.

Pressroom learns about a payment from webhooks, from the payer's return to a page, and from the
replies of the payment provider's API. Webhooks, page visits and API replies all yield `Evidence`,
which contains facts about a payment. A fact about a payment never becomes false, so evidence may
arrive in any order and more than once.
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
    """A request for a page at the payment provider, on which the payer can pay an order once.

    Attributes:
        amount_minor: the amount in the minor unit of the currency, for example in cents or yen.
        return_url: the URL of the page that the payer's browser opens after the payment.
        expires_at: the time at which the payment page expires.
    """

    order_id: int
    amount_minor: int
    currency: str
    description: str
    return_url: str
    expires_at: datetime


@dataclass(frozen=True)
class OpenedCheckout:
    """A payment page that the payment provider has opened.

    Attributes:
        session_id: the provider's id of the payment page.
    """

    session_id: str
    payment_url: str
    expires_at: datetime


class DisputeStatus(StrEnum):
    """The status of a payment dispute, which changes only from open to won or from open to lost.

    A payment may have several disputes. The dispute status of an order is open if any of its
    disputes is open. If an order has no open dispute but a lost dispute, the dispute status of the
    order is lost.
    """

    OPEN = "open"
    WON = "won"
    LOST = "lost"


@dataclass(frozen=True)
class Evidence:
    """The facts that the payment provider has reported about a payment.

    A field of ``Evidence`` is ``None`` or false until the payment provider has reported the fact.

    All amounts are in the minor unit of the currency, such as cents. The total amounts of refunds
    and disputes never decrease.

    Attributes:
        order_id: Pressroom's id of the order. At least one of ``order_id``, ``session_id`` and
            ``payment_id`` is set.
        session_id: the provider's id of the checkout.
        payment_id: the provider's id of the payment.
        amount_minor: the amount of the order in the minor unit of the currency.
        paid: whether the money has arrived. A promised payment, such as a bank debit, is unpaid
            until the money arrives.
        failed: whether a promised payment has failed. After a promised payment has failed, the
            checkout can't be paid.
        expired: whether the time for paying the order is over. A payment that was promised before
            the expiry may arrive after the expiry.
        closed: whether it is certain that no payment for the checkout will arrive.
        refunded_minor: the total amount of all refunds, including failed refunds.
        refunds_failed_minor: the total amount of all failed refunds.
        disputes_minor: the total amount of all disputes.
        disputes_ended_minor: the total amount of all disputes that are no longer open.
        disputes_lost_minor: the total amount of all lost disputes.
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
    """The content of a webhook with a valid signature.

    Attributes:
        id: the provider's id of the event. All webhook deliveries of an event have the same event
            id.
        evidence: the facts in the event, or ``None`` if the event doesn't concern an order.
    """

    id: str
    type: str
    created_at: datetime
    evidence: Evidence | None


class Payments(Protocol):
    """An account at a payment provider. Every call to the payment provider has a time limit.

    Calls raise ``TransientError`` if the payment provider is unreachable or slow, or enforces a
    rate limit. Calls raise ``payments.refused`` (``provider_failed``) if the payment provider
    refuses the request.
    """

    channel: PaymentChannel

    def open_checkout(self, checkout: Checkout) -> OpenedCheckout:
        """Open a checkout.

        Opening a checkout repeatedly for the same order returns the same checkout.
        """

    def fetch_evidence(self, session_id: str) -> Evidence:
        """Return all facts about a checkout, including refunds and disputes."""

    def close_checkout(self, session_id: str) -> Evidence:
        """Close a checkout for payments, and return all facts about the checkout.

        Closing has no effect on a checkout that is closed or paid, or for which a payment was
        promised.
        """

    def fetch_refunds(self, payment_id: str) -> Evidence:
        """Return the evidence about a payment, including the total amounts of its refunds."""

    def fetch_disputes(self, payment_id: str) -> Evidence:
        """Return the evidence about a payment, including the total amounts of its disputes."""

    def find_order_id(self, payment_id: str) -> int | None:
        """Return the id of the order that was paid, or ``None`` if it isn't a Pressroom order."""

    def parse_event(self, body: bytes, signature: str) -> Event:
        """Check the signature of a webhook, and parse the webhook's body.

        Raises ``webhook.signature_invalid`` (malformed) for a webhook signature that is missing,
        wrong or too old. Raises ``webhook.unreadable`` (malformed) for a signed body that is not an
        event.
        """
