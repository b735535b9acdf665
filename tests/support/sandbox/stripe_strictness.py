"""Makes the sandbox's imitation of Stripe as strict as Stripe.

The sandbox that `make run` starts accepts even requests that Stripe would refuse. With the checks
in this module, a test fails if Pressroom sends an invalid request to Stripe.
"""

import time
from typing import Any
from urllib.parse import urlsplit

from fastapi import APIRouter, Request

from devstack.sandbox.stripe.api import MAX_SESSION_SECONDS
from devstack.sandbox.stripe.objects import Params, StripeProblem
from devstack.sandbox.stripe.pages import StripeServer

_KNOWN_PARAMETERS = frozenset(
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
    """Makes the sandbox refuse requests that Stripe would refuse."""

    def __init__(self) -> None:
        self._first_uses: dict[str, tuple[str, Params]] = {}

    def __call__(self, request: Request, params: Params) -> None:
        if int(request.headers.get("Content-Length", 0)) > _MAX_BODY_BYTES:
            raise StripeProblem("The request is too long.")
        path, key = request.url.path, request.headers.get("Idempotency-Key")
        if request.method == "POST" and key is not None:
            self._check_key(key, path, params)
        if request.method == "POST" and path.endswith("/checkout/sessions"):
            _check_session(params)
        for each in _get_list(params, "expand"):
            if each not in _EXPANDABLE:
                message = f"This property cannot be expanded ({each})."
                raise StripeProblem(message, param="expand")
        if request.method == "POST" and key is not None:
            self._first_uses.setdefault(key, (path, params))

    def _check_key(self, key: str, path: str, params: Params) -> None:
        if len(key) > _MAX_KEY_CHARACTERS:
            raise StripeProblem("Idempotency keys are at most 255 characters long.")
        if self._first_uses.get(key, (path, params)) != (path, params):
            raise StripeProblem(
                "Keys for idempotent requests can only be used with the same parameters they were "
                f"first used with. Try using a key other than '{key}'.",
                kind="idempotency_error",
            )


def _check_session(params: Params) -> None:
    unknown = params.keys() - _KNOWN_PARAMETERS
    if unknown:
        name = min(unknown)
        message = f"Received unknown parameter: {name}"
        raise StripeProblem(message, code="parameter_unknown", param=name)
    if _get_text(params, "mode") != "payment":
        raise StripeProblem("The sandbox supports only the mode `payment`.", param="mode")
    items = _get_list(params, "line_items")
    if len(items) != 1 or not isinstance(items[0], dict) or items[0].get("quantity") != "1":
        raise StripeProblem("The sandbox supports only one line item.", param="line_items")
    price = _get_object(items[0], "price_data")
    _get_integer(price, "unit_amount")
    currency = _get_text(price, "currency")
    if len(currency) != 3 or not currency.isalpha() or not currency.islower():
        raise StripeProblem(f"Invalid currency: {currency}", param="currency")
    _get_text(_get_object(price, "product_data"), "name")
    _get_object(params, "metadata")
    _get_object(_get_object(params, "payment_intent_data"), "metadata")
    for name in {"success_url", *(params.keys() & {"cancel_url"})}:
        if urlsplit(_get_text(params, name)).scheme not in {"http", "https"}:
            raise StripeProblem("Not a valid URL", code="url_invalid", param=name)
    if "expires_at" in params:
        duration = _get_integer(params, "expires_at") - int(time.time())
        if not _MIN_SESSION_SECONDS <= duration <= MAX_SESSION_SECONDS:
            message = "The `expires_at` timestamp must be between 30 minutes and 24 hours from now."
            raise StripeProblem(message, param="expires_at")


def _get_integer(params: Params, name: str) -> int:
    text = _get_text(params, name)
    if not text.isascii() or not text.isdigit() or not 0 < int(text[:12]) <= 10**10:
        raise StripeProblem(
            f"Invalid integer: {text}", code="parameter_invalid_integer", param=name
        )
    if name != "expires_at" and int(text) > _MAX_AMOUNT_MINOR:
        raise StripeProblem("The amount is too large.", code="amount_too_large", param=name)
    return int(text)


def _get_text(params: Params, name: str) -> str:
    value = params.get(name)
    if not isinstance(value, str) or not value:
        message = f"Missing required param: {name}."
        raise StripeProblem(message, code="parameter_missing", param=name)
    return value


def _get_object(params: Params, name: str) -> Params:
    value = params.get(name, {})
    if not isinstance(value, dict):
        raise StripeProblem(f"Invalid object: {name}", param=name)
    return value


def _get_list(params: Params, name: str) -> list[Any]:
    value = params.get(name, [])
    if not isinstance(value, list):
        raise StripeProblem("Invalid array", param=name)
    return value
