"""Making an order: its terms are checked and written at once, and a worker opens the provider's
page for it."""

from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal

from core import clock, ids
from core.errors import DomainError, Kind, TransientError
from core.keyring import Keyring
from core.lanes import Lane
from core.refusals.money import PAYMENTS_UNAVAILABLE, TOPUP_CHANNEL, TOPUP_TOO_LATE
from core.scopes import Scope
from integrations.payments.port import Checkout, OpenedCheckout, PaymentChannel, Payments
from integrations.payments.registry import PaymentChannels
from models import Job, OrderStatus, OrderVia, PaymentOrder
from services.jobs import idempotency, kinds, outbox
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
# How long an order can be paid.
ORDER_LIFETIME = timedelta(hours=1)
# Providers open no page for less than half an hour, and who ordered has long gone by then.
_MIN_CHECKOUT_LIFETIME = timedelta(minutes=32)


@dataclass(frozen=True)
class OrderRequest:
    """What a caller sent."""

    amount: Decimal | None
    credit_amount: Decimal | None
    currency: str | None
    channel: str | None
    redirect_url: str


def accept(
    resources: Resources,
    channels: PaymentChannels,
    asked: OrderRequest,
    *,
    user_id: int | None,
    key: IdempotencyKey | None,
    request_id: str | None,
) -> AcceptedJob:
    """Write the order and the job that opens its page, or refuse it.

    Raises what ``prices.price``, ``redirects.check`` and ``services.jobs.idempotency`` do, and
    ``topup.channel``, ``topup.channel_unavailable``.
    """
    settings = resources.settings
    return_urls.check(asked.redirect_url, settings.redirect_origins)
    wanted = price(
        settings,
        currency=asked.currency,
        amount=asked.amount,
        credit_amount=asked.credit_amount,
    )
    channel = _channel(channels, asked.channel)
    return idempotency.once(
        resources,
        key,
        lambda: _commit(
            resources, _new(wanted, channel, asked.redirect_url, user_id), key, request_id
        ),
    )


def _commit(
    resources: Resources, order: PaymentOrder, key: IdempotencyKey | None, request_id: str | None
) -> Job:
    with resources.unit_of_work() as uow:
        token = claims.make_token(resources.keyring, order.id)
        order.claim_token_hmac = claims.token_hmac(resources.keyring, token)
        uow.session.add(order)
        uow.session.flush()
        job = outbox.enqueue(
            uow, OPEN_CHECKOUT, user_id=order.user_id, subject_id=order.id, request_id=request_id
        )
        if key is not None:
            idempotency.record(uow, key, job_id=job.id)
    return job


def _channel(channels: PaymentChannels, name: str | None) -> PaymentChannel:
    if name is None:
        return channels.channel(channels.default).channel
    try:
        return channels.channel(PaymentChannel(name)).channel
    except ValueError:
        known = ", ".join(PaymentChannel)
        raise TOPUP_CHANNEL(known=known) from None


def _new(
    wanted: Price, channel: PaymentChannel, redirect_url: str, user_id: int | None
) -> PaymentOrder:
    expires_at = clock.now() + ORDER_LIFETIME
    return PaymentOrder(
        id=ids.random_id(),
        user_id=user_id,
        channel=channel,
        currency=wanted.currency.code,
        amount=wanted.amount,
        amount_minor=wanted.amount_minor,
        credit_amount=wanted.credit_amount,
        credits_per_usd=wanted.credits_per_usd,
        units_per_usd=wanted.currency.per_usd,
        redirect_url=redirect_url,
        expires_at=expires_at,
        next_check_at=expires_at,
    )


def open_checkout(resources: Resources, channels: PaymentChannels, lease: Lease) -> None:
    """The job: have the provider open a page for the order, and write down where it is."""
    with resources.unit_of_work() as uow:
        order = uow.session.get_one(PaymentOrder, lease.subject_id)
    if order.payment_url is not None:
        _note(resources, lease, None)
        return
    payments = _payments(channels, order)
    _note(resources, lease, _open(resources, payments, order, lease))


def _payments(channels: PaymentChannels, order: PaymentOrder) -> Payments:
    try:
        return channels.channel(PaymentChannel(order.channel))
    except DomainError as error:
        # It was there when the order was accepted: the operator took it away since.
        raise DomainError(Kind.UNAVAILABLE, error.code, error.message, retry_after=1) from None


def _open(
    resources: Resources, payments: Payments, order: PaymentOrder, lease: Lease
) -> OpenedCheckout:
    if order.expires_at - clock.now() < _MIN_CHECKOUT_LIFETIME:
        raise TOPUP_TOO_LATE()
    try:
        return payments.open(
            Checkout(
                order_id=order.id,
                amount_minor=order.amount_minor,
                currency=order.currency,
                description=f"{order.credit_amount.normalize():f} credits",
                return_url=_return_url(resources, order.id),
                expires_at=order.expires_at,
            )
        )
    except TransientError:
        if lease.retries < OPEN_CHECKOUT.max_retries:
            raise
        raise PAYMENTS_UNAVAILABLE() from None


def _note(resources: Resources, lease: Lease, opened: OpenedCheckout | None) -> None:
    assert lease.subject_id is not None
    with resources.unit_of_work() as uow:
        # Jobs are locked before what they are about, here and where one is abandoned.
        leases.succeed(uow, lease, {"order_id": lease.subject_id})
        order = lock(uow, lease.subject_id)
        if opened is not None:
            order.session_id = order.session_id or opened.session_id
            order.payment_url = opened.payment_url
        apply_facts(uow, order, OrderVia.JOB)


def _return_url(resources: Resources, order_id: int) -> str:
    signature = resources.keyring.signer(_RETURN_PURPOSE).sign(str(order_id).encode())
    base = resources.settings.public_base
    return f"{base}{RETURN_PATH}?order={order_id}&signature={signature}"


def is_return_signature(keyring: Keyring, order: str, signature: str) -> bool:
    """Whether a payer who comes back was sent with this signature, for the order of this id."""
    return keyring.signer(_RETURN_PURPOSE).verify(order.encode(), signature)


def _fail_with_job(uow: UnitOfWork, job: Job) -> None:
    """The order of a page that was not opened is failed, for the same reason."""
    assert job.subject_id is not None
    order = lock(uow, job.subject_id)
    if order.status == OrderStatus.CREATED:
        order.is_failed, order.error = True, error_shown(job)
        apply_facts(uow, order, OrderVia.JOB)


OPEN_CHECKOUT = kinds.register(
    kinds.JobKind(
        name="topup.open",
        lane=Lane.IO,
        scope=Scope.CREDIT_READ,
        retryable=False,  # its order has failed with it
        on_abandoned=_fail_with_job,
    )
)
