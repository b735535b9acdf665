"""Defines the records of a Stripe account, and converts them to Stripe's JSON objects."""

import re
import secrets
import time
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl

_FIELD_NAME = re.compile(r"([^\[\]]+)((?:\[[^\[\]]*\])*)\Z")
_MAX_FIELDS = 200
API_VERSION = "2026-10-28.endive"
_DEFAULT_LIMIT = 10
_SESSION_FIELDS = (
    "id cancel_url created currency expires_at metadata payment_status status success_url"
)
_PAYMENT_FIELDS = "amount created currency description metadata"


@dataclass
class StripeKeys:
    """Without a ``webhook_url``, the sandbox sends no Stripe events."""

    secret_key: str = field(default_factory=lambda: f"sk_test_{secrets.token_hex(24)}")
    webhook_secret: str = field(default_factory=lambda: f"whsec_{secrets.token_hex(24)}")
    webhook_url: str | None = None


def new_id(prefix: str) -> str:
    return f"{prefix}_{secrets.token_hex(12)}"


def get_timestamp() -> int:
    return int(time.time())


@dataclass
class Dispute:
    amount: int
    status: str
    id: str = field(default_factory=lambda: new_id("du"))
    created: int = field(default_factory=get_timestamp)


@dataclass
class Refund:
    amount: int
    status: str = "succeeded"
    id: str = field(default_factory=lambda: new_id("re"))
    created: int = field(default_factory=get_timestamp)


@dataclass
class Payment:
    """A Stripe payment intent, which gets a charge when the payment succeeds."""

    amount: int
    currency: str
    metadata: dict[str, str]
    description: str | None
    status: str = "requires_payment_method"
    id: str = field(default_factory=lambda: new_id("pi"))
    charge_id: str = field(default_factory=lambda: new_id("ch"))
    created: int = field(default_factory=get_timestamp)
    refunds: list[Refund] = field(default_factory=list)
    disputes: list[Dispute] = field(default_factory=list)

    @property
    def is_paid(self) -> bool:
        return self.status == "succeeded"

    @property
    def refunded(self) -> int:
        return sum(each.amount for each in self.refunds if each.status == "succeeded")

    @property
    def open_disputes(self) -> list[Dispute]:
        is_open = "needs_response", "warning_needs_response"
        return [each for each in self.disputes if each.status in is_open]

    @property
    def undisputed(self) -> int:
        """Return the payment's amount minus the amounts of open and lost disputes."""
        covering = "needs_response", "lost"
        return self.amount - sum(each.amount for each in self.disputes if each.status in covering)


@dataclass
class CheckoutSession:
    """A Stripe checkout session, with a page on which the payer pays for one item."""

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
    created: int = field(default_factory=get_timestamp)
    payment: Payment | None = None

    @property
    def is_open(self) -> bool:
        return self.status == "open"

    @property
    def is_promised(self) -> bool:
        return self.payment is not None and self.payment.status == "processing"


class StripeProblem(Exception):
    """An error whose ``body`` is a Stripe error object (docs.stripe.com/api/errors)."""

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


def build_missing_error(kind: str, object_id: str, param: str = "id") -> StripeProblem:
    message = f"No such {kind}: '{object_id}'"
    return StripeProblem(message, status=HTTPStatus.NOT_FOUND, code="resource_missing", param=param)


Params = dict[str, Any]


def decode_form(encoded: str) -> Params:
    """Decode ``a[0][b]=1`` into ``{"a": [{"b": "1"}]}``. All decoded values are strings."""
    params: Params = {}
    for name, value in parse_qsl(encoded, keep_blank_values=True, max_num_fields=_MAX_FIELDS):
        match = _FIELD_NAME.match(name)
        if match is None:
            raise StripeProblem(f"Invalid name of a parameter: {name}", param=name)
        *parents, last = [match[1], *re.findall(r"\[([^\[\]]*)\]", match[2])]
        target = params
        for each in parents:
            target = target.setdefault(each, {})
            if not isinstance(target, dict):
                raise StripeProblem("A parameter is both a value and an object.", param=match[1])
        # A list value without an index gets the next number, as in ``expand[]=a&expand[]=b``.
        target[last or str(len(target))] = value
    return {name: _convert_lists(value) for name, value in params.items()}


def _convert_lists(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    items = {name: _convert_lists(each) for name, each in value.items()}
    if items and all(name.isdigit() for name in items):
        return [items[name] for name in sorted(items, key=int)]
    return items


Object = dict[str, Any]


def select_fields(record: object, names: str) -> Object:
    return {name: getattr(record, name) for name in names.split()}


def build_session_object(session: CheckoutSession) -> Object:
    return select_fields(session, _SESSION_FIELDS) | {
        "object": "checkout.session",
        "amount_total": session.amount,
        "payment_intent": session.payment.id if session.payment else None,
        "url": session.url if session.is_open else None,
    }


def build_payment_object(payment: Payment) -> Object:
    return select_fields(payment, _PAYMENT_FIELDS) | {
        "id": payment.id,
        "object": "payment_intent",
        "latest_charge": payment.charge_id if payment.is_paid else None,
        "status": payment.status,
    }


def build_charge_object(payment: Payment) -> Object:
    return select_fields(payment, _PAYMENT_FIELDS) | {
        "id": payment.charge_id,
        "object": "charge",
        "amount_refunded": payment.refunded,
        # A bank's inquiry doesn't mark a charge as disputed.
        "disputed": any(not each.status.startswith("warning_") for each in payment.disputes),
        "payment_intent": payment.id,
        "status": "succeeded",
    }


def build_dispute_object(payment: Payment, dispute: Dispute) -> Object:
    return select_fields(dispute, "id amount created status") | {
        "object": "dispute",
        "payment_intent": payment.id,
    }


def build_refund_object(payment: Payment, refund: Refund) -> Object:
    return select_fields(refund, "id amount created status") | {
        "object": "refund",
        "payment_intent": payment.id,
    }


def build_list_object(url: str, items: list[Object], params: Params) -> Object:
    """Return at most ``limit`` items that follow the item ``starting_after``."""
    after = params.get("starting_after")
    begin = next((position + 1 for position, each in enumerate(items) if each["id"] == after), 0)
    end = begin + int(params.get("limit", _DEFAULT_LIMIT))
    return {"object": "list", "url": url, "has_more": end < len(items), "data": items[begin:end]}
