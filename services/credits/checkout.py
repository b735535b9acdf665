"""Places orders for credits, and creates the payment page of each order.

An API process stores the order, and a worker creates the payment page at the payment provider.
"""

from dataclasses import asdict, dataclass
from datetime import timedelta
from decimal import Decimal

from core import clock, ids
from core.errors import DomainError, Kind
from core.errors import money as errors
from core.ids import AccountId
from core.keyring import Keyring
from core.permissions import Permission
from core.queues import Queue
from core.scopes import Scope
from integrations.payments.port import Checkout, OpenedCheckout, PaymentChannel
from integrations.payments.registry import PaymentChannels
from models import Job, OrderStatus, OrderVia, PaymentOrder
from services.credits import return_urls
from services.credits.claim_tokens import derive_token, token_hmac
from services.credits.prices import price_order
from services.credits.settlement import apply_facts, lock_order
from services.jobs import idempotency
from services.jobs.idempotency import AcceptedJob, IdempotencyKey
from services.jobs.kinds import JobKind, JobPermissions, register_kind
from services.jobs.lease import Lease
from services.jobs.outbox import enqueue_job
from services.jobs.records import describe_error
from services.jobs.transitions import complete_job
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

RETURN_PATH = "/topups/return"
_RETURN_PURPOSE = "topup-return"
# How long an order can be paid after it was placed.
ORDER_LIFETIME = timedelta(hours=1)
# The minimum lifetime of a payment page. Payment providers refuse to create a payment page that
# expires within half an hour.
_MIN_CHECKOUT_LIFETIME = timedelta(minutes=32)


@dataclass(frozen=True)
class OrderRequest:
    amount: Decimal | None
    credit_amount: Decimal | None
    currency: str | None
    channel: str | None
    redirect_url: str


def place_order(
    resources: Resources,
    channels: PaymentChannels,
    request: OrderRequest,
    *,
    account_id: AccountId | None,
    key: IdempotencyKey | None,
) -> AcceptedJob:
    """Store an order and the job that creates the order's payment page, in one transaction."""
    if request.redirect_url != return_urls.console_url(resources.settings):
        return_urls.check_return_url(request.redirect_url, resources.settings.redirect_origins)
    terms = price_order(
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

    def store_order(uow: UnitOfWork) -> Job:
        order_id = ids.random_id()
        expires_at = clock.now() + ORDER_LIFETIME
        order = PaymentOrder(
            id=order_id,
            claim_token_hmac=token_hmac(
                resources.keyring, derive_token(resources.keyring, order_id)
            ),
            user_id=account_id,
            channel=channel,
            redirect_url=request.redirect_url,
            expires_at=expires_at,
            next_check_at=expires_at,
            **asdict(terms),
        )
        uow.session.add(order)
        uow.session.flush()
        return enqueue_job(uow, OPEN_CHECKOUT, account_id=account_id, subject_id=order_id)

    return idempotency.accept_once(resources, key, store_order)


def create_channels(resources: Resources) -> PaymentChannels:
    return PaymentChannels(resources.settings)


def open_checkout(resources: Resources, providers: PaymentChannels, lease: Lease) -> None:
    with resources.unit_of_work() as uow:
        order = uow.session.get_one(PaymentOrder, lease.subject_id)
    if order.payment_url is not None:
        _complete_order_job(resources, lease, None)
        return
    try:
        payments = providers.channel(PaymentChannel(order.channel))
    except DomainError as error:
        # An operator may have disabled the payment channel after the order was placed.
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
    _complete_order_job(resources, lease, payments.open_checkout(checkout))


def _complete_order_job(resources: Resources, lease: Lease, opened: OpenedCheckout | None) -> None:
    assert lease.subject_id is not None
    with resources.unit_of_work() as uow:
        # Lock the job before its order, as code that abandons a job does, to avoid deadlocks.
        complete_job(uow, lease, {"order_id": lease.subject_id})
        order = lock_order(uow, lease.subject_id)
        if opened is not None:
            order.session_id = order.session_id or opened.session_id
            order.payment_url = opened.payment_url
        apply_facts(uow, order, OrderVia.JOB)


def is_return_signature(keyring: Keyring, order: str, signature: str) -> bool:
    return keyring.signer(_RETURN_PURPOSE).verify(order.encode(), signature)


def _fail_order(uow: UnitOfWork, job: Job) -> None:
    assert job.subject_id is not None
    order = lock_order(uow, job.subject_id)
    if order.status == OrderStatus.CREATED:
        order.is_failed = True
        order.error = describe_error(job)
        apply_facts(uow, order, OrderVia.JOB)


OPEN_CHECKOUT = register_kind(
    JobKind(
        name="topup.open",
        run=lambda resources, lease: open_checkout(
            resources, resources.shared(create_channels), lease
        ),
        queue=Queue.MONEY,
        scope=Scope.CREDIT_READ,
        permissions=JobPermissions(Permission.MONEY_READ, Permission.MONEY),
        # Owners can't restart a failed job that creates a payment page, because its order has
        # failed, too.
        retryable=False,
        on_abandoned=_fail_order,
        # Stop retrying after 30 seconds, because the payer is waiting for the payment page.
        patience=timedelta(seconds=30),
        given_up=errors.PAYMENTS_UNAVAILABLE,
    )
)
