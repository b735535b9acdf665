"""Webhooks of payment providers, which come once, twice, late, and in any order."""

from dataclasses import asdict

from sqlalchemy.dialects.postgresql import insert

from core.logging import get_logger
from integrations.payments.port import Event, Evidence, Payments
from integrations.payments.registry import PaymentChannels
from models import OrderVia, PaymentEvent
from services.money.topups.settlement import find, lock, settle
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

log = get_logger(__name__)


def receive(resources: Resources, channels: PaymentChannels, body: bytes, signature: str) -> None:
    """Settle an order by a webhook; at return its effect is committed, unless it has none.

    Raises what ``Payments.event`` does, and ``TransientError`` if the provider should send it
    again.
    """
    payments, event = channels.event(body, signature)
    if event.evidence is None:
        return
    order_id = _order_of(resources, payments, event.evidence)
    if order_id is None:
        log.warning("webhook.of_no_order", channel=payments.channel, event_id=event.id)
        return
    with resources.unit_of_work() as uow:
        # Lock the order before inserting a row that refers to it, so that its webhooks take turns.
        lock(uow, order_id)
        if _record(uow, payments, event, order_id):
            settle(uow, order_id, event.evidence, OrderVia.WEBHOOK)


def _order_of(resources: Resources, payments: Payments, evidence: Evidence) -> int | None:
    with resources.unit_of_work() as uow:
        found = find(uow, payments.channel, evidence)
    if found is not None or evidence.order_id is not None or evidence.payment_id is None:
        return found
    # A dispute or refund may come before its payment: only the provider knows its order then.
    named = payments.order_of(evidence.payment_id)
    with resources.unit_of_work() as uow:
        return find(uow, payments.channel, Evidence(order_id=named))


def _record(uow: UnitOfWork, payments: Payments, event: Event, order_id: int) -> bool:
    """Record the event; False if it was recorded before."""
    assert event.evidence is not None
    evidence = asdict(event.evidence)
    statement = (
        insert(PaymentEvent)
        .values(
            channel=payments.channel,
            event_id=event.id,
            type=event.type,
            order_id=order_id,
            facts={name: value for name, value in evidence.items() if value not in (None, False)},
            happened_at=event.created_at,
        )
        .on_conflict_do_nothing(index_elements=["channel", "event_id"])
        .returning(PaymentEvent.id)
    )
    return uow.session.scalar(statement) is not None
