"""An owner's credits: what they have, what became of them, and the order of more."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Self
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from fastapi.responses import Response

from api.auth.redirects import redirect_to_path
from api.auth.requirements import PUBLIC
from api.console.assets import CONSOLE_PATH
from api.console.console_display import format_credits
from api.console.requests import Console, ConsoleForm, ConsoleRequest, EmptyForm
from api.console.typed_forms import TypedForm, field_error, read_text
from api.limits.bulkheads import MONEY
from api.paging import Cursor
from api.record_ids import PathId
from api.responses.jobs import wait_for_job
from api.route_classes import ThreadedRoute
from api.schemas.credits import describe_prices
from api.state import Transaction
from core.errors import DomainError
from core.errors.money import ORDER_NOT_FOUND, TOPUP_CHANNEL, TOPUP_CURRENCY
from core.money import minor_digits
from core.queues import Queue
from integrations.payments.port import PaymentChannel
from models import CreditAction, OrderStatus, PaymentOrder
from services.accounts import accounts
from services.composer import call_charges
from services.credits import checkout, ledger, ledger_pages, orders, return_urls, thresholds
from services.credits.checkout import OrderRequest
from services.credits.ledger_pages import MAX_SCANNED_ENTRIES, LedgerFilter
from services.paging import PageOfRows, PageRequest

PATH = f"{CONSOLE_PATH}/credits"
router = APIRouter(
    prefix=PATH, dependencies=[PUBLIC], include_in_schema=False, route_class=ThreadedRoute
)

# -- the balance and the ledger -------------------------------------------------------------------

ENTRIES_ON_PAGE = 50
BELOW = "below_credit"
# The fields of the form that chooses entries, which are in the page's URL.
ACTION, FIRST, LAST = "action", "from", "to"
ACTIONS = {
    CreditAction.TOPUP: "Bought",
    CreditAction.CONSUME: "Spent",
    CreditAction.CONSUME_REVERSAL: "Spending taken back",
    CreditAction.TOPUP_REFUND: "Taken back with a refund",
    CreditAction.GRANT: "Given by the operator",
    CreditAction.ADJUST: "Corrected",
    CreditAction.DEBT_PAYMENT: "Paid a debt",
}
# Digits, or digits in groups of three as the console writes them.
_TYPED = re.compile(r"(?:\d{1,15}|\d{1,3}(?:,\d{3}){1,4})(?:\.\d{1,15})?", re.ASCII)


def money_text(amount: Decimal, currency: str) -> str:
    """Write an amount of money with the currency's own decimals: "1,234.50 USD"."""
    return f"{amount:,.{minor_digits(currency)}f} {currency}"


def _typed_amount(form: Mapping[str, str], name: str) -> Decimal | None:
    """Return the amount in this field, ``None`` for nothing. Raises ``body.invalid``."""
    typed = form.get(name, "").strip()
    if not typed:
        return None
    if not _TYPED.fullmatch(typed):
        raise field_error(name, "must be a number, such as 500 or 12.5")
    return Decimal(typed.replace(",", ""))


@dataclass(frozen=True)
class EntryView:
    """An entry of the ledger.

    Attributes:
        source: the reason, as whoever charged or gave the credits named it; the page links to the
            order instead if there is one.
    """

    words: str
    source: str
    change: str
    balance_after: str
    order_id: int | None
    at: datetime

    @classmethod
    def of(cls, written: str) -> Self:
        entry: dict[str, Any] = json.loads(written, parse_float=Decimal)
        delta, amount = Decimal(entry["delta_credit"]), Decimal(entry["amount_credit"])
        is_composer = entry["source_type"] == call_charges.SOURCE_TYPE
        source = "A call of the composer" if is_composer else str(entry["source_id"])
        # A minus sign, which is as wide as the plus.
        change = f"{delta.normalize():+,f}".replace("-", "\N{MINUS SIGN}")
        return cls(
            words=ACTIONS[CreditAction(entry["action"])],
            source=source if entry["order_id"] is None else "",
            # An amount that the balance no longer had is a debt, and no change.
            change=change if delta else f"0 (debt of {format_credits(amount)})",
            balance_after=format_credits(Decimal(entry["balance_after"])),
            order_id=entry["order_id"],
            at=datetime.fromisoformat(entry["created_at"]),
        )


@router.get("")
@MONEY.threaded
def show_credits(console: Console, cursor: Cursor = None) -> Response:
    return _credits_page(console, cursor, None)


@router.post("/low-balance")
@MONEY.threaded
def set_low_balance(console: ConsoleForm) -> Response:
    """Set the balance below which the owner's events tell that the credits run low."""
    try:
        below = _typed_amount(console.form, BELOW)
        if below is None:
            raise field_error(BELOW, "say a number; 0: nothing is told")
        thresholds.set_threshold(console.state.resources.database, console.user_id, below)
    except DomainError as error:
        return _credits_page(console, None, console.add_error(error))
    return console.redirect_with_notice(PATH, "That is kept.")


