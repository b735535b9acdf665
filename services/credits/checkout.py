"""Makes an order: the API checks and stores its terms, and a worker opens the provider's page."""

import base64
import math
import re
from dataclasses import asdict, dataclass
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction

from sqlalchemy import select

from core import clock, ids
from core.errors import DomainError, Kind
from core.errors import money as errors
from core.keyring import Keyring
from core.money import MAX_AMOUNT, PLACES, is_storable
from core.queues import Queue
from core.scopes import Scope
from core.settings import Settings
from core.settings.notations import Currency
from integrations.payments.port import Checkout, OpenedCheckout, PaymentChannel
from integrations.payments.registry import PaymentChannels
from models import Job, OrderStatus, OrderVia, PaymentOrder
from services.credits import orders
from services.credits.settlement import apply_facts, lock
from services.jobs import idempotency
from services.jobs.idempotency import AcceptedJob, IdempotencyKey
from services.jobs.kinds import JobKind, register_kind
from services.jobs.lease import Lease
from services.jobs.records import describe_error
from services.jobs.transitions import complete_job
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

# Money is rounded up to the minor unit and credits down to four decimals, so that no order gives
# more credits than were paid.

# The most that Stripe takes: eight digits of the minor unit.
MAX_AMOUNT_MINOR = 99_999_999
_AMOUNT, _CREDIT_AMOUNT = "body.amount", "body.credit_amount"


@dataclass(frozen=True)
class Price:
    """The terms of an order, named as its columns."""

    currency: str
    amount: Decimal
    amount_minor: int
    credit_amount: Decimal
    credits_per_usd: Decimal
    units_per_usd: Decimal


@dataclass(frozen=True)
class CreditRate:
    """Converts money to credits, and credits to money."""

    currency: Currency
    credits_per_usd: Decimal

    @property
    def _credits_per_unit(self) -> Fraction:
        return Fraction(self.credits_per_usd) / Fraction(self.currency.per_usd)

    def credits(self, minor: int) -> Decimal:
        """Return the credits that an amount in the minor unit buys, rounded down."""
        bought = Fraction(minor, 10**self.currency.digits) * self._credits_per_unit
        return Decimal(math.floor(bought * 10**PLACES)).scaleb(-PLACES)

    def minor(self, credit_amount: Decimal) -> int:
        """Return the price of credits in the minor unit, rounded up."""
        units = Fraction(credit_amount) / self._credits_per_unit
        return math.ceil(units * int(10**self.currency.digits))

    @property
    def least_minor(self) -> int:
        """The smallest order in the minor unit: the currency's own, or what buys any credits."""
        smallest = self.minor(Decimal(1).scaleb(-PLACES))
        return max(int(self.currency.minimum.scaleb(self.currency.digits)), smallest)

    @property
    def most_minor(self) -> int:
        """The largest order in the minor unit: what the provider takes and a balance can hold."""
        holds = self.minor(MAX_AMOUNT)
        if self.credits(holds) > MAX_AMOUNT:
            holds -= 1
        return min(MAX_AMOUNT_MINOR, holds)


def price(
    settings: Settings,
    *,
    currency: str | None,
    amount: Decimal | None,
    credit_amount: Decimal | None,
) -> Price:
    """Price an order by its money, its credits or both; 0 counts as not given.

    Raises ``topup.currency``, ``topup.amount``, ``topup.amount_missing``,
    ``topup.amount_mismatch``, ``topup.amount_too_small``, ``topup.amount_too_large``.
    """
    known = {each.code: each for each in settings.currencies}
    code = next(iter(known)) if currency is None else currency.upper()
    if code not in known:
        raise errors.TOPUP_CURRENCY(known=", ".join(known))
    rate = CreditRate(known[code], settings.credits_per_usd)
    minor = _minor(rate, amount, credit_amount)
    place = _AMOUNT if amount else _CREDIT_AMOUNT
    least, digits = rate.currency.minimum, rate.currency.digits
    if minor < int(least.scaleb(digits)):
        raise errors.TOPUP_AMOUNT_TOO_SMALL(place=place, least=least, currency=code)
    if minor > MAX_AMOUNT_MINOR:
        most = Decimal(MAX_AMOUNT_MINOR).scaleb(-digits)
        raise errors.TOPUP_AMOUNT_TOO_LARGE(place=place, most=most, currency=code)
    bought = credit_amount or rate.credits(minor)
    if not bought:
        raise errors.TOPUP_BUYS_NOTHING()
    if bought > MAX_AMOUNT:
        raise errors.TOPUP_BUYS_TOO_MUCH()
    paid = Decimal(minor).scaleb(-digits)
    return Price(code, paid, minor, bought, rate.credits_per_usd, rate.currency.per_usd)


