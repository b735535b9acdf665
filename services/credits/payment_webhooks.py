"""Settles orders by the webhooks of payment providers."""

from dataclasses import asdict, replace

from sqlalchemy.dialects.postgresql import insert

from core.logging import get_logger
from integrations.payments.port import Evidence, Payments
from integrations.payments.registry import PaymentChannels
from models import OrderVia, PaymentEvent, PaymentOrder
from services.credits.settlement import find, lock, settle
from storage.resources import Resources

log = get_logger(__name__)


def receive(resources: Resources, channels: PaymentChannels, body: bytes, signature: str) -> None:
    """Settle an order by a webhook; at return its effect is committed, unless it has none.

    Raises what ``Payments.event`` does, and ``TransientError`` if the provider should send it
    again.
    """
    payments, event = channels.event(body, signature)
    evidence = event.evidence
    if evidence is None:
        return
    order_id = _order_of(resources, payments, evidence)
    if order_id is None:
        log.warning("webhook.of_no_order", channel=payments.channel, event_id=event.id)
        return
    if evidence.refunded_minor or evidence.refunds_failed_minor:
        evidence = _with_all_refunds(resources, payments, evidence, order_id)
    if evidence.disputes_minor and evidence.payment_id is not None:
        # The event tells of one dispute, and its payment may have several.
        evidence = payments.disputes(evidence.payment_id)
    facts = asdict(evidence).items()
    record = insert(PaymentEvent).values(
        channel=payments.channel,
        event_id=event.id,
        type=event.type,
        order_id=order_id,
        facts={name: value for name, value in facts if value not in (None, False)},
        happened_at=event.created_at,
    )
    record = record.on_conflict_do_nothing(index_elements=["channel", "event_id"])
    with resources.unit_of_work() as uow:
        # Lock the order before inserting a row that refers to it, so that its webhooks take turns.
        lock(uow, order_id)
        # An event that was recorded before returns no row.
        if uow.session.scalar(record.returning(PaymentEvent.id)) is not None:
            settle(uow, order_id, evidence, OrderVia.WEBHOOK)


def _order_of(resources: Resources, payments: Payments, evidence: Evidence) -> int | None:
    with resources.unit_of_work() as uow:
        found = find(uow, payments.channel, evidence)
    if found is not None or evidence.order_id is not None or evidence.payment_id is None:
        return found
    # A dispute or refund may come before its payment: only the provider knows its order then.
    named = payments.order_of(evidence.payment_id)
    with resources.unit_of_work() as uow:
        return find(uow, payments.channel, Evidence(order_id=named))


def _with_all_refunds(
    resources: Resources, payments: Payments, evidence: Evidence, order_id: int
) -> Evidence:
    """Complete evidence about refunds of an order of which one has failed, or may have.

    The provider's sum shrinks when a refund fails. The news of that may be lost, and a smaller sum
    may also be an older one. Where two sums differ, only all refunds together tell how much went
    back; those and the ones that failed only grow.
    """
    with resources.unit_of_work() as uow:
        order = uow.session.get_one(PaymentOrder, order_id)
    payment_id = evidence.payment_id or order.payment_id
    is_another_sum = order.refunded_minor not in (0, evidence.refunded_minor)
    has_failed = evidence.refunds_failed_minor or order.refunds_failed_minor
    if payment_id is None or not (is_another_sum or has_failed):
        return evidence
    whole = payments.refunds(payment_id)
    failed = whole.refunds_failed_minor
    return replace(evidence, refunded_minor=whole.refunded_minor, refunds_failed_minor=failed)