def _credits_page(console: ConsoleRequest, cursor: str | None, low: TypedForm | None) -> Response:
    sent = console.request.query_params
    form = TypedForm({name: sent[name] for name in (ACTION, FIRST, LAST) if sent.get(name)})
    database = console.state.resources.database
    found: PageOfRows[tuple[int, str]] = PageOfRows([], None)
    try:
        only, wanted = _ledger_filter(form.typed), PageRequest(ENTRIES_ON_PAGE, cursor=cursor)
        found = ledger_pages.list_entries(database, console.user_id, wanted, only)
    except DomainError as error:
        form = form.add_error(error)
    below = format_credits(Decimal(thresholds.read_threshold(database, console.user_id)))
    account = json.loads(ledger.read_account(database, console.user_id), parse_float=Decimal)
    debt = Decimal(account["debt_credit"])
    return console.render_page(
        "credits.html",
        status=(low or form).status,
        form=form,
        low=low or TypedForm({BELOW: below}),
        balance=format_credits(Decimal(account["balance_credit"])),
        # The next purchase pays it first.
        debt=format_credits(debt) if debt else None,
        entries=[EntryView.of(entry) for _, entry in found.rows],
        actions=[("", "All kinds"), *((str(action), words) for action, words in ACTIONS.items())],
        looked_at=MAX_SCANNED_ENTRIES,
        query=f"?{urlencode(form.typed)}",
        next_cursor=found.next_cursor,
    )


def _ledger_filter(query: Mapping[str, str]) -> LedgerFilter:
    action = read_text(query, ACTION)
    if action is not None and action not in [*CreditAction]:
        raise field_error(ACTION, "must be one of those that the page offers")
    actions = () if action is None else (CreditAction(action),)
    first, last = _day(query, FIRST), _day(query, LAST)
    if first is not None and last is not None and last < first:
        raise field_error(LAST, "must not be before the first day")
    return LedgerFilter(actions, first, last)


def _day(query: Mapping[str, str], name: str) -> date | None:
    typed = read_text(query, name)
    if typed is None:
        return None
    try:
        return date.fromisoformat(typed)
    except ValueError:
        raise field_error(name, "must be a day, such as 2026-11-22") from None


CREDITS, AMOUNT, CURRENCY, CHANNEL = "credit_amount", "amount", "currency", "channel"
# The form fields at which errors without a field of their own are shown.
PLACES = {TOPUP_CURRENCY.code: CURRENCY, TOPUP_CHANNEL.code: CHANNEL}
_CHANNELS = {PaymentChannel.STRIPE: "Stripe", PaymentChannel.SANDBOX: "The sandbox: no real money"}
# A person waits so long before an empty page; then the order's page tells how it goes on.
WAIT_SECONDS = 15.0


@router.get("/buy")
@MONEY.threaded
def show_buying(console: Console, form: EmptyForm) -> Response:
    channels = console.state.payments.configured
    prices = [
        {
            "currency": (currency := each["currency"]),
            "per_unit": format_credits(each["credits_per_unit"]),
            "least": money_text(each["minimum"], currency),
            "most": money_text(each["maximum"], currency),
        }
        for each in describe_prices(console.state.resources.settings, channels)["currencies"]
    ]
    return console.render_form(
        "buy_credits.html",
        form,
        prices=prices,
        currencies=[(each["currency"], each["currency"]) for each in prices],
        channels=[(str(each), _CHANNELS[each]) for each in channels],
    )


@router.post("/buy")
async def buy_credits(request: Request, console: ConsoleForm) -> Response:
    """Order credits, and redirect to the order, whose page links to the payment.

    No redirect to the provider's page itself: our policy keeps forms from leading to other sites.
    """
    state = console.state
    try:
        wanted = _order_request(console)
        state.queue_ages.check(Queue.MONEY, waits=True)
        accepted = await MONEY.run(
            checkout.place_order,
            state.resources,
            state.payments,
            wanted,
            user_id=console.user_id,
            key=None,
        )
        await wait_for_job(request, state, accepted.job_id, WAIT_SECONDS)
    except DomainError as error:
        return await show_buying(console, console.add_error(error, PLACES))
    return redirect_to_path(state, f"{PATH}/orders/{accepted.subject_id}")


def _order_request(console: ConsoleRequest) -> OrderRequest:
    """Return the order that the form asks for, of credits or of what an amount of money buys.

    Its payer comes back to the console. Raises ``body.invalid``.
    """
    form = console.form
    bought, paid = _typed_amount(form, CREDITS), _typed_amount(form, AMOUNT)
    if bought and paid:
        raise field_error(AMOUNT, "is for those who leave the number of credits empty")
    if not bought and not paid:
        raise field_error(CREDITS, "say how many credits you want, or what you want to pay")
    return OrderRequest(
        amount=paid,
        credit_amount=bought,
        currency=read_text(form, CURRENCY),
        channel=read_text(form, CHANNEL),
        redirect_url=return_urls.console_url(console.state.resources.settings),
    )


