"""Showing events: what is personal, or may change, joins what the rows keep."""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from core import clock
from models import FeedEvent, PaymentOrder, Subscription, User
from services.feed.catalogue import CATALOGUE, FeedEventType, SubjectKind

# What joins the data of events about these subjects, by the subject's id.
Joined = Mapping[int, dict[str, Any]]


def show(session: Session, events: Sequence[FeedEvent]) -> list[dict[str, Any]]:
    """The events as callers see them, in plain values for JSON; one query for a kind of subject."""
    ids: dict[SubjectKind, set[int]] = defaultdict(set)
    for event in events:
        if event.subject_id is not None:
            ids[CATALOGUE[FeedEventType(event.type)].subject].add(event.subject_id)
    joined = {
        subject: join(session, ids[subject]) for subject, join in _JOINS.items() if ids[subject]
    }
    return [_shown(event, joined) for event in events]


def _shown(event: FeedEvent, joined: Mapping[SubjectKind, Joined]) -> dict[str, Any]:
    entry = CATALOGUE[FeedEventType(event.type)]
    found = joined.get(entry.subject, {}).get(event.subject_id or 0, {})
    fields = entry.data.model_fields
    # A row may lack what this release adds, and its subject may be gone.
    known = {**found, **event.data}
    if "job_id" in known:
        known["path"] = f"/jobs/{known['job_id']}"
    data = {name: known.get(name) for name in fields}
    has_subject = event.subject_id is not None
    return {
        "id": event.id,
        "type": event.type,
        "occurred_at": clock.iso(event.occurred_at),
        "list_id": event.list_id,
        "subject": {"kind": entry.subject, "id": event.subject_id} if has_subject else None,
        "data": data,
    }


def _join_subscriptions(session: Session, ids: Collection[int]) -> Joined:
    # From the moment of its mark an erased person has no name, though the job has yet to blank it.
    query = (
        select(Subscription.id, Subscription.email, Subscription.name)
        .join(User, User.id == Subscription.user_id)
        .where(Subscription.id.in_(ids), User.erased_at.is_(None))
    )
    return {row.id: {"email": row.email, "name": row.name} for row in session.execute(query)}


def _join_orders(session: Session, ids: Collection[int]) -> Joined:
    order = PaymentOrder
    query = select(order.id, order.credit_amount, order.currency, order.amount)
    return {
        row.id: {
            "credit_amount": float(row.credit_amount),
            "currency": row.currency,
            "amount": float(row.amount),
        }
        for row in session.execute(query.where(order.id.in_(ids)))
    }


_JOINS: Mapping[SubjectKind, Callable[[Session, Collection[int]], Joined]] = {
    SubjectKind.SUBSCRIPTION: _join_subscriptions,
    SubjectKind.ORDER: _join_orders,
}
