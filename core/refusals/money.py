"""Credits, orders and payments."""

from core.money import MAX_AMOUNT
from core.refusals.refusal import (
    conflict,
    forbidden,
    invalid,
    malformed,
    not_found,
    payment_needed,
    provider_failed,
    too_slow,
    unavailable,
)

CREDITS_INSUFFICIENT = payment_needed("credits.insufficient", "The balance is too low for this.")
CREDITS_AMOUNT = invalid(
    "credits.amount",
    "An amount is above 0, at most {most:,} and has at most four decimals.",
    field="body.amount_credit",
    most=MAX_AMOUNT,
)
CREDITS_AMOUNT_TEXT = invalid("credits.amount", "{amount!r} is not a number.", amount="ten")
CREDITS_BALANCE_TOO_LARGE = invalid(
    "credits.amount", "The balance would be beyond what can be kept."
)
CREDITS_SOURCE_ID = invalid(
    "credits.source_id",
    "body.source_id: has 1 to {most} characters, not all blank",
    field="body.source_id",
    most=255,
)
CREDITS_META = invalid(
    "credits.meta", "body.meta: has at most 8 KB and no NUL characters", field="body.meta"
)
CREDITS_META_UNWRITABLE = invalid(
    "credits.meta",
    "body.meta: has no half characters, no numbers beyond a double and no endless depth",
    field="body.meta",
)
CHARGE_IN_PROGRESS = conflict(
    "idempotency.in_progress", "Another charge of this account is still under way."
)

TOPUP_CURRENCY = invalid(
    "topup.currency",
    "body.currency: is one of {known}",
    field="body.currency",
    known="USD, EUR, GBP, JPY",
)
TOPUP_AMOUNT_MISSING = invalid(
    "topup.amount_missing",
    "body.amount or body.credit_amount must be above 0.",
    field="body.amount",
)
TOPUP_AMOUNT = invalid(
    "topup.amount",
    "{place}: is above 0, at most {most:,} and has at most four decimals",
    field="{place}",
    place="body.credit_amount",
    most=MAX_AMOUNT,
)
TOPUP_AMOUNT_DECIMALS = invalid(
    "topup.amount",
    "body.amount: an amount in {currency} has at most {digits} decimals",
    field="body.amount",
    currency="JPY",
    digits=0,
)
TOPUP_AMOUNT_MISMATCH = invalid(
    "topup.amount_mismatch",
    "body.amount and body.credit_amount do not agree; send one of them.",
    field="body.amount",
)
TOPUP_AMOUNT_TOO_SMALL = invalid(
    "topup.amount_too_small",
    "{place}: the smallest order is {least} {currency}",
    field="{place}",
    place="body.amount",
    least="0.50",
    currency="USD",
)
TOPUP_BUYS_NOTHING = invalid(
    "topup.amount_too_small", "body.amount: buys no credits at all", field="body.amount"
)
TOPUP_AMOUNT_TOO_LARGE = invalid(
    "topup.amount_too_large",
    "{place}: the largest order is {most:,} {currency}",
    field="{place}",
    place="body.amount",
    most=999_999.99,
    currency="USD",
)
TOPUP_BUYS_TOO_MUCH = invalid(
    "topup.amount_too_large", "body.amount: buys too many credits", field="body.amount"
)
TOPUP_REDIRECT_NOT_ALLOWED = invalid(
    "topup.redirect_not_allowed",
    "body.redirect_url: is an absolute http or https address of an allowed origin, at most {most} "
    "characters, whose query has no {order} or {status} of its own",
    field="body.redirect_url",
    most=2048,
    order="order_id",
    status="status",
)
TOPUP_TOO_LATE = too_slow("topup.too_late", "The order was not opened in time; make a new one.")
TOPUP_CHANNEL = invalid(
    "topup.channel",
    "body.channel: is one of {known}",
    field="body.channel",
    known="stripe, sandbox",
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
