"""The stand-in for Stripe as strict as Stripe, with a call that only tests make.

The product's stand-in trusts what Pressroom sends. Here each call is checked first, so that a
test fails when Pressroom sends what Stripe would refuse.
"""

import time
from typing import Any
from urllib.parse import urlsplit

from fastapi import APIRouter, Request

from devstack.sandbox.stripe.api import MAX_SESSION_SECONDS
from devstack.sandbox.stripe.objects import Params, StripeProblem
from devstack.sandbox.stripe.pages import StripeServer

_KNOWN = frozenset(
    {"mode", "line_items", "client_reference_id", "metadata", "payment_intent_data", "expand"}
    | {"adaptive_pricing", "expires_at", "success_url", "cancel_url"}
)
_EXPANDABLE = frozenset({"payment_intent", "payment_intent.latest_charge"})
_MIN_SESSION_SECONDS = 30 * 60
_MAX_AMOUNT_MINOR = 99_999_999
_MAX_BODY_BYTES = 64 * 1024
_MAX_KEY_CHARACTERS = 255


def strict_router(server: StripeServer) -> APIRouter:
    server.gateway.check = StrictCheck()
    return server.build_router()


class StrictCheck:
    """Refuses what Stripe would refuse."""

    def __init__(self) -> None:
        self._first_uses: dict[str, tuple[str, Params]] = {}

    def __call__(self, request: Request, given: Params) -> None:
        if int(request.headers.get("Content-Length", 0)) > _MAX_BODY_BYTES:
            raise StripeProblem("The request is too long.")
        path, key = request.url.path, request.headers.get("Idempotency-Key")
        if request.method == "POST" and key is not None:
            self._check_key(key, path, given)
        if request.method == "POST" and path.endswith("/checkout/sessions"):
            _check_session(given)
        for each in _listed(given, "expand"):
            if each not in _EXPANDABLE:
                message = f"This property cannot be expanded ({each})."
                raise StripeProblem(message, param="expand")
        if request.method == "POST" and key is not None:
            self._first_uses.setdefault(key, (path, given))

    def _check_key(self, key: str, path: str, given: Params) -> None:
        if len(key) > _MAX_KEY_CHARACTERS:
            raise StripeProblem("Idempotency keys are at most 255 characters long.")
        if self._first_uses.get(key, (path, given)) != (path, given):
            raise StripeProblem(
                "Keys for idempotent requests can only be used with the same parameters they were "
                f"first used with. Try using a key other than '{key}'.",
                kind="idempotency_error",
            )


def _check_session(given: Params) -> None:
    unknown = given.keys() - _KNOWN
    if unknown:
        name = min(unknown)
        message = f"Received unknown parameter: {name}"
        raise StripeProblem(message, code="parameter_unknown", param=name)
    if _text(given, "mode") != "payment":
        raise StripeProblem("Only the mode `payment` is played here.", param="mode")
    items = _listed(given, "line_items")
    if len(items) != 1 or not isinstance(items[0], dict) or items[0].get("quantity") != "1":
        raise StripeProblem("One line item of one piece is played here.", param="line_items")
    price = _inside(items[0], "price_data")
    _whole(price, "unit_amount")
    currency = _text(price, "currency")
    if len(currency) != 3 or not currency.isalpha() or not currency.islower():
        raise StripeProblem(f"Invalid currency: {currency}", param="currency")
    _text(_inside(price, "product_data"), "name")
    _inside(given, "metadata")
    _inside(_inside(given, "payment_intent_data"), "metadata")
    for name in {"success_url", *(given.keys() & {"cancel_url"})}:
        if urlsplit(_text(given, name)).scheme not in {"http", "https"}:
            raise StripeProblem("Not a valid URL", code="url_invalid", param=name)
    if "expires_at" in given:
        lasting = _whole(given, "expires_at") - int(time.time())
        if not _MIN_SESSION_SECONDS <= lasting <= MAX_SESSION_SECONDS:
            message = "The `expires_at` timestamp must be between 30 minutes and 24 hours from now."
            raise StripeProblem(message, param="expires_at")


def _whole(given: Params, name: str) -> int:
    text = _text(given, name)
    if not text.isascii() or not text.isdigit() or not 0 < int(text[:12]) <= 10**10:
        raise StripeProblem(
            f"Invalid integer: {text}", code="parameter_invalid_integer", param=name
        )
    if name != "expires_at" and int(text) > _MAX_AMOUNT_MINOR:
        raise StripeProblem("The amount is too large.", code="amount_too_large", param=name)
    return int(text)


def _text(given: Params, name: str) -> str:
    value = given.get(name)
    if not isinstance(value, str) or not value:
        message = f"Missing required param: {name}."
        raise StripeProblem(message, code="parameter_missing", param=name)
    return value


def _inside(given: Params, name: str) -> Params:
    value = given.get(name, {})
    if not isinstance(value, dict):
        raise StripeProblem(f"Invalid object: {name}", param=name)
    return value


def _listed(given: Params, name: str) -> list[Any]:
    value = given.get(name, [])
    if not isinstance(value, list):
        raise StripeProblem("Invalid array", param=name)
    return value
