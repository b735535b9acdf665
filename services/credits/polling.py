"""Checks with payment providers whether orders were paid, in case a webhook is delayed or lost.

An order is checked when the payer returns from the payment page, and afterwards at growing
intervals.
"""

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from functools import partial

from sqlalchemy import func, select, update

from core import clock
from core.errors import DomainError, TransientError
from core.logging import get_logger
from core.queues import Queue, RequestKind
from integrations.payments.port import Evidence, PaymentChannel
from integrations.payments.registry import PaymentChannels
from models import OrderStatus, OrderVia, PaymentOrder
from services.credits.checkout import create_channels
from services.credits.settlement import settle_order
from services.jobs.kinds import register_request_kind
from services.jobs.maintenance import register_maintenance
from storage.resources import Resources

log = get_logger(__name__)

# A request that checks an order when the payer returns from the payment page.
REFRESH_ORDER = register_request_kind(
    RequestKind("topup.refresh", Queue.MONEY),
    lambda resources, lease: {
        "status": refresh_order(
            resources, resources.shared(create_channels), lease.payload["order_id"]
        )
    },
)
POLL_ORDERS = register_maintenance(
    "topups.poll",
    every=timedelta(seconds=30),
    queue=Queue.MONEY,
    run=lambda resources, _: poll_orders(resources, resources.shared(create_channels)),
)
# The statuses of orders that may still be paid.
_PAYABLE_STATUSES = (OrderStatus.PENDING, OrderStatus.EXPIRED)
MAX_BATCH_ORDERS = 64
# The maximum number of simultaneous calls to a provider. If each call takes 250 ms, eight threads
# make 32 calls per second.
MAX_CONCURRENT_CALLS = 8
# The maximum duration of a poll, which must end before the next poll starts.
_MAX_POLL_SECONDS = 20.0
# How long an order is reserved for the process that polls it. If the process is killed, another
# process checks its orders after this time.
_TAKEN_FOR = timedelta(minutes=2)
# How long the poller waits after an error before it checks the same order again.
_RETRY_DELAY = timedelta(hours=1)


def refresh_order(resources: Resources, providers: PaymentChannels, order_id: int) -> str:
    with resources.unit_of_work() as uow:
        order = uow.session.get_one(PaymentOrder, order_id)
    if order.status not in _PAYABLE_STATUSES or order.session_id is None:
        return order.status
    evidence = providers.channel(PaymentChannel(order.channel)).fetch_evidence(order.session_id)
    with resources.unit_of_work() as uow:
        return settle_order(uow, order_id, evidence, OrderVia.RETURN).status


def poll_orders(resources: Resources, providers: PaymentChannels) -> int:
    """Check all due orders, and return the number of settled orders.

    Each payment channel has its own threads, so that a slow provider doesn't delay the orders of
    other providers.
    """
    with ThreadPoolExecutor(len(PaymentChannel), "poll") as pool:
        return sum(pool.map(partial(_poll_channel, resources, providers), PaymentChannel))


def _poll_channel(resources: Resources, providers: PaymentChannels, channel: PaymentChannel) -> int:
    until = time.monotonic() + _MAX_POLL_SECONDS
    is_unreachable = threading.Event()
    settled = 0
    with ThreadPoolExecutor(MAX_CONCURRENT_CALLS, f"poll-{channel}") as pool:
        while time.monotonic() < until and not is_unreachable.is_set():
            batch = _take_due(resources, channel)
            calls = [
                pool.submit(_fetch_evidence, providers, is_unreachable, order) for order in batch
            ]
            # Use the database only in the main thread, because the process has few database
            # connections.
            for order, call in zip(batch, calls, strict=True):
                try:
                    if (evidence := call.result()) is not None:
                        with resources.unit_of_work() as uow:
                            settle_order(uow, order.id, evidence, OrderVia.POLL)
                        settled += 1
                except Exception:  # an error in one order must not stop the poller
                    log.exception("order.not_settled", order_id=order.id)
                    statement = update(PaymentOrder).where(PaymentOrder.id == order.id)
                    statement = statement.values(next_check_at=func.now() + _RETRY_DELAY)
                    with resources.unit_of_work() as uow:
                        uow.session.execute(statement)
            if len(batch) < MAX_BATCH_ORDERS:
                break
    return settled


def _take_due(resources: Resources, channel: PaymentChannel) -> Sequence[PaymentOrder]:
    table = PaymentOrder
    due = select(table.id).where(table.next_check_at <= func.now(), table.channel == channel)
    due = due.order_by(table.next_check_at).limit(MAX_BATCH_ORDERS)
    due = due.with_for_update(skip_locked=True)
    statement = update(table).where(table.id.in_(due.scalar_subquery()))
    statement = statement.values(next_check_at=func.now() + _TAKEN_FOR)
    with resources.unit_of_work() as uow:
        return uow.session.scalars(statement.returning(table)).all()


def _fetch_evidence(
    providers: PaymentChannels, is_unreachable: threading.Event, order: PaymentOrder
) -> Evidence | None:
    if is_unreachable.is_set():
        return None
    has_expired = order.expires_at <= clock.now()
    if order.status == OrderStatus.CREATED or order.session_id is None:
        # An order without a payment page can't have been paid.
        return Evidence(order_id=order.id, failed=has_expired)
    try:
        payments = providers.channel(PaymentChannel(order.channel))
        if has_expired:
            evidence = payments.close_checkout(order.session_id)
        else:
            evidence = payments.fetch_evidence(order.session_id)
    except TransientError as error:
        is_unreachable.set()
        log.warning("orders.provider_away", channel=order.channel, reason=str(error))
        return None
    except DomainError as error:
        # Don't retry the call now, because the payment provider would return the same error.
        log.warning("order.not_checked", order_id=order.id, code=error.code)
        evidence = Evidence(order_id=order.id, session_id=order.session_id)
    if has_expired and not evidence.paid:
        return replace(evidence, expired=True)
    return evidence
