"""Asks the provider about orders without a webhook: when the payer comes back, and regularly."""

import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from sqlalchemy import func, select, update

from core import clock
from core.errors import DomainError, Kind, TransientError
from core.lanes import Lane, RequestKind
from core.logging import get_logger
from integrations.payments.port import Evidence, PaymentChannel
from integrations.payments.registry import PaymentChannels
from models import OrderStatus, OrderVia, PaymentOrder
from services.jobs import upkeep
from services.money.topups.settlement import settle
from storage.resources import Resources

log = get_logger(__name__)

# Asks for the state of one order whose payer has come back.
REFRESH_ORDER = RequestKind("topup.refresh", Lane.MONEY)
POLL_ORDERS = upkeep.register(
    upkeep.UpkeepKind("topups.poll", every=timedelta(seconds=30), lane=Lane.MONEY)
)
_OPEN = (OrderStatus.PENDING, OrderStatus.EXPIRED)
MAX_POLLED_ORDERS = 200
# Shorter than the time between two polls, so that the next poll continues.
_MAX_POLL_SECONDS = 20.0
# For so long no other poller takes the order, even if this process is killed.
_TAKEN_FOR = timedelta(minutes=2)


def refresh(resources: Resources, channels: PaymentChannels, order_id: int) -> str:
    """Ask the provider about an order, and return the order's status after that."""
    with resources.unit_of_work() as uow:
        order = uow.session.get_one(PaymentOrder, order_id)
    if order.status not in _OPEN or order.session_id is None:
        return order.status
    evidence = channels.channel(PaymentChannel(order.channel)).evidence(order.session_id)
    with resources.unit_of_work() as uow:
        return settle(uow, order_id, evidence, OrderVia.RETURN).status


def poll(resources: Resources, channels: PaymentChannels) -> int:
    """Check the due orders and return their number; several processes may poll at once."""
    until = time.monotonic() + _MAX_POLL_SECONDS
    away: set[str] = set()
    done = 0
    for due in _take_due(resources):
        if time.monotonic() > until:
            # The other orders become due again by themselves.
            break
        if due.channel in away:
            continue
        try:
            evidence = _ask(channels, due)
            with resources.unit_of_work() as uow:
                settle(uow, due.id, evidence, OrderVia.POLL)
            done += 1
        except TransientError as error:
            away.add(due.channel)
            log.warning("orders.provider_away", channel=due.channel, reason=str(error))
        except DomainError as error:
            log.warning("order.not_checked", order_id=due.id, code=error.code)
    return done


def _take_due(resources: Resources) -> Sequence[PaymentOrder]:
    """Take orders that are due, so that no other poller takes them."""
    due = (
        select(PaymentOrder.id)
        .where(PaymentOrder.next_check_at <= func.now())
        .order_by(PaymentOrder.next_check_at)
        .limit(MAX_POLLED_ORDERS)
        .with_for_update(skip_locked=True)
    )
    with resources.unit_of_work() as uow:
        statement = (
            update(PaymentOrder)
            .where(PaymentOrder.id.in_(due.scalar_subquery()))
            .values(next_check_at=func.now() + _TAKEN_FOR)
            .returning(PaymentOrder)
        )
        return uow.session.scalars(statement).all()


def _ask(channels: PaymentChannels, due: PaymentOrder) -> Evidence:
    """Return the provider's evidence, after closing the page of an order whose time is over."""
    is_over = due.expires_at <= clock.now()
    if due.status == OrderStatus.CREATED or due.session_id is None:
        # The order's page was never opened, so no payer can pay on it.
        return Evidence(order_id=due.id, failed=is_over)
    payments = channels.channel(PaymentChannel(due.channel))
    is_ending = is_over and due.status == OrderStatus.PENDING
    try:
        if is_ending:
            payments.close(due.session_id)
        # Asking after closing the page shows a payment that was made a moment before.
        evidence = payments.evidence(due.session_id)
    except DomainError as error:
        if not is_ending or error.kind is not Kind.PROVIDER_FAILED:
            raise
        log.warning("order.not_closed", order_id=due.id, code=error.code)
        evidence = Evidence(order_id=due.id, session_id=due.session_id)
    return replace(evidence, expired=True) if is_ending and not evidence.paid else evidence