def _check_amount(amount: Decimal, place: str) -> None:
    if not is_storable(amount) or amount < 0:
        raise errors.TOPUP_AMOUNT(place=place, most=MAX_AMOUNT)


def _minor(rate: CreditRate, amount: Decimal | None, credit_amount: Decimal | None) -> int:
    """Return the price in the minor unit; a caller that sends both computed one from the other."""
    if not amount and not credit_amount:
        raise errors.TOPUP_AMOUNT_MISSING()
    paid = None
    if amount:
        _check_amount(amount, _AMOUNT)
        currency, exact = rate.currency, amount.scaleb(rate.currency.digits)
        if exact != int(exact):
            raise errors.TOPUP_AMOUNT_DECIMALS(currency=currency.code, digits=currency.digits)
        paid = int(exact)
    if credit_amount:
        _check_amount(credit_amount, _CREDIT_AMOUNT)
        price = rate.minor(credit_amount)
        if paid is None:
            return price
        if paid != price and rate.credits(paid) != credit_amount:
            raise errors.TOPUP_AMOUNT_MISMATCH()
    assert paid is not None
    return paid


# A token is 256 bits, derived from the order's id under a key that only our processes have, so
# that the same answer can be sent again although no token is stored. The database keeps its HMAC.

_CLAIM_PURPOSE = "topup-claim"
_HMAC_PURPOSE = "topup-claim-hmac"
_TOKEN = re.compile(r"[A-Za-z0-9_-]{43}\Z")
# Statuses of orders that give no credits any more.
_OVER = (OrderStatus.FAILED, OrderStatus.REFUNDED)


def make_token(keyring: Keyring, order_id: int) -> str:
    return _spelt(keyring.signer(_CLAIM_PURPOSE).digest(str(order_id).encode()))


def token_hmac(keyring: Keyring, token: str) -> bytes:
    """Return the HMAC of a token, which the database keeps."""
    return keyring.signer(_HMAC_PURPOSE).digest(token.encode())


def token_of(keyring: Keyring, order: PaymentOrder) -> str | None:
    """Return the order's token; ``None`` if the key that made it or its HMAC is gone."""
    digests = keyring.signer(_CLAIM_PURPOSE).digests(str(order.id).encode())
    ours = (
        each for each in map(_spelt, digests) if order.claim_token_hmac in _hmacs(keyring, each)
    )
    return next(ours, None)


def find(uow: UnitOfWork, token: str) -> PaymentOrder:
    """Return the order of a token; raises ``order.not_found``."""
    of_token = PaymentOrder.claim_token_hmac.in_(_hmacs(uow.settings.keyring, token))
    query = select(PaymentOrder).where(of_token)
    order = uow.session.scalar(query) if _TOKEN.match(token) else None
    if order is None:
        raise errors.ORDER_NOT_FOUND()
    return order


def claim(uow: UnitOfWork, user_id: int, token: str) -> PaymentOrder:
    """Give the order to this user, and its credits once it is paid. The first claim wins.

    Raises ``order.not_found``, ``order.claimed``, ``order.over``.
    """
    order = lock(uow, find(uow, token).id)
    if order.user_id is not None:
        raise errors.ORDER_CLAIMED()
    if order.status in _OVER:
        raise errors.ORDER_OVER(status=order.status)
    order.user_id, order.claimed_at = user_id, clock.now()
    apply_facts(uow, order, OrderVia.CLAIM)
    return order


def _hmacs(keyring: Keyring, token: str) -> list[bytes]:
    return keyring.signer(_HMAC_PURPOSE).digests(token.encode())


def _spelt(digest: bytes) -> str:
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


RETURN_PATH = "/topups/return"
_RETURN_PURPOSE = "topup-return"
# An order can be paid for so long.
ORDER_LIFETIME = timedelta(hours=1)
# Providers open no page that lasts less than half an hour, and by then the payer has left.
_MIN_CHECKOUT_LIFETIME = timedelta(minutes=32)


@dataclass(frozen=True)
class OrderRequest:
    """An order as a caller sent it."""

    amount: Decimal | None
    credit_amount: Decimal | None
    currency: str | None
    channel: str | None
    redirect_url: str


