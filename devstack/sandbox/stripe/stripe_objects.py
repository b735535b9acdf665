"""Records as Stripe's objects, in which the objects that a caller asked for are written out."""

from collections.abc import Callable
from typing import Any

from devstack.sandbox.stripe.records import CheckoutSession, Dispute, Payment, Refund
from devstack.sandbox.stripe.stripe_problems import StripeProblem

API_VERSION = "2026-10-28.endive"

Object = dict[str, Any]


def session_object(session: CheckoutSession) -> Object:
    return {
        "id": session.id,
        "object": "checkout.session",
        "adaptive_pricing": {"enabled": False},
        "amount_subtotal": session.amount,
        "amount_total": session.amount,
        "cancel_url": session.cancel_url,
        "client_reference_id": session.reference,
        "created": session.created,
        "currency": session.currency,
        "customer": None,
        "customer_details": None,
        "expires_at": session.expires_at,
        "livemode": False,
        "metadata": dict(session.metadata),
        "mode": "payment",
        "payment_intent": session.payment.id if session.payment else None,
        "payment_method_types": ["card", "us_bank_account"],
        "payment_status": session.payment_status,
        "status": session.status,
        "success_url": session.success_url,
        "total_details": {"amount_discount": 0, "amount_shipping": 0, "amount_tax": 0},
        "url": session.url if session.is_open else None,
    }


def payment_object(payment: Payment) -> Object:
    declined = {"type": "card_error", "code": "card_declined", "message": "Your card was declined."}
    return {
        "id": payment.id,
        "object": "payment_intent",
        "amount": payment.amount,
        "amount_received": payment.amount if payment.is_paid else 0,
        "created": payment.created,
        "currency": payment.currency,
        "description": payment.description,
        "last_payment_error": declined if payment.was_declined else None,
        "latest_charge": payment.charge_id if payment.is_paid else None,
        "livemode": False,
        "metadata": dict(payment.metadata),
        "status": payment.status,
    }


def charge_object(payment: Payment) -> Object:
    return {
        "id": payment.charge_id,
        "object": "charge",
        "amount": payment.amount,
        "amount_captured": payment.amount,
        "amount_refunded": payment.refunded,
        "captured": True,
        "created": payment.created,
        "currency": payment.currency,
        "description": payment.description,
        # A bank's inquiry is no dispute yet.
        "disputed": any(not each.status.startswith("warning_") for each in payment.disputes),
        "livemode": False,
        "metadata": dict(payment.metadata),
        "paid": True,
        "payment_intent": payment.id,
        "refunded": payment.refunded == payment.amount,
        "status": "succeeded",
    }


def refund_object(payment: Payment, refund: Refund) -> Object:
    return {
        "id": refund.id,
        "object": "refund",
        "amount": refund.amount,
        "charge": payment.charge_id,
        "created": refund.created,
        "currency": payment.currency,
        "metadata": {},
        "payment_intent": payment.id,
        "reason": None,
        "status": "succeeded",
    }


def dispute_object(payment: Payment, dispute: Dispute) -> Object:
    return {
        "id": dispute.id,
        "object": "dispute",
        "amount": dispute.amount,
        "balance_transactions": [],
        "charge": payment.charge_id,
        "created": dispute.created,
        "currency": payment.currency,
        "evidence": {},
        "is_charge_refundable": False,
        "livemode": False,
        "metadata": {},
        "payment_intent": payment.id,
        "reason": "fraudulent",
        "status": dispute.status,
    }


def list_object(url: str, items: list[Object]) -> Object:
    return {"object": "list", "url": url, "has_more": False, "data": items}


def expand(shown: Object, paths: list[str], look_up: dict[str, Callable[[str], Object]]) -> Object:
    """Put objects in the places of their ids; ``look_up`` finds one by its place's name."""
    for path in paths:
        place = shown
        for name in path.split("."):
            if not isinstance(place, dict) or name not in look_up or name not in place:
                raise StripeProblem(f"This property cannot be expanded ({path}).", param="expand")
            if isinstance(place[name], str):
                place[name] = look_up[name](place[name])
            if place[name] is None:
                break
            place = place[name]
    return shown
