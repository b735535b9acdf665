"""Settles orders by the webhooks of payment providers."""

from dataclasses import asdict, replace

from sqlalchemy.dialects.postgresql import insert

from core.logging import get_logger
from integrations.payments.port import Evidence, Payments
from integrations.payments.registry import PaymentChannels
from models import OrderVia, PaymentEvent, PaymentOrder
from services.credits.settlement import find_order_id, lock_order, settle_order
from storage.resources import Resources

log = get_logger(__name__)


def receive_event(
    resources: Resources, channels: PaymentChannels, body: bytes, signature: str
) -> None:
    """Settle the order of a webhook. The effect is committed when this function returns.

    Raises what ``Payments.event`` raises, and ``TransientError`` if the provider should retry.
    """
    payments, event = channels.parse_event(body, signature)
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
        # The event describes one dispute, and the payment may have several.
        evidence = payments.fetch_disputes(evidence.payment_id)
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
        # Lock the order before inserting a row that refers to it, to serialise its webhooks.
        lock_order(uow, order_id)
        # An event that was recorded before returns no row.
        if uow.session.scalar(record.returning(PaymentEvent.id)) is not None:
            settle_order(uow, order_id, evidence, OrderVia.WEBHOOK)


def _order_of(resources: Resources, payments: Payments, evidence: Evidence) -> int | None:
    with resources.unit_of_work() as uow:
        order_id = find_order_id(uow, payments.channel, evidence)
    if order_id is not None or evidence.order_id is not None or evidence.payment_id is None:
        return order_id
    # A dispute or refund may arrive before its payment. Only the provider then knows its order.
    named_id = payments.find_order_id(evidence.payment_id)
    with resources.unit_of_work() as uow:
        return find_order_id(uow, payments.channel, Evidence(order_id=named_id))


def _with_all_refunds(
    resources: Resources, payments: Payments, evidence: Evidence, order_id: int
) -> Evidence:
    """Complete the evidence about an order's refunds if one of them may have failed.

    The provider's sum shrinks when a refund fails. The report of that may be lost, and a smaller
    sum may also be an older one. If two sums differ, only the list of all refunds has the amount.
    In that list, the total and the failed total only grow.
    """
    with resources.unit_of_work() as uow:
        order = uow.session.get_one(PaymentOrder, order_id)
    payment_id = evidence.payment_id or order.payment_id
    is_another_sum = order.refunded_minor not in (0, evidence.refunded_minor)
    has_failed = evidence.refunds_failed_minor or order.refunds_failed_minor
    if payment_id is None or not (is_another_sum or has_failed):
        return evidence
    refunds = payments.fetch_refunds(payment_id)
    return replace(
        evidence,
        refunded_minor=refunds.refunded_minor,
        refunds_failed_minor=refunds.refunds_failed_minor,
    )
