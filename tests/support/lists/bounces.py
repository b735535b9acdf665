"""Records bounces in the database, as a worker does when a mail provider reports them.

To report bounces of old mailings, a test must call ``backdate_history`` first.
"""

from collections.abc import Collection
from datetime import datetime

from core import clock
from core.ids import PersonId
from devstack.harness.stack import Stack
from services.subscriptions.members import bounce_recording
from services.subscriptions.members.bounce_recording import (
    BounceOutcome,
    ReportedBounce,
)
from services.subscriptions.members.stale_events import MemberMailing
from tests.support.lists.subscribers import Reader


def backdate_history(stack: Stack, reader: Reader) -> None:
    """Make the person's history on all lists 60 days older.

    Pressroom ignores a bounce if the bounced mailing began before the person joined the list. Tests
    with old mailings must therefore move the time at which the person joined into the past.
    """
    stack.query(
        "UPDATE subscription_events SET created_at = created_at - interval '60 days'"
        " WHERE user_id = %s",
        reader.user_id,
    )


def build_mailing(
    list_id: int,
    user_id: int,
    *,
    mailing_id: int = 1,
    mailing_at: datetime | None = None,
    occurred_at: datetime | None = None,
) -> MemberMailing:
    """Return a ``MemberMailing``: one member's mail, about which a sender reports an event."""
    now = clock.now()
    return MemberMailing(
        list_id, PersonId(user_id), mailing_id, mailing_at or now, occurred_at or now
    )


def bounce_hard(
    stack: Stack,
    mailing: MemberMailing,
    *,
    status: str | None = "5.1.1",
    covered_list_ids: Collection[int] | None = None,
) -> BounceOutcome:
    [outcome] = record(
        stack, [ReportedBounce(mailing, is_hard=True, status=status)], covered_list_ids
    )
    return outcome


def record(
    stack: Stack,
    reported: list[ReportedBounce],
    covered_list_ids: Collection[int] | None = None,
    reached_mails: list[MemberMailing] | None = None,
) -> list[BounceOutcome]:
    with stack.resources.unit_of_work() as uow:
        return bounce_recording.record_bounces(
            uow, reported, covered_list_ids=covered_list_ids, reached_mails=reached_mails or ()
        )


def reach(stack: Stack, *mailings: MemberMailing) -> None:
    with stack.resources.unit_of_work() as uow:
        bounce_recording.end_soft_bounces(uow, mailings)
