"""Pages on which an owner buys credits, and sees the balance, the credit ledger and the orders."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import groupby
from typing import Annotated, Any, Self
from urllib.parse import urlencode

from fastapi import Depends, Request
from fastapi.responses import Response

from api.console.assets import CONSOLE_PATH
from api.console.console_display import format_credits
from api.console.requests import (
    ConsoleAccess,
    ConsoleRequest,
    EmptyForm,
    build_router,
    shows_errors_on,
)
from api.console.typed_forms import TypedForm, build_field_error, read_text
from api.limits.bulkheads import MONEY
from api.paging import Cursor
from api.record_ids import PathId
from api.responses.credits import describe_prices
from api.responses.jobs import wait_for_job
from api.state import Transaction
from core import clock
from core.errors import DomainError
from core.errors.money import ORDER_NOT_FOUND, TOPUP_CHANNEL, TOPUP_CURRENCY
from core.money import format_money
from core.permissions import Permission
from core.queues import Queue
from core.settings import Settings
from integrations.payments.port import PaymentChannel
from models import CreditAction, OrderStatus, PaymentOrder
from services.accounts import accounts
from services.composer import call_charges
from services.credits import checkout, ledger, ledger_pages, orders, return_urls, thresholds
from services.credits.checkout import OrderRequest
from services.credits.ledger_pages import MAX_SCANNED_ENTRIES, LedgerFilter
from services.credits.prices import price_order
from services.paging import PageOfRows, PageRequest

PATH = f"{CONSOLE_PATH}/credits"
router = build_router(PATH)

ORDERS_PATH = f"{PATH}/orders"
ENTRIES_ON_PAGE = 50
# More consecutive entries than this about spent credits become one line, except under a filter.
MAX_SINGLE_ENTRIES = 3
ORDERS_ON_PAGE = 30
# The number of days before today whose spending the credits page shows.
DAYS_OF_SPENDING = 30
# The maximum time that a response waits for the creation of the payment page. If no payment page is
# created in this time, the browser is redirected to the order's page.
WAIT_SECONDS = 15.0

# The form field for the balance below which the owner gets the event ``credits.low``.
THRESHOLD_FIELD = "below_credit"
# The form fields and URL parameters that filter ledger entries.
ACTION_FIELD = "action"
FIRST_DAY_FIELD = "from"
LAST_DAY_FIELD = "to"
# The fields of the order form.
CREDITS_FIELD = "credit_amount"
AMOUNT_FIELD = "amount"
CURRENCY_FIELD = "currency"
PACK_FIELD = "pack"
# The numbers of credits that the order form offers as packs. A user who chooses ``OTHER_PACK``
# types a number of credits or an amount of money.
PACKS = ("500", "1000", "5000")
OTHER_PACK = "other"
CHANNEL_FIELD = "channel"
# Maps an error code to the form field that shows the error.
PLACES = {TOPUP_CURRENCY.code: CURRENCY_FIELD, TOPUP_CHANNEL.code: CHANNEL_FIELD}
ACTION_LABELS = {
    CreditAction.TOPUP: "Bought",
    CreditAction.CONSUME: "Spent",
    CreditAction.CONSUME_REVERSAL: "Spending reversed",
    CreditAction.TOPUP_REFUND: "Removed by a refund",
    CreditAction.GRANT: "Granted by the operator",
    CreditAction.ADJUST: "Corrected by the operator",
    CreditAction.DEBT_PAYMENT: "Debt paid",
}
# A typed amount may contain commas between groups of three digits, because the console shows
# amounts with commas.
_AMOUNT_PATTERN = re.compile(r"(?:\d{1,15}|\d{1,3}(?:,\d{3}){1,4})(?:\.\d{1,15})?", re.ASCII)
_CHANNEL_LABELS = {
    PaymentChannel.STRIPE: "Stripe",
    PaymentChannel.SANDBOX: "Sandbox (no real money)",
}
STATE_LABELS = {
    OrderStatus.CREATED: "being prepared",
    OrderStatus.PENDING: "waiting for your payment",
    OrderStatus.PAID: "paid",
    OrderStatus.PAID_UNCLAIMED: "paid, not claimed yet",
    OrderStatus.FAILED: "failed",
    OrderStatus.EXPIRED: "expired",
    OrderStatus.REVIEW: "under review",
    OrderStatus.DISPUTED: "disputed",
    OrderStatus.REFUNDED: "refunded",
}
_STATE_EXPLANATIONS = {
    OrderStatus.CREATED: "The payment page is being prepared.",
    OrderStatus.PENDING: "You haven’t paid yet. You get the credits after the payment.",
    OrderStatus.PAID: "The credits are in your balance.",
    OrderStatus.PAID_UNCLAIMED: "The credits go to the account that claims the order.",
    OrderStatus.FAILED: "You were not charged.",
    OrderStatus.EXPIRED: (
        "The order wasn’t paid within an hour. A payment that is already in progress still counts. "
        "Otherwise, create a new order."
    ),
    OrderStatus.REVIEW: (
        "The payment doesn’t match the order. The operator will either add the credits or refund "
        "the payment."
    ),
    OrderStatus.DISPUTED: (
        "The payer disputed the payment with their bank, so the credits were removed. If the bank "
        "rejects the dispute, the credits are added again."
    ),
    OrderStatus.REFUNDED: "The payment was refunded in full, and the credits were removed.",
}
MoneyReadPage = Annotated[ConsoleRequest, Depends(ConsoleAccess(permission=Permission.MONEY_READ))]
MoneyPage = Annotated[ConsoleRequest, Depends(ConsoleAccess(permission=Permission.MONEY))]
MoneyForm = Annotated[
    ConsoleRequest, Depends(ConsoleAccess(permission=Permission.MONEY, is_form=True))
]


@dataclass(frozen=True)
class EntryView:
    """An entry of the credit ledger, formatted for a page.

    ``source``: why the balance changed, as stated by an app or operator. ``source`` is empty if the
    entry belongs to an order, because the page then links to the order.
    ``others``: the number of older entries that are merged with this entry.
    """

    words: str
    source: str
    change: str
    balance_after: str
    order_id: int | None
    at: datetime
    delta: Decimal
    others: int = 0

    @classmethod
    def of(cls, entry_json: str) -> Self:
        entry: dict[str, Any] = json.loads(entry_json, parse_float=Decimal)
        delta = Decimal(entry["delta_credit"])
        amount = Decimal(entry["amount_credit"])
        is_composer = entry["source_type"] == call_charges.SOURCE_TYPE
        source = "Composer call" if is_composer else str(entry["source_id"])
        return cls(
            words=ACTION_LABELS[CreditAction(entry["action"])],
            source=source if entry["order_id"] is None else "",
            # If the balance was too low for a deduction, the amount became a debt, and the balance
            # didn't change.
            change=_format_change(delta) if delta else f"0 (debt of {format_credits(amount)})",
            balance_after=format_credits(Decimal(entry["balance_after"])),
            order_id=entry["order_id"],
            at=datetime.fromisoformat(entry["created_at"]),
            delta=delta,
        )


def _format_change(delta: Decimal) -> str:
    # Replace the hyphen of a negative amount with a minus sign, which is as wide as a plus sign.
    return f"{delta.normalize():+,f}".replace("-", "\N{MINUS SIGN}")


def _merge_spending(entries: Sequence[EntryView]) -> list[EntryView]:
    """Merge consecutive entries of a day about spent credits, newest first."""
    spent = ACTION_LABELS[CreditAction.CONSUME]
    merged_entries: list[EntryView] = []
    for (_, words, has_delta), run in groupby(
        entries, lambda each: (each.at.date(), each.words, bool(each.delta))
    ):
        similar_entries = list(run)
        if words == spent and has_delta and len(similar_entries) > MAX_SINGLE_ENTRIES:
            change = _format_change(sum((each.delta for each in similar_entries), Decimal(0)))
            others = len(similar_entries) - 1
            similar_entries = [replace(similar_entries[0], change=change, others=others)]
        merged_entries += similar_entries
    return merged_entries


@router.get("")
@MONEY.threaded
def show_credits(console: MoneyReadPage, form: EmptyForm, cursor: Cursor = None) -> Response:
    """Show the balance and the ledger. ``form``: the form for the alert about a low balance."""
    query = console.request.query_params
    filter_form = TypedForm(
        {
            name: query[name]
            for name in (ACTION_FIELD, FIRST_DAY_FIELD, LAST_DAY_FIELD)
            if query.get(name)
        }
    )
    database = console.state.resources.database
    page: PageOfRows[tuple[int, str]] = PageOfRows([], None)
    try:
        ledger_filter = _read_ledger_filter(filter_form.typed)
        page_request = PageRequest(ENTRIES_ON_PAGE, cursor=cursor)
        page = ledger_pages.list_entries(database, console.account_id, page_request, ledger_filter)
    except DomainError as error:
        filter_form = filter_form.add_error(error)
    threshold = format_credits(Decimal(thresholds.read_threshold(database, console.account_id)))
    account = json.loads(ledger.read_account(database, console.account_id), parse_float=Decimal)
    debt = Decimal(account["debt_credit"])
    balance = Decimal(account["balance_credit"])
    price = call_charges.get_call_price(console.state.resources.settings)
    entries = [EntryView.of(entry) for _, entry in page.rows]
    spending = ledger_pages.sum_spending(database, console.account_id, days=DAYS_OF_SPENDING)
    by_composer = spending.amounts.get(call_charges.SOURCE_TYPE, Decimal(0))
    period_days = max(Decimal((clock.now() - spending.since) / timedelta(days=1)), Decimal(1))
    return console.render_page(
        "credits.html",
        replace(filter_form, status=max(form.status, filter_form.status)),
        low=form.fill({THRESHOLD_FIELD: threshold}),
        balance=format_credits(balance),
        price=price,
        calls=int(balance / price) if price else 0,
        spent_since=spending.since,
        spent_total=format_credits(spending.total),
        spent=[
            (words, format_credits(amount))
            for words, amount in (
                ("Composer", by_composer),
                ("Connected apps and programs", spending.total - by_composer),
            )
            if amount
        ],
        days_left=int(balance / spending.total * period_days) if spending.total > 0 else None,
        # If an owner has a debt, newly bought credits pay off the debt before they raise the
        # balance.
        debt=format_credits(debt) if debt else None,
        entries=entries if filter_form.typed else _merge_spending(entries),
        actions=[
            ("", "All types"),
            *((str(action), words) for action, words in ACTION_LABELS.items()),
        ],
        looked_at=MAX_SCANNED_ENTRIES,
        query=f"?{urlencode(filter_form.typed)}",
        next_cursor=page.next_cursor,
    )


@router.post("/low-balance")
@MONEY.threaded
@shows_errors_on(show_credits)
def set_low_balance(console: MoneyForm) -> Response:
    """Set the balance below which the owner gets the event ``credits.low``."""
    threshold = _read_amount(console.form, THRESHOLD_FIELD)
    if threshold is None:
        raise build_field_error(THRESHOLD_FIELD, "enter a number, or 0 to turn the alert off")
    thresholds.set_threshold(console.state.resources.database, console.account_id, threshold)
    return console.redirect(PATH, "The alert was saved.")


def _read_amount(form: Mapping[str, str], name: str) -> Decimal | None:
    """Return the amount in a form field, or ``None`` if the field is empty."""
    text = form.get(name, "").strip()
    if not text:
        return None
    if not _AMOUNT_PATTERN.fullmatch(text):
        raise build_field_error(name, "must be a number, such as 500 or 12.5")
    return Decimal(text.replace(",", ""))


def _read_ledger_filter(query: Mapping[str, str]) -> LedgerFilter:
    action = read_text(query, ACTION_FIELD)
    if action is not None and action not in [*CreditAction]:
        raise build_field_error(ACTION_FIELD, "choose one of the listed types")
    actions = () if action is None else (CreditAction(action),)
    first_day = _read_day(query, FIRST_DAY_FIELD)
    last_day = _read_day(query, LAST_DAY_FIELD)
    if first_day is not None and last_day is not None and last_day < first_day:
        raise build_field_error(LAST_DAY_FIELD, "must not be before the first day")
    return LedgerFilter(actions, first_day, last_day)


def _read_day(query: Mapping[str, str], name: str) -> date | None:
    text = read_text(query, name)
    if text is None:
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise build_field_error(name, "must be a date, such as 2026-11-22") from None


@router.get("/buy")
@MONEY.threaded
def show_buying(console: MoneyPage, form: EmptyForm) -> Response:
    channels = console.state.payments.configured
    settings = console.state.resources.settings
    prices = [
        {
            "currency": (currency := each["currency"]),
            "of_100": _format_price(settings, currency, Decimal(100)),
            "least": format_money(each["minimum"], currency),
            "most": format_money(each["maximum"], currency),
        }
        for each in describe_prices(settings, channels)["currencies"]
    ]
    packs = _list_packs(settings, [each["currency"] for each in prices])
    return console.render_page(
        "buy_credits.html",
        form.fill({PACK_FIELD: packs[0][0]}) if packs else form,
        prices=prices,
        packs=packs,
        currencies=[(each["currency"], each["currency"]) for each in prices],
        channels=[(str(each), _CHANNEL_LABELS[each]) for each in channels],
    )


def _list_packs(settings: Settings, currencies: Sequence[str]) -> list[tuple[str, str, str]]:
    """Return the value, label and prices of each pack that the order form offers.

    A pack of credits is left out if its price is too low or too high for an order.
    """
    packs = []
    for pack in PACKS:
        try:
            amounts = [_format_price(settings, each, Decimal(pack)) for each in currencies]
        except DomainError:
            continue
        packs.append((pack, f"{int(pack):,} credits", " · ".join(amounts)))
    return [*packs, (OTHER_PACK, "Another number", "")] if packs else []


def _format_price(settings: Settings, currency: str, credit_amount: Decimal) -> str:
    """Format the price of ``credit_amount``, and raise the same errors as ``price_order``."""
    price = price_order(settings, currency=currency, amount=None, credit_amount=credit_amount)
    return format_money(price.amount, currency)


@router.post("/buy")
@shows_errors_on(show_buying, PLACES)
async def buy_credits(request: Request, console: MoneyForm) -> Response:
    """Order credits, and redirect to the order's page, which links to the payment page.

    The Content-Security-Policy forbids redirects to other sites after a form was sent.
    """
    state = console.state
    order_request = _read_order(console)
    state.queue_ages.check(Queue.MONEY, waits=True)
    accepted = await MONEY.run(
        checkout.place_order,
        state.resources,
        state.payments,
        order_request,
        account_id=console.account_id,
        key=None,
    )
    await wait_for_job(request, state, accepted.job_id, WAIT_SECONDS)
    return console.redirect(f"{PATH}/orders/{accepted.subject_id}")


def _read_order(console: ConsoleRequest) -> OrderRequest:
    """Return the entered order: a pack, or either a number of credits or an amount of money."""
    form = console.form
    pack = form.get(PACK_FIELD, OTHER_PACK)
    credit_amount = _read_amount(form, CREDITS_FIELD) if pack == OTHER_PACK else None
    amount = _read_amount(form, AMOUNT_FIELD) if pack == OTHER_PACK else None
    if pack in PACKS:
        # Ignore a number of credits and an amount of money that the user typed before choosing a
        # pack. If the user chooses a pack, the page hides the inputs for the credits and the
        # amount, but browsers send hidden inputs too.
        credit_amount = Decimal(pack)
    if credit_amount and amount:
        raise build_field_error(AMOUNT_FIELD, "enter either the credits or the amount, not both")
    if not credit_amount and not amount:
        raise build_field_error(CREDITS_FIELD, "enter a number of credits or an amount to pay")
    return OrderRequest(
        amount=amount,
        credit_amount=credit_amount,
        currency=read_text(form, CURRENCY_FIELD),
        channel=read_text(form, CHANNEL_FIELD),
        redirect_url=return_urls.console_url(console.state.resources.settings),
    )


@dataclass(frozen=True)
class OrderView:
    order: PaymentOrder

    @property
    def status(self) -> OrderStatus:
        return OrderStatus(self.order.status)

    @property
    def state(self) -> str:
        return STATE_LABELS[self.status]

    @property
    def meaning(self) -> str:
        if self.status is OrderStatus.PAID and self.order.lost_minor:
            return (
                "Part of the payment was refunded, and the same share of the credits was removed."
            )
        return _STATE_EXPLANATIONS[self.status]

    @property
    def reason(self) -> str | None:
        return None if self.order.error is None else str(self.order.error["message"])

    @property
    def is_live(self) -> bool:
        """Return whether the order is still waiting for its payment."""
        return self.status in {OrderStatus.CREATED, OrderStatus.PENDING}

    @property
    def payment_url(self) -> str | None:
        return self.order.payment_url if self.status is OrderStatus.PENDING else None

    @property
    def amount(self) -> str:
        return format_money(self.order.amount, self.order.currency)

    @property
    def credits(self) -> str:
        return format_credits(self.order.credit_amount)

    @property
    def refunded(self) -> str | None:
        refunded_amount = self.order.refunded_amount
        return format_money(refunded_amount, self.order.currency) if refunded_amount else None

    @property
    def paid_amount(self) -> str:
        """Return the paid amount minus refunds."""
        paid_amount: Decimal = self.order.amount - self.order.refunded_amount
        return format_money(paid_amount, self.order.currency)

    @property
    def has_receipt(self) -> bool:
        """Return whether the order is paid and credited. An order in review has no receipt."""
        return self.order.paid_at is not None and self.order.credited > 0


@router.get("/orders")
@MONEY.threaded
def show_orders(console: MoneyReadPage, uow: Transaction, cursor: Cursor = None) -> Response:
    """Show a page of the orders that the owner placed or claimed, unpaid orders first."""
    page_request = PageRequest(ORDERS_ON_PAGE, cursor=cursor)
    page = orders.list_orders(uow, console.account_id, page_request, status=None)
    views = sorted(map(OrderView, page.rows), key=lambda view: view.payment_url is None)
    return console.render_page("orders.html", orders=views, next_cursor=page.next_cursor)


@router.get("/orders/{order_id}")
@MONEY.threaded
def show_order(console: MoneyReadPage, uow: Transaction, order_id: PathId) -> Response:
    return console.render_page(
        "order.html", order=OrderView(orders.get_order(uow, console.account_id, order_id))
    )


@router.get("/orders/{order_id}/receipt")
@MONEY.threaded
def show_receipt(console: MoneyReadPage, uow: Transaction, order_id: PathId) -> Response:
    order = OrderView(orders.get_order(uow, console.account_id, order_id))
    if not order.has_receipt:
        raise ORDER_NOT_FOUND()
    owner = accounts.get_owner(uow, console.account_id)
    return console.render_page(
        "receipt.html",
        order=order,
        rate=format_credits(order.order.credits_per_usd),
        name=owner.name,
        email=owner.email,
        host=console.state.resources.settings.public_url.host,
    )


@router.get(return_urls.CONSOLE_RETURN_PATH.removeprefix(PATH))
async def return_from_checkout(console: MoneyReadPage, order_id: PathId | None = None) -> Response:
    """Redirect to the order's page. Ignore the status in the URL, because payers can change it."""
    return console.redirect(ORDERS_PATH if order_id is None else f"{ORDERS_PATH}/{order_id}")