def accept(
    resources: Resources,
    channels: PaymentChannels,
    request: OrderRequest,
    *,
    user_id: int | None,
    key: IdempotencyKey | None,
) -> AcceptedJob:
    """Refuse an order, or store it with the job that opens its page.

    Raises what ``prices.price``, ``return_urls.check`` and ``services.jobs.idempotency`` do, and
    ``topup.channel``, ``topup.channel_unavailable``.
    """
    if request.redirect_url != orders.console_url(resources.settings):
        orders.check(request.redirect_url, resources.settings.redirect_origins)
    terms = price(
        resources.settings,
        currency=request.currency,
        amount=request.amount,
        credit_amount=request.credit_amount,
    )
    try:
        name = channels.default if request.channel is None else PaymentChannel(request.channel)
    except ValueError:
        raise errors.TOPUP_CHANNEL(known=", ".join(PaymentChannel)) from None
    channel = channels.channel(name).channel

    def store() -> Job:
        order_id, expires_at = ids.random_id(), clock.now() + ORDER_LIFETIME
        order = PaymentOrder(
            id=order_id,
            claim_token_hmac=token_hmac(resources.keyring, make_token(resources.keyring, order_id)),
            user_id=user_id,
            channel=channel,
            redirect_url=request.redirect_url,
            expires_at=expires_at,
            next_check_at=expires_at,
            **asdict(terms),
        )
        return idempotency.commit(resources, order, OPEN_CHECKOUT, key)

    return idempotency.once(resources, key, store)


def channels(resources: Resources) -> PaymentChannels:
    return PaymentChannels(resources.settings)


def open_checkout(resources: Resources, providers: PaymentChannels, lease: Lease) -> None:
    """Run the job: have the provider open a page for the order, and store the page's URL."""
    with resources.unit_of_work() as uow:
        order = uow.session.get_one(PaymentOrder, lease.subject_id)
    if order.payment_url is not None:
        _succeed(resources, lease, None)
        return
    try:
        payments = providers.channel(PaymentChannel(order.channel))
    except DomainError as error:
        # The order was accepted with this channel; an operator has turned it off since then.
        raise DomainError(Kind.UNAVAILABLE, error.code, error.message, retry_after=1) from None
    if order.expires_at - clock.now() < _MIN_CHECKOUT_LIFETIME:
        raise errors.TOPUP_TOO_LATE()
    signature = resources.keyring.signer(_RETURN_PURPOSE).sign(str(order.id).encode())
    query = f"order={order.id}&signature={signature}"
    checkout = Checkout(
        order_id=order.id,
        amount_minor=order.amount_minor,
        currency=order.currency,
        description=f"{order.credit_amount.normalize():f} credits",
        return_url=f"{resources.settings.public_base}{RETURN_PATH}?{query}",
        expires_at=order.expires_at,
    )
    _succeed(resources, lease, payments.open(checkout))


def _succeed(resources: Resources, lease: Lease, opened: OpenedCheckout | None) -> None:
    assert lease.subject_id is not None
    with resources.unit_of_work() as uow:
        # A job is locked before its subject, here and where a job is abandoned.
        complete_job(uow, lease, {"order_id": lease.subject_id})
        order = lock(uow, lease.subject_id)
        if opened is not None:
            order.session_id = order.session_id or opened.session_id
            order.payment_url = opened.payment_url
        apply_facts(uow, order, OrderVia.JOB)


def is_return_signature(keyring: Keyring, order: str, signature: str) -> bool:
    """Return whether we made this signature for the return of the order's payer."""
    return keyring.signer(_RETURN_PURPOSE).verify(order.encode(), signature)


def _fail_with_job(uow: UnitOfWork, job: Job) -> None:
    """Fail the order whose page was not opened, with the job's error."""
    assert job.subject_id is not None
    order = lock(uow, job.subject_id)
    if order.status == OrderStatus.CREATED:
        order.is_failed, order.error = True, describe_error(job)
        apply_facts(uow, order, OrderVia.JOB)


OPEN_CHECKOUT = register_kind(
    JobKind(
        name="topup.open",
        run=lambda resources, lease: open_checkout(resources, resources.shared(channels), lease),
        queue=Queue.MONEY,
        scope=Scope.CREDIT_READ,
        retryable=False,  # its order has failed with it
        on_abandoned=_fail_with_job,
        # A payer waits for the page.
        patience=timedelta(seconds=30),
        given_up=errors.PAYMENTS_UNAVAILABLE,
    )
)
