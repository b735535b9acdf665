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

CREDITS_INSUFFICIENT = payment_needed("credits.insufficient", "Your credit balance is too low.")
CREDITS_AMOUNT = invalid(
    "credits.amount",
    "An amount must be above 0 and at most {most:,}, with at most four decimals.",
    field="body.amount_credit",
    most=MAX_AMOUNT,
)
CREDITS_AMOUNT_TEXT = invalid("credits.amount", "{amount!r} is not a number.", amount="ten")
CREDITS_BELOW = invalid_at(
    "body.below_credit",
    "credits.below",
    "must be from 0 to {most:,}, with at most four decimals",
    most=MAX_AMOUNT,
)
CREDITS_BALANCE_TOO_LARGE = invalid(
    "credits.amount", "This amount would exceed the maximum credit balance."
)
CREDITS_SOURCE_ID = invalid_at(
    "body.source_id",
    "credits.source_id",
    "must have 1 to {most} characters, and not only spaces",
    most=255,
)
CREDITS_META = invalid_at(
    "body.meta", "credits.meta", "must have at most 8 KB and no NUL characters"
)
CREDITS_META_UNWRITABLE = invalid_at(
    "body.meta",
    "credits.meta",
    "must contain only valid Unicode and numbers that fit a double, without deep nesting",
)
CHARGE_IN_PROGRESS = conflict(
    "idempotency.in_progress", "Another charge for this account is in progress. Try again."
)

TOPUP_CURRENCY = invalid_at(
    "body.currency", "topup.currency", "must be one of {known}", known="USD, EUR, GBP, JPY"
)
TOPUP_AMOUNT_MISSING = invalid(
    "topup.amount_missing",
    "body.amount or body.credit_amount must be above 0.",
    field="body.amount",
)
TOPUP_AMOUNT = invalid_at(
    "{place}",
    "topup.amount",
    "must be above 0 and at most {most:,}, with at most four decimals",
    place="body.credit_amount",
    most=MAX_AMOUNT,
)
TOPUP_AMOUNT_DECIMALS = invalid_at(
    "body.amount",
    "topup.amount",
    "must have at most {digits} decimals in {currency}",
    currency="JPY",
    digits=0,
)
TOPUP_AMOUNT_MISMATCH = invalid(
    "topup.amount_mismatch",
    "body.amount and body.credit_amount don't match. Send only one amount.",
    field="body.amount",
)
TOPUP_AMOUNT_TOO_SMALL = invalid_at(
    "{place}",
    "topup.amount_too_small",
    "must be at least {least} {currency}",
    place="body.amount",
    least="0.50",
    currency="USD",
)
TOPUP_BUYS_NOTHING = invalid_at(
    "body.amount", "topup.amount_too_small", "is too small to buy any credits"
)
TOPUP_AMOUNT_TOO_LARGE = invalid_at(
    "{place}",
    "topup.amount_too_large",
    "must be at most {most:,} {currency}",
    place="body.amount",
    most=999_999.99,
    currency="USD",
)
TOPUP_BUYS_TOO_MUCH = invalid_at(
    "body.amount",
    "topup.amount_too_large",
    "must be smaller, because it buys more credits than an account can hold",
)
TOPUP_REDIRECT_NOT_ALLOWED = invalid_at(
    "body.redirect_url",
    "topup.redirect_not_allowed",
    "must be an absolute http or https URL of at most {most} characters on an allowed origin, "
    "without the query parameters {order} and {status}",
    most=2048,
    order="order_id",
    status="status",
)
TOPUP_TOO_LATE = too_slow(
    "topup.too_late", "The payment page was not opened in time. Create a new order."
)
TOPUP_CHANNEL = invalid_at(
    "body.channel", "topup.channel", "must be one of {known}", known="stripe, sandbox"
)
TOPUP_NO_SANDBOX = invalid(
    "topup.channel_unavailable", "The payment sandbox is not configured.", field="body.channel"
)
TOPUP_CHANNEL_UNAVAILABLE = unavailable(
    "topup.channel_unavailable",
    "Payments through {channel} are not configured.",
    retry_after=60,
    channel="stripe",
)
TOPUP_NO_CHANNEL = unavailable(
    "topup.channel_unavailable", "Payments are not configured.", retry_after=60
)
TOPUP_PAGE_TOO_SLOW = too_slow("request.too_slow", "The payment page was not ready in time.")

ORDER_NOT_FOUND = not_found("order.not_found", "There is no order with this id.")
ORDER_CLAIMED = conflict("order.claimed", "This order has already been claimed.")
ORDER_OVER = conflict(
    "order.over", "This order can't be claimed because its status is {status}.", status="refunded"
)
ORDER_NOT_IN_REVIEW = conflict(
    "order.not_in_review",
    "Order {order_id} is not in review. The order's status is {status}.",
    order_id=4711,
    status="completed",
)
ORDER_RESOLUTION = invalid("order.resolution", "Use either --credit or --refunded.")

PAYMENT_LINK_INVALID = forbidden("payment.link_invalid", "This link doesn't belong to an order.")
PAYMENTS_REFUSED = provider_failed(
    "payments.refused",
    "The payment provider rejected the request ({reason}).",
    reason="the session has no page",
)
PAYMENTS_UNAVAILABLE = unavailable(
    "payments.unavailable",
    "The payment provider is temporarily unavailable. Try again in a few seconds.",
    retry_after=1,
)
WEBHOOK_UNREADABLE = malformed(
    "webhook.unreadable", "The signature is valid, but the body is not a readable event."
)
WEBHOOK_SIGNATURE_INVALID = malformed(
    "webhook.signature_invalid", "The signature is missing, invalid, or more than five minutes old."
)
