"""Asks the provider about orders without a webhook: when the payer comes back, and regularly."""

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

# Asks for the state of an order whose payer has returned.
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
_OPEN = (OrderStatus.PENDING, OrderStatus.EXPIRED)
MAX_ORDERS_AT_ONCE = 64
# The limit per channel. With 250 ms per call, it allows 32 calls a second.
MAX_CALLS_AT_ONCE = 8
# A poll ends before the next one starts.
_MAX_POLL_SECONDS = 20.0
# How long no other poller takes the order, even if this process is killed.
_TAKEN_FOR = timedelta(minutes=2)
# How long an order that could not be settled waits, so that it does not delay the others.
_RETRY_PAUSE = timedelta(hours=1)


def refresh_order(resources: Resources, providers: PaymentChannels, order_id: int) -> str:
    """Ask the provider about an order, and return the new status of the order."""
    with resources.unit_of_work() as uow:
        order = uow.session.get_one(PaymentOrder, order_id)
    if order.status not in _OPEN or order.session_id is None:
        return order.status
    evidence = providers.channel(PaymentChannel(order.channel)).fetch_evidence(order.session_id)
    with resources.unit_of_work() as uow:
        return settle_order(uow, order_id, evidence, OrderVia.RETURN).status


def poll_orders(resources: Resources, providers: PaymentChannels) -> int:
    """Check the due orders, each channel in its own threads, and return their number."""
    with ThreadPoolExecutor(len(PaymentChannel), "poll") as pool:
        return sum(pool.map(partial(_poll_channel, resources, providers), PaymentChannel))


def _poll_channel(resources: Resources, providers: PaymentChannels, channel: PaymentChannel) -> int:
    until = time.monotonic() + _MAX_POLL_SECONDS
    is_away = threading.Event()
    settled = 0
    with ThreadPoolExecutor(MAX_CALLS_AT_ONCE, f"poll-{channel}") as pool:
        while time.monotonic() < until and not is_away.is_set():
            batch = _take_due(resources, channel)
            answers = [pool.submit(_ask, providers, is_away, due) for due in batch]
            # Only this thread uses the database, whose connections are few.
            for due, answer in zip(batch, answers, strict=True):
                try:
                    if (evidence := answer.result()) is not None:
                        with resources.unit_of_work() as uow:
                            settle_order(uow, due.id, evidence, OrderVia.POLL)
                        settled += 1
                except Exception:  # the other orders must still be settled
                    log.exception("order.not_settled", order_id=due.id)
                    order = update(PaymentOrder).where(PaymentOrder.id == due.id)
                    with resources.unit_of_work() as uow:
                        uow.session.execute(order.values(next_check_at=func.now() + _RETRY_PAUSE))
            if len(batch) < MAX_ORDERS_AT_ONCE:
                break
    return settled


def _take_due(resources: Resources, channel: PaymentChannel) -> Sequence[PaymentOrder]:
    """Take orders that are due, so that no other poller takes them."""
    table = PaymentOrder
    due = select(table.id).where(table.next_check_at <= func.now(), table.channel == channel)
    due = due.order_by(table.next_check_at).limit(MAX_ORDERS_AT_ONCE)
    due = due.with_for_update(skip_locked=True)
    statement = update(table).where(table.id.in_(due.scalar_subquery()))
    statement = statement.values(next_check_at=func.now() + _TAKEN_FOR)
    with resources.unit_of_work() as uow:
        return uow.session.scalars(statement.returning(table)).all()


def _ask(
    providers: PaymentChannels, is_away: threading.Event, due: PaymentOrder
) -> Evidence | None:
    """Return the evidence about an order, or ``None`` while its provider is unreachable.

    An order that was skipped becomes due again by itself.
    """
    if is_away.is_set():
        return None
    is_over = due.expires_at <= clock.now()
    if due.status == OrderStatus.CREATED or due.session_id is None:
        # The order's page was never opened, so no payer can pay on it.
        return Evidence(order_id=due.id, failed=is_over)
    try:
        payments = providers.channel(PaymentChannel(due.channel))
        known = (
            payments.close_checkout(due.session_id)
            if is_over
            else payments.fetch_evidence(due.session_id)
        )
    except TransientError as error:
        is_away.set()
        log.warning("orders.provider_away", channel=due.channel, reason=str(error))
        return None
    except DomainError as error:
        # A retry would get the same answer. The next check of the order asks again.
        log.warning("order.not_checked", order_id=due.id, code=error.code)
        known = Evidence(order_id=due.id, session_id=due.session_id)
    return replace(known, expired=True) if is_over and not known.paid else known
