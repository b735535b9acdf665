"""Records as Stripe's objects: their fields by the same names, and what Stripe adds to them."""

from typing import Any

from devstack.sandbox.stripe.records import CheckoutSession, Dispute, Payment, Refund
from devstack.sandbox.stripe.stripe_forms import Params

API_VERSION = "2026-10-28.endive"
_DEFAULT_LIMIT = 10

Object = dict[str, Any]

_SESSION = "id cancel_url created currency expires_at metadata payment_status status success_url"
_PAYMENT = "amount created currency description metadata"


def fields(record: object, names: str) -> Object:
    """The record's fields of these names, which blanks part."""
    return {name: getattr(record, name) for name in names.split()}


def session_object(session: CheckoutSession) -> Object:
    return fields(session, _SESSION) | {
        "object": "checkout.session",
        "adaptive_pricing": {"enabled": False},
        "amount_subtotal": session.amount,
        "amount_total": session.amount,
        "client_reference_id": session.reference,
        "livemode": False,
        "mode": "payment",
        "payment_intent": session.payment.id if session.payment else None,
        "payment_method_types": ["card", "us_bank_account"],
        "url": session.url if session.is_open else None,
    }


def payment_object(payment: Payment) -> Object:
    declined = {"type": "card_error", "code": "card_declined", "message": "Your card was declined."}
    return fields(payment, _PAYMENT) | {
        "id": payment.id,
        "object": "payment_intent",
        "amount_received": payment.amount if payment.is_paid else 0,
        "last_payment_error": declined if payment.was_declined else None,
        "latest_charge": payment.charge_id if payment.is_paid else None,
        "livemode": False,
        "status": payment.status,
    }


def charge_object(payment: Payment) -> Object:
    return fields(payment, _PAYMENT) | {
        "id": payment.charge_id,
        "object": "charge",
        "amount_captured": payment.amount,
        "amount_refunded": payment.refunded,
        "captured": True,
        # A bank's inquiry is no dispute yet.
        "disputed": any(not each.status.startswith("warning_") for each in payment.disputes),
        "livemode": False,
        "paid": True,
        "payment_intent": payment.id,
        "refunded": payment.refunded == payment.amount,
        "status": "succeeded",
    }


def dispute_object(payment: Payment, dispute: Dispute) -> Object:
    return fields(dispute, "id amount created status") | {
        "object": "dispute",
        "charge": payment.charge_id,
        "currency": payment.currency,
        "livemode": False,
        "payment_intent": payment.id,
        "reason": "fraudulent",
    }


def refund_object(payment: Payment, refund: Refund) -> Object:
    return fields(refund, "id amount created status") | {
        "object": "refund",
        "charge": payment.charge_id,
        "currency": payment.currency,
        "metadata": {},
        "payment_intent": payment.id,
        "reason": None,
    }


def list_object(url: str, items: list[Object], given: Params) -> Object:
    """A page of them: `limit` many at most, those after the one named by `starting_after`."""
    after = given.get("starting_after")
    begin = next((place + 1 for place, each in enumerate(items) if each["id"] == after), 0)
    end = begin + int(given.get("limit", _DEFAULT_LIMIT))
    return {
        "object": "list",
        "url": url,
        "has_more": end < len(items),
        "data": items[begin:end],
    }
