"""Finds stale events, such as bounces that happened before the member joined the list again."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import text

from core.ids import PersonId
from storage.array_texts import format_numbers, format_times
from storage.unit_of_work import UnitOfWork

_FIND_LATEST_ACTIONS = text("""
SELECT r.list_id, r.user_id,
    (
        SELECT max(e.created_at) FROM subscription_events AS e
        WHERE e.list_id = r.list_id AND e.user_id = r.user_id AND e.actor IN ('user', 'stranger')
            AND (e.status_after = 'active' AND e.status_before IS DISTINCT FROM 'active'
                OR e.email_enabled_after AND NOT e.email_enabled_before)
    ) AS acted_at,
    (
        SELECT max(b.lifted_at) FROM bounces AS b
        WHERE b.list_id = r.list_id AND b.user_id = r.user_id
    ) AS lifted_at,
    (SELECT max(f.left_at) FROM former_addresses AS f WHERE f.user_id = r.user_id) AS moved_at
FROM unnest(CAST(:list_ids AS bigint[]), CAST(:user_ids AS bigint[])) AS r (list_id, user_id)
""")
# Returns the positions of stale events in the parameter ``times``, counted from 0. An event is
# stale if the member joined the list, or turned on mail from the list, after the event. The EXISTS
# condition looks for the same actions as the subquery ``acted_at`` in ``_FIND_LATEST_ACTIONS``.
_FIND_STALE_MAILINGS = text("""
SELECT r.number - 1
FROM unnest(CAST(:list_ids AS bigint[]), CAST(:user_ids AS bigint[]),
    CAST(:times AS timestamptz[])) WITH ORDINALITY AS r (list_id, user_id, occurred_at, number)
WHERE EXISTS (
    SELECT FROM subscription_events AS e
    WHERE e.list_id = r.list_id AND e.user_id = r.user_id AND e.actor IN ('user', 'stranger')
        AND e.created_at > r.occurred_at
        AND (e.status_after = 'active' AND e.status_before IS DISTINCT FROM 'active'
            OR e.email_enabled_after AND NOT e.email_enabled_before)
    OFFSET 0
)
""")

# The list id and the user id of a member.
Pair = tuple[int, PersonId]


class MemberMailing(NamedTuple):
    """A mail to one member, and the time of a reported event about it.

    Attributes:
        mailing_id: a negative hash of the provider's message id, or else of the event's day, if the
            mailing is unknown.
        mailing_at: when the mailing began, or the start of the day if the time is unknown.
        occurred_at: when the event happened according to the sender.
    """

    list_id: int
    user_id: PersonId
    mailing_id: int
    mailing_at: datetime
    occurred_at: datetime

    @property
    def pair(self) -> Pair:
        return self.list_id, self.user_id


@dataclass(frozen=True, slots=True)
class LatestActions:
    """The latest actions of a member that make Pressroom ignore earlier bounces.

    Attributes:
        acted_at: when the person joined the list or turned on mail.
        lifted_at: when the person or the owner turned on mail after a bounce.
        moved_at: when the person changed the address of the account.
    """

    acted_at: datetime | None
    lifted_at: datetime | None
    moved_at: datetime | None

    def is_stale(self, mailing: MemberMailing) -> bool:
        is_older = any(
            at is not None and mailing.occurred_at < at for at in (self.acted_at, self.lifted_at)
        )
        return is_older or (self.moved_at is not None and mailing.mailing_at < self.moved_at)


def find_stale_mailings(uow: UnitOfWork, mailings: Sequence[MemberMailing]) -> set[int]:
    """Return the positions of events before the person joined the list or turned on mail."""
    if not mailings:
        return set()
    values = {
        **format_pairs(mailings),
        "times": format_times(each.occurred_at for each in mailings),
    }
    return set(uow.session.scalars(_FIND_STALE_MAILINGS, values))


def find_latest_actions(uow: UnitOfWork, pairs: Collection[Pair]) -> Mapping[Pair, LatestActions]:
    if not pairs:
        return {}
    rows = uow.session.execute(_FIND_LATEST_ACTIONS, split_pairs(pairs))
    return {
        (row.list_id, row.user_id): LatestActions(row.acted_at, row.lifted_at, row.moved_at)
        for row in rows
    }


def split_pairs(pairs: Iterable[Pair]) -> dict[str, list[int]]:
    pairs = list(pairs)
    return {
        "list_ids": [list_id for list_id, _ in pairs],
        "user_ids": [user_id for _, user_id in pairs],
    }


def format_pairs(mailings: Sequence[MemberMailing]) -> dict[str, str]:
    return {
        "list_ids": format_numbers(each.list_id for each in mailings),
        "user_ids": format_numbers(each.user_id for each in mailings),
    }
