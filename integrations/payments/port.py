"""The interface of payment providers.

Pressroom learns about a payment from webhooks, from the payer's return to a page, and from the
replies to calls. Every source yields `Evidence`, which contains facts about the payment. A fact
that is true once stays true. Evidence may therefore arrive in any order and more than once.
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
    """A request for a payment page at the provider, on which an order can be paid once.

    Attributes:
        amount_minor: the amount in the minor unit of the currency, for example in cents or yen.
        return_url: the page that the payer's browser opens after the payment.
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
    """A payment page that the provider has opened.

    Attributes:
        session_id: the provider's id of the page.
    """

    session_id: str
    payment_url: str
    expires_at: datetime


class DisputeStatus(StrEnum):
    """The status of a dispute, which changes only from open to won or from open to lost.

    A payment may have several disputes. An order with an open dispute counts as open. An order
    without an open dispute counts as lost if any dispute was lost.
    """

    OPEN = "open"
    WON = "won"
    LOST = "lost"


@dataclass(frozen=True)
class Evidence:
    """The facts that the provider has reported about a payment.

    ``None`` means that the provider has not reported a fact.

    All amounts are in the minor unit of the currency, and all sums can only grow.

    Attributes:
        order_id: Pressroom's id of the order. At least one of the three ids is set.
        session_id: the provider's id of the checkout.
        payment_id: the provider's id of the payment.
        amount_minor: the amount of the order.
        paid: whether the money has arrived. A promised payment, such as a bank debit, is not paid.
        failed: whether a promised payment has failed. The checkout can't be paid afterwards.
        expired: whether the time for paying is over. A payment that was promised in time may still
            arrive.
        closed: whether the checkout accepts no payment and no promised payment can arrive.
        refunded_minor: the sum of all refunds, including failed refunds.
        refunds_failed_minor: the sum of all failed refunds.
        disputes_minor: the sum of all disputes.
        disputes_ended_minor: the sum of all disputes that are no longer open.
        disputes_lost_minor: the sum of all lost disputes.
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
        id: the provider's id of the event. Every delivery of an event has the same id.
        evidence: the facts in the event, or ``None`` if the event doesn't concern an order.
    """

    id: str
    type: str
    created_at: datetime
    evidence: Evidence | None


class Payments(Protocol):
    """An account at a payment provider. Every call has a time limit.

    Calls raise ``TransientError`` if the provider is unreachable or slow, or limits the calls.
    Calls raise ``payments.refused`` (``provider_failed``) if the provider refuses the call.
    """

    channel: PaymentChannel

    def open_checkout(self, checkout: Checkout) -> OpenedCheckout:
        """Open a checkout. A second call for the same order returns the same checkout."""

    def fetch_evidence(self, session_id: str) -> Evidence:
        """Return all facts about a checkout, including refunds and disputes."""

    def close_checkout(self, session_id: str) -> Evidence:
        """Stop accepting payments, and return all facts about the checkout.

        A checkout that is already paid, promised or closed does not change.
        """

    def fetch_refunds(self, payment_id: str) -> Evidence:
        """Return the current sums of a payment's refunds."""

    def fetch_disputes(self, payment_id: str) -> Evidence:
        """Return the current sums of a payment's disputes."""

    def find_order_id(self, payment_id: str) -> int | None:
        """Return the id of the order for a payment, or ``None`` for another shop's payment."""

    def parse_event(self, body: bytes, signature: str) -> Event:
        """Check the signature of a webhook, and parse the body.

        Raises ``webhook.signature_invalid`` (malformed) for a signature that is missing, wrong or
        too old. Raises ``webhook.unreadable`` (malformed) for a signed body that is not an event.
        """
