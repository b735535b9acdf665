"""Defines the records of a Stripe account, and converts them to Stripe's objects."""

import re
import secrets
import time
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl


@dataclass
class StripeKeys:
    """The keys that Pressroom and the sandbox share. Events are sent only with a webhook URL."""

    secret_key: str = field(default_factory=lambda: f"sk_test_{secrets.token_hex(24)}")
    webhook_secret: str = field(default_factory=lambda: f"whsec_{secrets.token_hex(24)}")
    webhook_url: str | None = None


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
    """A payment intent of Stripe, which includes a charge when the payment is paid."""

    amount: int
    currency: str
    metadata: dict[str, str]
    description: str | None
    status: str = "requires_payment_method"
    id: str = field(default_factory=lambda: new_id("pi"))
    charge_id: str = field(default_factory=lambda: new_id("ch"))
    created: int = field(default_factory=now)
    refunds: list[Refund] = field(default_factory=list)
    disputes: list[Dispute] = field(default_factory=list)

    @property
    def is_paid(self) -> bool:
        return self.status == "succeeded"

    @property
    def refunded(self) -> int:
        """The total amount of all refunds that didn't fail."""
        return sum(each.amount for each in self.refunds if each.status == "succeeded")

    @property
    def open_disputes(self) -> list[Dispute]:
        """The disputes and inquiries that are open, oldest first."""
        is_open = "needs_response", "warning_needs_response"
        return [each for each in self.disputes if each.status in is_open]

    @property
    def undisputed(self) -> int:
        """The amount that no open or lost dispute covers."""
        taking = "needs_response", "lost"
        return self.amount - sum(each.amount for each in self.disputes if each.status in taking)


@dataclass
class CheckoutSession:
    """A checkout session of Stripe, which has a page on which the payer pays for one item."""

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


class StripeProblem(Exception):
    """An error with the body of Stripe's error object (docs.stripe.com/api/errors)."""

    def __init__(
        self,
        message: str,
        *,
        status: int = HTTPStatus.BAD_REQUEST,
        kind: str = "invalid_request_error",
        **more: str | None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.body = {"error": {"type": kind, "message": message, **more}}


def missing(what: str, given: str, param: str = "id") -> StripeProblem:
    message, code = f"No such {what}: '{given}'", "resource_missing"
    return StripeProblem(message, status=HTTPStatus.NOT_FOUND, code=code, param=param)


_NAME = re.compile(r"([^\[\]]+)((?:\[[^\[\]]*\])*)\Z")
_MAX_FIELDS = 200

Params = dict[str, Any]


def decode(encoded: str) -> Params:
    """Decode a form such as ``a[0][b]=1`` into ``{"a": [{"b": "1"}]}``. All values are strings."""
    given: Params = {}
    for name, value in parse_qsl(encoded, keep_blank_values=True, max_num_fields=_MAX_FIELDS):
        found = _NAME.match(name)
        if found is None:
            raise StripeProblem(f"Invalid name of a parameter: {name}", param=name)
        *above, last = [found[1], *re.findall(r"\[([^\[\]]*)\]", found[2])]
        into = given
        for each in above:
            into = into.setdefault(each, {})
            if not isinstance(into, dict):
                raise StripeProblem("A parameter is both a value and an object.", param=found[1])
        # Number the values of a list without indexes, such as ``expand[]=a&expand[]=b``.
        into[last or str(len(into))] = value
    return {name: _listed(value) for name, value in given.items()}


def _listed(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    inside = {name: _listed(each) for name, each in value.items()}
    if inside and all(name.isdigit() for name in inside):
        return [inside[name] for name in sorted(inside, key=int)]
    return inside


API_VERSION = "2026-10-28.endive"
_DEFAULT_LIMIT = 10

Object = dict[str, Any]

_SESSION = "id cancel_url created currency expires_at metadata payment_status status success_url"
_PAYMENT = "amount created currency description metadata"


def fields(record: object, names: str) -> Object:
    """Return the attributes of a record by their names, which are separated by spaces."""
    return {name: getattr(record, name) for name in names.split()}


def session_object(session: CheckoutSession) -> Object:
    return fields(session, _SESSION) | {
        "object": "checkout.session",
        "amount_total": session.amount,
        "payment_intent": session.payment.id if session.payment else None,
        "url": session.url if session.is_open else None,
    }


def payment_object(payment: Payment) -> Object:
    return fields(payment, _PAYMENT) | {
        "id": payment.id,
        "object": "payment_intent",
        "latest_charge": payment.charge_id if payment.is_paid else None,
        "status": payment.status,
    }


def charge_object(payment: Payment) -> Object:
    return fields(payment, _PAYMENT) | {
        "id": payment.charge_id,
        "object": "charge",
        "amount_refunded": payment.refunded,
        # An inquiry of a bank doesn't count as a dispute.
        "disputed": any(not each.status.startswith("warning_") for each in payment.disputes),
        "payment_intent": payment.id,
        "status": "succeeded",
    }


def dispute_object(payment: Payment, dispute: Dispute) -> Object:
    return fields(dispute, "id amount created status") | {
        "object": "dispute",
        "payment_intent": payment.id,
    }


def refund_object(payment: Payment, refund: Refund) -> Object:
    return fields(refund, "id amount created status") | {
        "object": "refund",
        "payment_intent": payment.id,
    }


def list_object(url: str, items: list[Object], given: Params) -> Object:
    """Return a page of at most ``limit`` items after the item with the id ``starting_after``."""
    after = given.get("starting_after")
    begin = next((place + 1 for place, each in enumerate(items) if each["id"] == after), 0)
    end = begin + int(given.get("limit", _DEFAULT_LIMIT))
    return {"object": "list", "url": url, "has_more": end < len(items), "data": items[begin:end]}