ORDERS_PATH = f"{PATH}/orders"
ORDERS_ON_PAGE = 30
STATES = {
    OrderStatus.CREATED: "being opened",
    OrderStatus.PENDING: "waits for your payment",
    OrderStatus.PAID: "paid",
    OrderStatus.PAID_UNCLAIMED: "paid, and not claimed yet",
    OrderStatus.FAILED: "failed",
    OrderStatus.EXPIRED: "expired",
    OrderStatus.REVIEW: "looked at by the operator",
    OrderStatus.DISPUTED: "disputed",
    OrderStatus.REFUNDED: "refunded",
}
_MEANINGS = {
    OrderStatus.CREATED: "The page on which you pay is being opened.",
    OrderStatus.PENDING: "Nothing is paid yet. Once you have paid, the credits are yours.",
    OrderStatus.PAID: "The credits are in your balance.",
    OrderStatus.PAID_UNCLAIMED: "It is paid, and gives its credits to whoever claims it.",
    OrderStatus.FAILED: "Nothing was paid, and nothing will be.",
    OrderStatus.EXPIRED: (
        "Its hour passed without a payment. A payment that was under way still counts when it "
        "arrives; for anything else make a new order."
    ),
    OrderStatus.REVIEW: (
        "Something was paid that isn’t just what was ordered. The operator looks at it, and gives "
        "you the credits or the money back."
    ),
    OrderStatus.DISPUTED: (
        "The payer’s bank took the money back for now, and so the credits are gone. They come back "
        "if the dispute ends in favour of the payment."
    ),
    OrderStatus.REFUNDED: "All of the money went back, and the credits with it.",
}


@dataclass(frozen=True)
class OrderView:
    order: PaymentOrder

    @property
    def status(self) -> OrderStatus:
        return OrderStatus(self.order.status)

    @property
    def state(self) -> str:
        return STATES[self.status]

    @property
    def meaning(self) -> str:
        if self.status is OrderStatus.PAID and self.order.lost_minor:
            return "Some of the money went back, and as many of the credits with it."
        return _MEANINGS[self.status]

    @property
    def reason(self) -> str | None:
        """The reason of its failure, if that is known."""
        return None if self.order.error is None else str(self.order.error["message"])

    @property
    def is_live(self) -> bool:
        """Return whether it may change by itself while a person looks."""
        return self.status in {OrderStatus.CREATED, OrderStatus.PENDING}

    @property
    def payment_url(self) -> str | None:
        return self.order.payment_url if self.status is OrderStatus.PENDING else None

    @property
    def amount(self) -> str:
        return money_text(self.order.amount, self.order.currency)

    @property
    def credits(self) -> str:
        return format_credits(self.order.credit_amount)

    @property
    def refunded(self) -> str | None:
        given_back = self.order.refunded_amount
        return money_text(given_back, self.order.currency) if given_back else None

    @property
    def kept(self) -> str:
        """The money that is paid for good."""
        left: Decimal = self.order.amount - self.order.refunded_amount
        return money_text(left, self.order.currency)

    @property
    def has_receipt(self) -> bool:
        """Return whether money was taken for the order: not while the operator looks at it."""
        return self.order.paid_at is not None and self.order.credited > 0


@router.get("/orders")
@MONEY.threaded
def show_orders(console: Console, uow: Transaction, cursor: Cursor = None) -> Response:
    """Show the owner's orders, those that they claimed too, newest first."""
    wanted = PageRequest(ORDERS_ON_PAGE, cursor=cursor)
    found = orders.list_orders(uow, console.user_id, wanted, status=None)
    shown = [OrderView(order) for order in found.rows]
    return console.render_page("orders.html", orders=shown, next_cursor=found.next_cursor)


@router.get("/orders/{order_id}")
@MONEY.threaded
def show_order(console: Console, uow: Transaction, order_id: PathId) -> Response:
    return console.render_page(
        "order.html", order=OrderView(orders.get_order(uow, console.user_id, order_id))
    )


@router.get("/orders/{order_id}/receipt")
@MONEY.threaded
def show_receipt(console: Console, uow: Transaction, order_id: PathId) -> Response:
    """Show what was bought and paid, as a page to print; raises where nothing was."""
    order = OrderView(orders.get_order(uow, console.user_id, order_id))
    if not order.has_receipt:
        raise ORDER_NOT_FOUND()
    person = accounts.get(uow, console.user_id)
    return console.render_page(
        "receipt.html",
        order=order,
        rate=format_credits(order.order.credits_per_usd),
        name=person.name,
        email=person.email,
        host=console.state.resources.settings.public_url.host,
    )


@router.get(return_urls.CONSOLE_RETURN_PATH.removeprefix(PATH))
async def return_from_checkout(console: Console, order_id: PathId | None = None) -> Response:
    """Redirect to the order after its payment; the state in the URL is not believed."""
    path = ORDERS_PATH if order_id is None else f"{ORDERS_PATH}/{order_id}"
    return redirect_to_path(console.state, path)
