"""Orders in words, for the person who pays."""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from api.console.of_credits.amounts import credits_text, money_text
from models import OrderStatus, PaymentOrder

STATES = {
    OrderStatus.CREATED: "being opened",
    OrderStatus.PENDING: "waits for your payment",
    OrderStatus.PAID: "paid",
    OrderStatus.PAID_UNCLAIMED: "paid, and not claimed yet",
    OrderStatus.FAILED: "failed",
    OrderStatus.EXPIRED: "expired",
    OrderStatus.REVIEW: "looked at by the operator",
    OrderStatus.DISPUTED: "disputed",
    OrderStatus.REFUNDED: "refunded",
}
_MEANINGS = {
    OrderStatus.CREATED: "The page on which you pay is being opened.",
    OrderStatus.PENDING: "Nothing is paid yet. Once you have paid, the credits are yours.",
    OrderStatus.PAID: "The credits are in your balance.",
    OrderStatus.PAID_UNCLAIMED: "It is paid, and gives its credits to whoever claims it.",
    OrderStatus.FAILED: "Nothing was paid, and nothing will be.",
    OrderStatus.EXPIRED: (
        "Its hour passed without a payment. A payment that was under way still counts when it "
        "arrives; for anything else make a new order."
    ),
    OrderStatus.REVIEW: (
        "Something was paid that isn’t just what was ordered. The operator looks at it, and gives "
        "you the credits or the money back."
    ),
    OrderStatus.DISPUTED: (
        "The payer’s bank took the money back for now, and so the credits are gone. They come back "
        "if the dispute ends in favour of the payment."
    ),
    OrderStatus.REFUNDED: "All of the money went back, and the credits with it.",
}
# Something may change by itself while a person looks.
_LIVE = frozenset({OrderStatus.CREATED, OrderStatus.PENDING})


@dataclass(frozen=True)
class ShownOrder:
    order: PaymentOrder

    @property
    def id(self) -> int:
        return self.order.id

    @property
    def status(self) -> OrderStatus:
        return OrderStatus(self.order.status)

    @property
    def state(self) -> str:
        return STATES[self.status]

    @property
    def meaning(self) -> str:
        if self.status is OrderStatus.PAID and self.order.lost_minor:
            return "Some of the money went back, and as many of the credits with it."
        return _MEANINGS[self.status]

    @property
    def reason(self) -> str | None:
        """Why it failed, if that is known."""
        return None if self.order.error is None else str(self.order.error["message"])

    @property
    def is_live(self) -> bool:
        return self.status in _LIVE

    @property
    def payment_url(self) -> str | None:
        """Where it can be paid, while it can."""
        return self.order.payment_url if self.status is OrderStatus.PENDING else None

    @property
    def amount(self) -> str:
        return money_text(self.order.amount, self.order.currency)

    @property
    def credits(self) -> str:
        return credits_text(self.order.credit_amount)

    @property
    def refunded(self) -> str | None:
        """What went back of the money, if any did."""
        given_back = self.order.refunded_amount
        return money_text(given_back, self.order.currency) if given_back else None

    @property
    def kept(self) -> str:
        """What is paid for good."""
        left: Decimal = self.order.amount - self.order.refunded_amount
        return money_text(left, self.order.currency)

    @property
    def paid_at(self) -> datetime | None:
        return self.order.paid_at

    @property
    def has_receipt(self) -> bool:
        """Whether money was taken for what was ordered: not while the operator looks at it."""
        return self.order.paid_at is not None and self.order.credited > 0
