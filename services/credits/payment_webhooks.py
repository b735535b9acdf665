"""Receives webhooks from payment providers, and settles the orders that the webhooks describe."""

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
    """Settle the order to which a webhook refers, and commit the transaction.

    Raises ``TransientError`` if the payment provider should send the webhook again later.
    """
    payments, event = channels.parse_event(body, signature)
    evidence = event.evidence
    if evidence is None:
        return
    order_id = _find_order_id(resources, payments, evidence)
    if order_id is None:
        log.warning("webhook.of_no_order", channel=payments.channel, event_id=event.id)
        return
    if evidence.refunded_minor or evidence.refunds_failed_minor:
        evidence = _complete_refunds(resources, payments, evidence, order_id)
    if evidence.disputes_minor and evidence.payment_id is not None:
        # Fetch all disputes about the payment, because the webhook describes only one of them.
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
        # Lock the order, so that webhooks about the same order are processed one after another.
        lock_order(uow, order_id)
        # The INSERT returns no row if the same webhook event has already been recorded.
        if uow.session.scalar(record.returning(PaymentEvent.id)) is not None:
            settle_order(uow, order_id, evidence, OrderVia.WEBHOOK)


def _find_order_id(resources: Resources, payments: Payments, evidence: Evidence) -> int | None:
    with resources.unit_of_work() as uow:
        order_id = find_order_id(uow, payments.channel, evidence)
    if order_id is not None or evidence.order_id is not None or evidence.payment_id is None:
        return order_id
    # A webhook about a refund may arrive before the webhook about the payment. Ask the provider to
    # which order a payment belongs if Pressroom doesn't know the payment yet.
    provider_order_id = payments.find_order_id(evidence.payment_id)
    with resources.unit_of_work() as uow:
        return find_order_id(uow, payments.channel, Evidence(order_id=provider_order_id))


def _complete_refunds(
    resources: Resources, payments: Payments, evidence: Evidence, order_id: int
) -> Evidence:
    """Return a webhook's payment data, with current refunds if a refund may have failed.

    If the refund total in a webhook differs from the stored total, either a refund has failed or
    the webhook is late. All refunds of the payment are then fetched from the provider.
    """
    with resources.unit_of_work() as uow:
        order = uow.session.get_one(PaymentOrder, order_id)
    payment_id = evidence.payment_id or order.payment_id
    has_sum_changed = order.refunded_minor not in (0, evidence.refunded_minor)
    has_failed = evidence.refunds_failed_minor or order.refunds_failed_minor
    if payment_id is None or not (has_sum_changed or has_failed):
        return evidence
    refunds = payments.fetch_refunds(payment_id)
    return replace(
        evidence,
        refunded_minor=refunds.refunded_minor,
        refunds_failed_minor=refunds.refunds_failed_minor,
    )
