"""Credits, orders and payments."""

from core.errors import Kind
from core.money import MAX_AMOUNT
from core.refusals.refusal import Refusal

CREDITS_INSUFFICIENT = Refusal(
    Kind.PAYMENT_NEEDED, "credits.insufficient", "The balance is too low for this."
)
CREDITS_AMOUNT = Refusal(
    Kind.INVALID,
    "credits.amount",
    "An amount is above 0, at most {most:,} and has at most four decimals.",
    field="body.amount_credit",
    examples={"most": MAX_AMOUNT},
)
CREDITS_AMOUNT_TEXT = Refusal(
    Kind.INVALID,
    "credits.amount",
    "{amount!r} is not a number.",
    examples={"amount": "ten"},
)
CREDITS_BALANCE_TOO_LARGE = Refusal(
    Kind.INVALID, "credits.amount", "The balance would be beyond what can be kept."
)
CREDITS_SOURCE_ID = Refusal(
    Kind.INVALID,
    "credits.source_id",
    "body.source_id: has 1 to {most} characters, not all blank",
    field="body.source_id",
    examples={"most": 255},
)
CREDITS_META = Refusal(
    Kind.INVALID,
    "credits.meta",
    "body.meta: has at most 8 KB and no NUL characters",
    field="body.meta",
)
CREDITS_META_UNWRITABLE = Refusal(
    Kind.INVALID,
    "credits.meta",
    "body.meta: has no half characters, no numbers beyond a double and no endless depth",
    field="body.meta",
)
CHARGE_IN_PROGRESS = Refusal(
    Kind.CONFLICT,
    "idempotency.in_progress",
    "Another charge of this account is still under way.",
)

TOPUP_CURRENCY = Refusal(
    Kind.INVALID,
    "topup.currency",
    "body.currency: is one of {known}",
    field="body.currency",
    examples={"known": "USD, EUR, GBP, JPY"},
)
TOPUP_AMOUNT_MISSING = Refusal(
    Kind.INVALID,
    "topup.amount_missing",
    "body.amount or body.credit_amount must be above 0.",
    field="body.amount",
)
TOPUP_AMOUNT = Refusal(
    Kind.INVALID,
    "topup.amount",
    "{place}: is above 0, at most {most:,} and has at most four decimals",
    field="{place}",
    examples={"place": "body.credit_amount", "most": MAX_AMOUNT},
)
TOPUP_AMOUNT_DECIMALS = Refusal(
    Kind.INVALID,
    "topup.amount",
    "body.amount: an amount in {currency} has at most {digits} decimals",
    field="body.amount",
    examples={"currency": "JPY", "digits": 0},
)
TOPUP_AMOUNT_MISMATCH = Refusal(
    Kind.INVALID,
    "topup.amount_mismatch",
    "body.amount and body.credit_amount do not agree; send one of them.",
    field="body.amount",
)
TOPUP_AMOUNT_TOO_SMALL = Refusal(
    Kind.INVALID,
    "topup.amount_too_small",
    "{place}: the smallest order is {least} {currency}",
    field="{place}",
    examples={"place": "body.amount", "least": "0.50", "currency": "USD"},
)
TOPUP_BUYS_NOTHING = Refusal(
    Kind.INVALID,
    "topup.amount_too_small",
    "body.amount: buys no credits at all",
    field="body.amount",
)
TOPUP_AMOUNT_TOO_LARGE = Refusal(
    Kind.INVALID,
    "topup.amount_too_large",
    "{place}: the largest order is {most:,} {currency}",
    field="{place}",
    examples={"place": "body.amount", "most": 999_999.99, "currency": "USD"},
)
TOPUP_BUYS_TOO_MUCH = Refusal(
    Kind.INVALID,
    "topup.amount_too_large",
    "body.amount: buys too many credits",
    field="body.amount",
)
TOPUP_REDIRECT_NOT_ALLOWED = Refusal(
    Kind.INVALID,
    "topup.redirect_not_allowed",
    "body.redirect_url: is an absolute http or https address of an allowed origin, at most {most} "
    "characters, whose query has no {order} or {status} of its own",
    field="body.redirect_url",
    examples={"most": 2048, "order": "order_id", "status": "status"},
)
TOPUP_TOO_LATE = Refusal(
    Kind.TOO_SLOW,
    "topup.too_late",
    "The order was not opened in time; make a new one.",
)
TOPUP_CHANNEL = Refusal(
    Kind.INVALID,
    "topup.channel",
    "body.channel: is one of {known}",
    field="body.channel",
    examples={"known": "stripe, sandbox"},
)
TOPUP_NO_SANDBOX = Refusal(
    Kind.INVALID,
    "topup.channel_unavailable",
    "There is no sandbox here.",
    field="body.channel",
)
TOPUP_CHANNEL_UNAVAILABLE = Refusal(
    Kind.UNAVAILABLE,
    "topup.channel_unavailable",
    "Payments through {channel} are not set up here.",
    retry_after=60,
    examples={"channel": "stripe"},
)
TOPUP_NO_CHANNEL = Refusal(
    Kind.UNAVAILABLE,
    "topup.channel_unavailable",
    "Payments are not set up here.",
    retry_after=60,
)
TOPUP_PAGE_TOO_SLOW = Refusal(Kind.TOO_SLOW, "request.too_slow", "The page was not opened in time.")

ORDER_NOT_FOUND = Refusal(Kind.NOT_FOUND, "order.not_found", "There is no such order.")
ORDER_CLAIMED = Refusal(Kind.CONFLICT, "order.claimed", "This order belongs to somebody already.")
ORDER_OVER = Refusal(
    Kind.CONFLICT,
    "order.over",
    "This order is {status}; there is nothing to claim.",
    examples={"status": "refunded"},
)
ORDER_NOT_IN_REVIEW = Refusal(
    Kind.CONFLICT,
    "order.not_in_review",
    "Order {order_id} is {status}.",
    examples={"order_id": 4711, "status": "completed"},
)
ORDER_RESOLUTION = Refusal(Kind.INVALID, "order.resolution", "Say either --credit or --refunded.")

PAYMENT_LINK_INVALID = Refusal(
    Kind.FORBIDDEN, "payment.link_invalid", "This link does not lead to an order."
)
PAYMENTS_REFUSED = Refusal(
    Kind.PROVIDER_FAILED,
    "payments.refused",
    "The payment provider refused the request ({reason}).",
    examples={"reason": "the session has no page"},
)
PAYMENTS_UNAVAILABLE = Refusal(
    Kind.UNAVAILABLE,
    "payments.unavailable",
    "The payment provider can't be reached at the moment.",
    retry_after=1,
)
WEBHOOK_UNREADABLE = Refusal(
    Kind.MALFORMED,
    "webhook.unreadable",
    "The body is signed, but no event can be read from it.",
)
WEBHOOK_SIGNATURE_INVALID = Refusal(
    Kind.MALFORMED,
    "webhook.signature_invalid",
    "The signature is missing, wrong, or more than five minutes old.",
)
