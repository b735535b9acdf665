"""Makes an order: the API checks and stores its terms, and a worker opens the provider's page."""

from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal

from core import clock, ids
from core.errors import DomainError, Kind
from core.keyring import Keyring
from core.lanes import Lane
from core.refusals.money import PAYMENTS_UNAVAILABLE, TOPUP_CHANNEL, TOPUP_TOO_LATE
from core.scopes import Scope
from integrations.payments.port import Checkout, OpenedCheckout, PaymentChannel
from integrations.payments.registry import PaymentChannels
from models import Job, OrderStatus, OrderVia, PaymentOrder
from services.jobs import idempotency, kinds
from services.jobs import lease as leases
from services.jobs.idempotency import AcceptedJob, IdempotencyKey
from services.jobs.lease import Lease
from services.jobs.records import error_shown
from services.money.topups import claims, return_urls
from services.money.topups.prices import Price, price
from services.money.topups.settlement import apply_facts, lock
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

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
    request_id: str | None,
) -> AcceptedJob:
    """Refuse an order, or store it with the job that opens its page.

    Raises what ``prices.price``, ``return_urls.check`` and ``services.jobs.idempotency`` do, and
    ``topup.channel``, ``topup.channel_unavailable``.
    """
    if request.redirect_url != return_urls.console_url(resources.settings):
        return_urls.check(request.redirect_url, resources.settings.redirect_origins)
    terms = price(
        resources.settings,
        currency=request.currency,
        amount=request.amount,
        credit_amount=request.credit_amount,
    )
    try:
        name = channels.default if request.channel is None else PaymentChannel(request.channel)
    except ValueError:
        raise TOPUP_CHANNEL(known=", ".join(PaymentChannel)) from None
    channel = channels.channel(name).channel

    def store() -> Job:
        order = _new(resources.keyring, terms, channel, request.redirect_url, user_id)
        return idempotency.commit(resources, order, OPEN_CHECKOUT, key, request_id)

    return idempotency.once(resources, key, store)


def _new(
    keyring: Keyring, terms: Price, channel: PaymentChannel, redirect_url: str, user_id: int | None
) -> PaymentOrder:
    order_id, expires_at = ids.random_id(), clock.now() + ORDER_LIFETIME
    return PaymentOrder(
        id=order_id,
        claim_token_hmac=claims.token_hmac(keyring, claims.make_token(keyring, order_id)),
        user_id=user_id,
        channel=channel,
        currency=terms.currency.code,
        amount=terms.amount,
        amount_minor=terms.amount_minor,
        credit_amount=terms.credit_amount,
        credits_per_usd=terms.credits_per_usd,
        units_per_usd=terms.currency.per_usd,
        redirect_url=redirect_url,
        expires_at=expires_at,
        next_check_at=expires_at,
    )


def open_checkout(resources: Resources, channels: PaymentChannels, lease: Lease) -> None:
    """Run the job: have the provider open a page for the order, and store the page's URL."""
    with resources.unit_of_work() as uow:
        order = uow.session.get_one(PaymentOrder, lease.subject_id)
    if order.payment_url is not None:
        _succeed(resources, lease, None)
        return
    try:
        payments = channels.channel(PaymentChannel(order.channel))
    except DomainError as error:
        # The order was accepted with this channel; an operator has turned it off since then.
        raise DomainError(Kind.UNAVAILABLE, error.code, error.message, retry_after=1) from None
    if order.expires_at - clock.now() < _MIN_CHECKOUT_LIFETIME:
        raise TOPUP_TOO_LATE()
    signature = resources.keyring.signer(_RETURN_PURPOSE).sign(str(order.id).encode())
    return_path = f"{RETURN_PATH}?order={order.id}&signature={signature}"
    checkout = Checkout(
        order_id=order.id,
        amount_minor=order.amount_minor,
        currency=order.currency,
        description=f"{order.credit_amount.normalize():f} credits",
        return_url=f"{resources.settings.public_base}{return_path}",
        expires_at=order.expires_at,
    )
    _succeed(resources, lease, payments.open(checkout))


def _succeed(resources: Resources, lease: Lease, opened: OpenedCheckout | None) -> None:
    assert lease.subject_id is not None
    with resources.unit_of_work() as uow:
        # A job is locked before its subject, here and where a job is abandoned.
        leases.succeed(uow, lease, {"order_id": lease.subject_id})
        order = lock(uow, lease.subject_id)
        if opened is not None:
            order.session_id = order.session_id or opened.session_id
            order.payment_url = opened.payment_url
        apply_facts(uow, order, OrderVia.JOB)


def is_return_signature(keyring: Keyring, order: str, signature: str) -> bool:
    """Whether we made this signature for the return of the order's payer."""
    return keyring.signer(_RETURN_PURPOSE).verify(order.encode(), signature)


def _fail_with_job(uow: UnitOfWork, job: Job) -> None:
    """Fail the order whose page was not opened, with the job's error."""
    assert job.subject_id is not None
    order = lock(uow, job.subject_id)
    if order.status == OrderStatus.CREATED:
        order.is_failed, order.error = True, error_shown(job)
        apply_facts(uow, order, OrderVia.JOB)


OPEN_CHECKOUT = kinds.register(
    kinds.JobKind(
        name="topup.open",
        lane=Lane.MONEY,
        scope=Scope.CREDIT_READ,
        retryable=False,  # its order has failed with it
        on_abandoned=_fail_with_job,
        # A payer waits for the page.
        patience=timedelta(seconds=30),
        given_up=PAYMENTS_UNAVAILABLE,
    )
)
