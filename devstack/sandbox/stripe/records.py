"""The account's records, in memory alone."""

import secrets
import time
from dataclasses import dataclass, field


def new_id(prefix: str) -> str:
    return f"{prefix}_{secrets.token_hex(12)}"


def now() -> int:
    return int(time.time())


@dataclass
class Dispute:
    amount: int
    status: str
    id: str = field(default_factory=lambda: new_id("du"))
    created: int = field(default_factory=now)


@dataclass
class Refund:
    amount: int
    status: str = "succeeded"
    id: str = field(default_factory=lambda: new_id("re"))
    created: int = field(default_factory=now)


@dataclass
class Payment:
    """Stripe's payment intent, and its charge once it is paid."""

    amount: int
    currency: str
    metadata: dict[str, str]
    description: str | None
    status: str = "requires_payment_method"
    id: str = field(default_factory=lambda: new_id("pi"))
    charge_id: str = field(default_factory=lambda: new_id("ch"))
    created: int = field(default_factory=now)
    was_declined: bool = False
    refunds: list[Refund] = field(default_factory=list)
    disputes: list[Dispute] = field(default_factory=list)

    @property
    def is_paid(self) -> bool:
        return self.status == "succeeded"

    @property
    def refunded(self) -> int:
        """Without the refunds that failed."""
        return sum(each.amount for each in self.refunds if each.status == "succeeded")

    @property
    def open_disputes(self) -> list[Dispute]:
        """Oldest first, with the inquiries among them."""
        is_open = "needs_response", "warning_needs_response"
        return [each for each in self.disputes if each.status in is_open]

    @property
    def undisputed(self) -> int:
        """Of the amount, what no dispute has taken or may take."""
        taking = "needs_response", "lost"
        return self.amount - sum(each.amount for each in self.disputes if each.status in taking)


@dataclass
class CheckoutSession:
    """Stripe's checkout session: a page on which a payer pays for one thing."""

    amount: int
    currency: str
    name: str
    reference: str | None
    metadata: dict[str, str]
    payment_metadata: dict[str, str]
    payment_description: str | None
    success_url: str
    cancel_url: str | None
    expires_at: int
    url: str = ""
    status: str = "open"
    payment_status: str = "unpaid"
    id: str = field(default_factory=lambda: new_id("cs_test"))
    created: int = field(default_factory=now)
    payment: Payment | None = None

    @property
    def is_open(self) -> bool:
        return self.status == "open"

    @property
    def is_promised(self) -> bool:
        return self.payment is not None and self.payment.status == "processing"
