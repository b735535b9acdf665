"""Makes an order: the API checks and stores its terms, and a worker opens the provider's page."""

from dataclasses import asdict, dataclass
from datetime import timedelta
from decimal import Decimal

from core import clock, ids
from core.errors import DomainError, Kind
from core.errors import money as errors
from core.keyring import Keyring
from core.queues import Queue
from core.scopes import Scope
from integrations.payments.port import Checkout, OpenedCheckout, PaymentChannel
from integrations.payments.registry import PaymentChannels
from models import Job, OrderStatus, OrderVia, PaymentOrder
from services.credits import return_urls
from services.credits.claim_tokens import make_token, token_hmac
from services.credits.prices import price
from services.credits.settlement import apply_facts, lock
from services.jobs import idempotency, kinds
from services.jobs import lease as leases
from services.jobs.idempotency import AcceptedJob, IdempotencyKey
from services.jobs.lease import Lease
from services.jobs.records import error_shown
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

# Money is rounded up to the minor unit and credits down to four decimals, so that no order gives
# more credits than were paid.


# A token is 256 bits, derived from the order's id under a key that only our processes have, so
# that the same answer can be sent again although no token is stored. The database keeps its HMAC.


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
        leases.succeed(uow, lease, {"order_id": lease.subject_id})
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
        order.is_failed, order.error = True, error_shown(job)
        apply_facts(uow, order, OrderVia.JOB)


OPEN_CHECKOUT = kinds.register(
    kinds.JobKind(
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
