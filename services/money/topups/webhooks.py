"""What providers tell us unasked: once, twice, late, in any order."""

from dataclasses import asdict
from typing import Any

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
    """Take a webhook in; when this returns, its effect has been committed, or it has none.

    Raises what ``Payments.event`` does, and ``TransientError`` where it should be sent again.
    """
    payments, event = channels.event(body, signature)
    if event.evidence is None:
        return
    order_id = _order_of(resources, payments, event.evidence)
    if order_id is None:
        log.warning("webhook.of_no_order", channel=payments.channel, event_id=event.id)
        return
    with resources.unit_of_work() as uow:
        # Before anything that refers to the order, so that two of its webhooks take turns.
        lock(uow, order_id)
        if _keep(uow, payments, event, order_id):
            settle(uow, order_id, event.evidence, OrderVia.WEBHOOK)


def _order_of(resources: Resources, payments: Payments, evidence: Evidence) -> int | None:
    with resources.unit_of_work() as uow:
        found = find(uow, payments.channel, evidence)
    if found is not None or evidence.order_id is not None or evidence.payment_id is None:
        return found
    # A dispute or a refund that is here before the payment it is about: only the provider knows.
    named = payments.order_of(evidence.payment_id)
    with resources.unit_of_work() as uow:
        return find(uow, payments.channel, Evidence(order_id=named))


def _keep(uow: UnitOfWork, payments: Payments, event: Event, order_id: int) -> bool:
    """Write the event down; False for one that was here before."""
    assert event.evidence is not None
    statement = (
        insert(PaymentEvent)
        .values(
            channel=payments.channel,
            event_id=event.id,
            type=event.type,
            order_id=order_id,
            facts=_said(event.evidence),
            happened_at=event.created_at,
        )
        .on_conflict_do_nothing(index_elements=["channel", "event_id"])
        .returning(PaymentEvent.id)
    )
    return uow.session.scalar(statement) is not None


def _said(evidence: Evidence) -> dict[str, Any]:
    return {name: value for name, value in asdict(evidence).items() if value not in (None, False)}
