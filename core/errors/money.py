"""Errors about credits, orders and payments."""

from core.errors.catalogue import (
    conflict,
    forbidden,
    invalid,
    invalid_at,
    malformed,
    not_found,
    payment_needed,
    provider_failed,
    too_slow,
    unavailable,
)
from core.money import MAX_AMOUNT

CREDITS_INSUFFICIENT = payment_needed("credits.insufficient", "The balance is too low for this.")
CREDITS_AMOUNT = invalid(
    "credits.amount",
    "An amount is above 0, at most {most:,} and has at most four decimals.",
    field="body.amount_credit",
    most=MAX_AMOUNT,
)
CREDITS_AMOUNT_TEXT = invalid("credits.amount", "{amount!r} is not a number.", amount="ten")
CREDITS_BELOW = invalid_at(
    "body.below_credit",
    "credits.below",
    "is 0 or more, at most {most:,} and has at most four decimals",
    most=MAX_AMOUNT,
)
CREDITS_BALANCE_TOO_LARGE = invalid(
    "credits.amount", "The balance would be beyond what can be kept."
)
CREDITS_SOURCE_ID = invalid_at(
    "body.source_id", "credits.source_id", "has 1 to {most} characters, not all blank", most=255
)
CREDITS_META = invalid_at("body.meta", "credits.meta", "has at most 8 KB and no NUL characters")
CREDITS_META_UNWRITABLE = invalid_at(
    "body.meta",
    "credits.meta",
    "has no half characters, no numbers beyond a double and no endless depth",
)
CHARGE_IN_PROGRESS = conflict(
    "idempotency.in_progress", "Another charge of this account is still under way."
)

TOPUP_CURRENCY = invalid_at(
    "body.currency", "topup.currency", "is one of {known}", known="USD, EUR, GBP, JPY"
)
TOPUP_AMOUNT_MISSING = invalid(
    "topup.amount_missing",
    "body.amount or body.credit_amount must be above 0.",
    field="body.amount",
)
TOPUP_AMOUNT = invalid_at(
    "{place}",
    "topup.amount",
    "is above 0, at most {most:,} and has at most four decimals",
    place="body.credit_amount",
    most=MAX_AMOUNT,
)
TOPUP_AMOUNT_DECIMALS = invalid_at(
    "body.amount",
    "topup.amount",
    "an amount in {currency} has at most {digits} decimals",
    currency="JPY",
    digits=0,
)
TOPUP_AMOUNT_MISMATCH = invalid(
    "topup.amount_mismatch",
    "body.amount and body.credit_amount do not agree; send one of them.",
    field="body.amount",
)
TOPUP_AMOUNT_TOO_SMALL = invalid_at(
    "{place}",
    "topup.amount_too_small",
    "the smallest order is {least} {currency}",
    place="body.amount",
    least="0.50",
    currency="USD",
)
TOPUP_BUYS_NOTHING = invalid_at("body.amount", "topup.amount_too_small", "buys no credits at all")
TOPUP_AMOUNT_TOO_LARGE = invalid_at(
    "{place}",
    "topup.amount_too_large",
    "the largest order is {most:,} {currency}",
    place="body.amount",
    most=999_999.99,
    currency="USD",
)
TOPUP_BUYS_TOO_MUCH = invalid_at("body.amount", "topup.amount_too_large", "buys too many credits")
TOPUP_REDIRECT_NOT_ALLOWED = invalid_at(
    "body.redirect_url",
    "topup.redirect_not_allowed",
    "is an absolute http or https address of an allowed origin, at most {most} characters, "
    "whose query has no {order} or {status} of its own",
    most=2048,
    order="order_id",
    status="status",
)
TOPUP_TOO_LATE = too_slow("topup.too_late", "The order was not opened in time; make a new one.")
TOPUP_CHANNEL = invalid_at(
    "body.channel", "topup.channel", "is one of {known}", known="stripe, sandbox"
)
TOPUP_NO_SANDBOX = invalid(
    "topup.channel_unavailable", "There is no sandbox here.", field="body.channel"
)
TOPUP_CHANNEL_UNAVAILABLE = unavailable(
    "topup.channel_unavailable",
    "Payments through {channel} are not set up here.",
    retry_after=60,
    channel="stripe",
)
TOPUP_NO_CHANNEL = unavailable(
    "topup.channel_unavailable", "Payments are not set up here.", retry_after=60
)
TOPUP_PAGE_TOO_SLOW = too_slow("request.too_slow", "The page was not opened in time.")

ORDER_NOT_FOUND = not_found("order.not_found", "There is no such order.")
ORDER_CLAIMED = conflict("order.claimed", "This order belongs to somebody already.")
ORDER_OVER = conflict(
    "order.over", "This order is {status}; there is nothing to claim.", status="refunded"
)
ORDER_NOT_IN_REVIEW = conflict(
    "order.not_in_review", "Order {order_id} is {status}.", order_id=4711, status="completed"
)
ORDER_RESOLUTION = invalid("order.resolution", "Say either --credit or --refunded.")

PAYMENT_LINK_INVALID = forbidden("payment.link_invalid", "This link does not lead to an order.")
PAYMENTS_REFUSED = provider_failed(
    "payments.refused",
    "The payment provider refused the request ({reason}).",
    reason="the session has no page",
)
PAYMENTS_UNAVAILABLE = unavailable(
    "payments.unavailable", "The payment provider can't be reached at the moment.", retry_after=1
)
WEBHOOK_UNREADABLE = malformed(
    "webhook.unreadable", "The body is signed, but no event can be read from it."
)
WEBHOOK_SIGNATURE_INVALID = malformed(
    "webhook.signature_invalid", "The signature is missing, wrong, or more than five minutes old."
)
