"""Records bounces that senders report, and turns mail off for addresses that bounce.

A hard (permanent) bounce turns mail off at once. Soft (temporary) bounces turn mail off after
several consecutive mailings have bounced. A soft bounce stops counting when a new attempt delivers
the bounced mail, or when the member receives a mail of a later mailing.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple

from sqlalchemy import ARRAY, BigInteger, any_, case, cast, func, text, update

from core import clock
from core.ids import AccountId, PersonId
from models import Subscription, SubscriptionStatus
from services.subscriptions.members import changes, locks, pending_requests
from services.subscriptions.members.bounces import IS_IN_EFFECT
from services.subscriptions.members.changes import Actor, ActorKind, Via
from services.subscriptions.members.opt_out_checks import compute_address_digest
from services.subscriptions.members.stale_events import (
    LatestActions,
    MemberMailing,
    Pair,
    find_latest_actions,
    format_pairs,
    split_pairs,
)
from storage.unit_of_work import UnitOfWork

# Soft bounces turn mail off only if at least ``MIN_SOFT_BOUNCE_SPAN`` lies between the first and
# the last bounced mailing, so that a mail server's outage of a few days doesn't turn mail off for
# readers of a daily newsletter.
MIN_SOFT_BOUNCE_SPAN = timedelta(days=7)
# The maximum age of a mailing whose soft bounces are recorded.
MAX_MAILING_AGE = timedelta(days=30)
SENDER = Actor(ActorKind.SENDER, Via.SENDER)

# Finds the subscriptions that are affected by reported bounces. A soft bounce affects only the
# active subscription to the list that the report names. A hard bounce affects the person's active
# subscriptions to all of the owner's lists that the sender covers. A hard bounce of a confirmation
# mail also affects the pending subscription to the list that the report names. If the report
# contains an address instead of a delivery id, subscriptions with other addresses are omitted.
_FIND_TARGETS = text("""
SELECT r.number - 1 AS number, m.id, m.list_id, m.user_id, m.status,
    coalesce(r.address, u.email), l.user_id AS owner_id
FROM unnest(CAST(:list_ids AS bigint[]), CAST(:user_ids AS bigint[]), CAST(:are_hard AS boolean[]),
    CAST(:addresses AS text[])) WITH ORDINALITY AS r (list_id, user_id, is_hard, address, number)
JOIN lists AS reported ON reported.id = r.list_id
JOIN users AS u ON u.id = r.user_id AND u.erased_at IS NULL
JOIN subscriptions AS m ON m.user_id = r.user_id AND (r.address IS NULL OR m.email = r.address)
JOIN lists AS l ON l.id = m.list_id AND l.user_id = reported.user_id
WHERE m.status = 'active' AND (m.list_id = r.list_id OR r.is_hard AND l.archived_at IS NULL
        AND (CAST(:covered_ids AS bigint[]) IS NULL
            OR m.list_id = ANY (CAST(:covered_ids AS bigint[]))))
    OR m.status = 'pending' AND m.list_id = r.list_id AND r.is_hard
ORDER BY r.number
""")
# Stores bounces. A soft bounce is stored as ended if a later mailing has already reached the
# member, or if a later attempt has already delivered the bounced mail. If a mail bounced softly
# before and now bounces hard, the stored soft bounce becomes a hard bounce.
_ADD_BOUNCES = text("""
INSERT INTO bounces (list_id, address_hmac, mailing_id, user_id, is_hard, status, mailing_at,
    bounced_at, stopped_at, ended_at)
SELECT r.list_id, r.address_hmac, r.mailing_id, r.user_id, r.is_hard, r.status, r.mailing_at,
    r.bounced_at, CASE WHEN r.is_hard THEN now() END,
    CASE WHEN NOT r.is_hard THEN greatest((
        SELECT max(b.ended_at) FROM bounces AS b
        WHERE b.list_id = r.list_id AND b.address_hmac = r.address_hmac
            AND b.ended_at > r.mailing_at
    ), (
        SELECT r.mailing_at FROM mailing_marks AS k
        WHERE k.user_id = r.user_id AND k.list_id = r.list_id AND k.mailing_id = r.mailing_id
            AND k.kind = 'delivered' AND coalesce(k.occurred_at, k.created_at) >= r.bounced_at
    )) END
FROM unnest(CAST(:list_ids AS bigint[]), CAST(:digests AS bytea[]), CAST(:mailing_ids AS bigint[]),
    CAST(:user_ids AS bigint[]), CAST(:are_hard AS boolean[]), CAST(:statuses AS text[]),
    CAST(:mailing_times AS timestamptz[]), CAST(:bounce_times AS timestamptz[]))
    AS r (list_id, address_hmac, mailing_id, user_id, is_hard, status, mailing_at, bounced_at)
ON CONFLICT (list_id, address_hmac, mailing_id) DO UPDATE SET
    is_hard = true, status = excluded.status, bounced_at = excluded.bounced_at,
    stopped_at = excluded.stopped_at, ended_at = NULL, lifted_at = NULL
    WHERE excluded.is_hard AND NOT bounces.is_hard
RETURNING list_id, user_id, mailing_id
""")
# Returns the positions of the bounces that ``_ADD_BOUNCES`` would store or make hard.
_FIND_NEW_BOUNCES = text("""
SELECT r.number - 1
FROM unnest(CAST(:list_ids AS bigint[]), CAST(:digests AS bytea[]), CAST(:mailing_ids AS bigint[]),
    CAST(:are_hard AS boolean[]))
    WITH ORDINALITY AS r (list_id, address_hmac, mailing_id, is_hard, number)
WHERE NOT EXISTS (
    SELECT FROM bounces AS b WHERE b.list_id = r.list_id AND b.address_hmac = r.address_hmac
        AND b.mailing_id = r.mailing_id AND (b.is_hard OR NOT r.is_hard)
)
""")
# Finds the members with a soft bounce that is in effect, but hasn't turned their mail off. Returns
# the positions of these members in the arrays of ids. A soft bounce that has turned mail off stays
# in effect even if a later mail reaches the member.
_FIND_SOFTLY_BOUNCED = text(f"""
SELECT r.number - 1
FROM unnest(CAST(:list_ids AS bigint[]), CAST(:user_ids AS bigint[]))
    WITH ORDINALITY AS r (list_id, user_id, number)
WHERE EXISTS (
    SELECT FROM bounces AS b WHERE b.list_id = r.list_id AND b.user_id = r.user_id
        AND {IS_IN_EFFECT} AND NOT b.is_hard AND b.stopped_at IS NULL
    OFFSET 0
)
ORDER BY r.number
""")  # noqa: S608 - no input
# Ends soft bounces. Locks the rows in the order of the primary key, as all statements that change
# several bounces do, so that concurrent transactions can't deadlock.
_END_SOFT_BOUNCES = text(f"""
WITH locked AS (
    SELECT b.list_id, b.address_hmac, b.mailing_id, r.mailing_at
    FROM unnest(CAST(:list_ids AS bigint[]), CAST(:user_ids AS bigint[]),
        CAST(:mailing_ids AS bigint[]), CAST(:mailing_times AS timestamptz[]),
        CAST(:times AS timestamptz[])) AS r (list_id, user_id, mailing_id, mailing_at, occurred_at)
    JOIN bounces AS b ON b.list_id = r.list_id AND b.user_id = r.user_id
    WHERE {IS_IN_EFFECT} AND NOT b.is_hard AND b.stopped_at IS NULL
        AND CASE WHEN b.mailing_id = r.mailing_id THEN b.bounced_at <= r.occurred_at
            ELSE (b.mailing_at, b.mailing_id) < (r.mailing_at, r.mailing_id) END
    ORDER BY 1, 2, 3 FOR UPDATE OF b
)
UPDATE bounces AS b SET ended_at = locked.mailing_at FROM locked
WHERE b.list_id = locked.list_id AND b.address_hmac = locked.address_hmac
    AND b.mailing_id = locked.mailing_id
""")  # noqa: S608 - no input
_STOP_AFTER_SOFT_BOUNCES = text(f"""
WITH runs AS (
    SELECT b.list_id, b.address_hmac, b.user_id,
        (array_agg(b.mailing_id ORDER BY b.mailing_at DESC, b.mailing_id DESC))[1] AS last_id
    FROM unnest(CAST(:list_ids AS bigint[]), CAST(:user_ids AS bigint[])) AS r (list_id, user_id)
    JOIN lists AS l ON l.id = r.list_id AND l.soft_bounce_limit > 0
    JOIN subscriptions AS m ON m.list_id = r.list_id AND m.user_id = r.user_id AND m.email_enabled
    JOIN bounces AS b ON b.list_id = r.list_id AND b.user_id = r.user_id
    WHERE {IS_IN_EFFECT} AND NOT b.is_hard AND b.stopped_at IS NULL
    GROUP BY b.list_id, b.address_hmac, b.user_id, l.soft_bounce_limit
    HAVING count(*) >= l.soft_bounce_limit
        AND max(b.mailing_at) - min(b.mailing_at) >= :min_span
)
UPDATE bounces AS b SET stopped_at = now() FROM runs
WHERE b.list_id = runs.list_id AND b.address_hmac = runs.address_hmac
    AND b.mailing_id = runs.last_id
RETURNING b.list_id, b.user_id
""")  # noqa: S608 - no input

# The key of a bounce: the ids of the list, the user and the mailing.
_Key = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class ReportedBounce:
    """A bounce with its status code (RFC 3463).

    Without ``address``, it concerns the account's address.
    """

    mailing: MemberMailing
    is_hard: bool
    status: str | None = None
    address: str | None = None


class BounceOutcome(StrEnum):
    """``APPLIED``, or why the bounce changed nothing.

    The outcome is about the list that the report names. If the person isn't a member there, it is
    about the person's other subscriptions.
    """

    APPLIED = "applied"
    DUPLICATE = "duplicate"  # An earlier report described the same bounce.
    STALE = "stale"  # A later action has made the bounce irrelevant (see ``LatestActions``).
    LATE = "late"  # The bounce is soft, and its mailing is older than ``MAX_MAILING_AGE``.
    UNMATCHED = "unmatched"  # The person isn't an active member of any affected list.


class _Target(NamedTuple):
    number: int
    id: int
    list_id: int
    user_id: PersonId
    status: str
    email: str
    owner_id: AccountId

    @property
    def pair(self) -> Pair:
        return self.list_id, self.user_id


@dataclass(frozen=True, slots=True)
class _Judgement:
    """The changes that reported bounces cause if none of the bounces is stored yet.

    Outcomes depend on ``deciding_targets``.
    """

    outcomes: Sequence[BounceOutcome]
    targets: Sequence[_Target]
    deciding_targets: Collection[_Target]

    @property
    def pending_targets(self) -> list[_Target]:
        return [each for each in self.targets if each.status == SubscriptionStatus.PENDING]

    @property
    def active_targets(self) -> list[_Target]:
        return [each for each in self.targets if each.status == SubscriptionStatus.ACTIVE]

    def mark_duplicates(self, new_targets: Iterable[_Target]) -> list[BounceOutcome]:
        new_numbers = {
            each.number
            for each in (*self.pending_targets, *new_targets)
            if each in self.deciding_targets
        }
        return [
            BounceOutcome.DUPLICATE
            if outcome is BounceOutcome.APPLIED and number not in new_numbers
            else outcome
            for number, outcome in enumerate(self.outcomes)
        ]


def record_bounces(
    uow: UnitOfWork,
    bounces: Sequence[ReportedBounce],
    *,
    covered_list_ids: Collection[int] | None = None,
    reached_mails: Sequence[MemberMailing] = (),
) -> list[BounceOutcome]:
    """Return the outcomes in the order of ``bounces``.

    A hard bounce turns the person's mail off on each of the owner's lists that the sender covers.
    If a confirmation mail bounces hard, the unconfirmed sign-up ends. Soft bounces turn mail off
    after ``soft_bounce_limit`` consecutive mailings have bounced.

    Args:
        covered_list_ids: ``None`` if the sender covers all lists of the owner.
        reached_mails: the delivered mails of the same batch. They end soft bounces before the limit
            is checked, so that the order of the reports doesn't matter.
    """
    pairs = {target.pair for target in _find_targets(uow, bounces, covered_list_ids)}
    present_ids = locks.lock_members(uow, pairs)
    # Read the subscriptions again, because other transactions may have changed them before they
    # were locked.
    targets = [
        target
        for target in _find_targets(uow, bounces, covered_list_ids)
        if target.pair in pairs and target.user_id in present_ids
    ]
    judgement = _judge_bounces(uow, bounces, targets)
    if judgement.pending_targets:
        pending_ids = [each.id for each in judgement.pending_targets]
        pending_requests.end_requests(uow, pending_ids, SENDER)
    new_targets = _add_bounces(uow, bounces, judgement.active_targets)
    end_soft_bounces(uow, reached_mails)
    _stop_mail(uow, bounces, new_targets)
    return judgement.mark_duplicates(new_targets)


def predict_bounces(
    uow: UnitOfWork,
    bounces: Sequence[ReportedBounce],
    *,
    covered_list_ids: Collection[int] | None = None,
) -> list[BounceOutcome]:
    targets = _find_targets(uow, bounces, covered_list_ids)
    judgement = _judge_bounces(uow, bounces, targets)
    active_targets = judgement.active_targets
    values = _describe_bounces(uow, bounces, active_targets)
    new_numbers = uow.session.scalars(_FIND_NEW_BOUNCES, values) if active_targets else ()
    return judgement.mark_duplicates([active_targets[number] for number in new_numbers])


def _judge_bounces(
    uow: UnitOfWork, bounces: Sequence[ReportedBounce], targets: Sequence[_Target]
) -> _Judgement:
    latest_actions = find_latest_actions(uow, {target.pair for target in targets})
    # The indexes of the bounces in ``bounces`` whose recipient is a member of the list that the
    # report names.
    numbers_of_members = {
        target.number
        for target in targets
        if target.list_id == bounces[target.number].mailing.list_id
    }
    outcomes = [BounceOutcome.UNMATCHED] * len(bounces)
    target_by_key: dict[_Key, _Target] = {}
    deciding_targets: set[_Target] = set()
    for target in targets:
        bounce = bounces[target.number]
        outcome = _judge_age(bounce, latest_actions[target.pair])
        # The outcome depends on the subscription to the list that the report names. If the person
        # isn't a member of the named list, the outcome depends on the person's subscriptions to
        # other lists.
        is_reported = target.list_id == bounce.mailing.list_id
        if is_reported or target.number not in numbers_of_members:
            deciding_targets.add(target)
            if outcomes[target.number] is not BounceOutcome.APPLIED:
                outcomes[target.number] = outcome
        key = (*target.pair, bounce.mailing.mailing_id)
        if outcome is BounceOutcome.APPLIED and not (
            key in target_by_key
            and (bounces[target_by_key[key].number].is_hard or not bounce.is_hard)
        ):
            target_by_key[key] = target
    return _Judgement(outcomes, list(target_by_key.values()), deciding_targets)


def end_soft_bounces(uow: UnitOfWork, reached_mails: Iterable[MemberMailing]) -> None:
    """End the soft bounces of members who have since received the bounced mail or a later mail.

    A soft bounce that has turned mail off doesn't end. The caller doesn't have to lock the members.
    """
    mailings = [*reached_mails]
    latest: dict[Pair, MemberMailing] = {}
    # First find the members with soft bounces, because most members have no soft bounce, and
    # reading is cheaper than writing.
    for mailing in _find_softly_bounced(uow, mailings) if mailings else ():
        rival = latest.get(mailing.pair)
        if rival is None or _sort_key(mailing) > _sort_key(rival):
            latest[mailing.pair] = mailing
    if latest:
        uow.session.execute(
            _END_SOFT_BOUNCES,
            {
                **split_pairs(latest),
                "mailing_ids": [each.mailing_id for each in latest.values()],
                "mailing_times": [each.mailing_at for each in latest.values()],
                "times": [each.occurred_at for each in latest.values()],
            },
        )


def _find_softly_bounced(uow: UnitOfWork, mailings: Sequence[MemberMailing]) -> list[MemberMailing]:
    numbers = uow.session.scalars(_FIND_SOFTLY_BOUNCED, format_pairs(mailings))
    return [mailings[number] for number in numbers]


def _find_targets(
    uow: UnitOfWork,
    bounces: Sequence[ReportedBounce],
    covered_list_ids: Collection[int] | None,
) -> list[_Target]:
    if not bounces:
        return []
    values = {
        **split_pairs([each.mailing.pair for each in bounces]),
        "are_hard": [each.is_hard for each in bounces],
        "addresses": [each.address for each in bounces],
        "covered_ids": None if covered_list_ids is None else list(covered_list_ids),
    }
    return [_Target(*row) for row in uow.session.execute(_FIND_TARGETS, values)]


def _judge_age(bounce: ReportedBounce, latest_actions: LatestActions) -> BounceOutcome:
    if latest_actions.is_stale(bounce.mailing):
        return BounceOutcome.STALE
    is_late = bounce.mailing.mailing_at < clock.now() - MAX_MAILING_AGE
    return BounceOutcome.LATE if is_late and not bounce.is_hard else BounceOutcome.APPLIED


def _add_bounces(
    uow: UnitOfWork, bounces: Sequence[ReportedBounce], targets: Sequence[_Target]
) -> list[_Target]:
    """Return the subscriptions whose bounce is new, or was soft and is now hard."""
    if not targets:
        return []
    values = _describe_bounces(uow, bounces, targets)
    new_keys = {tuple(row) for row in uow.session.execute(_ADD_BOUNCES, values)}
    return [
        target
        for target in targets
        if (*target.pair, bounces[target.number].mailing.mailing_id) in new_keys
    ]


def _describe_bounces(
    uow: UnitOfWork, bounces: Sequence[ReportedBounce], targets: Sequence[_Target]
) -> dict[str, Any]:
    keyring = uow.settings.keyring
    reported = [bounces[target.number] for target in targets]
    return {
        **split_pairs([target.pair for target in targets]),
        "digests": [compute_address_digest(keyring, target.email) for target in targets],
        "mailing_ids": [each.mailing.mailing_id for each in reported],
        "are_hard": [each.is_hard for each in reported],
        "statuses": [each.status for each in reported],
        "mailing_times": [each.mailing.mailing_at for each in reported],
        "bounce_times": [each.mailing.occurred_at for each in reported],
    }


def _stop_mail(
    uow: UnitOfWork, bounces: Sequence[ReportedBounce], targets: Sequence[_Target]
) -> None:
    actions = {target.pair: changes.BOUNCED for target in targets if bounces[target.number].is_hard}
    soft_pairs = {target.pair for target in targets} - actions.keys()
    if soft_pairs:
        values = split_pairs(soft_pairs) | {"min_span": MIN_SOFT_BOUNCE_SPAN}
        for list_id, user_id in uow.session.execute(_STOP_AFTER_SOFT_BOUNCES, values):
            actions[list_id, user_id] = changes.SOFT_BOUNCED
    if not actions:
        return
    # The undo of an import skips members whose ``updated_at`` differs from ``imported_at``. Keep
    # ``updated_at`` of imported members, so that the undo of a bad import also removes members who
    # have bounced since.
    is_unchanged = Subscription.updated_at == Subscription.imported_at
    updated_at = case((is_unchanged, Subscription.updated_at), else_=func.clock_timestamp())
    owner_ids = {target.id: target.owner_id for target in targets if target.pair in actions}
    statement = (
        update(Subscription)
        .where(
            Subscription.id == any_(cast(list(owner_ids), ARRAY(BigInteger))),
            Subscription.status == SubscriptionStatus.ACTIVE,
            Subscription.email_enabled,
        )
        .values(email_enabled=False, updated_at=updated_at)
        .returning(Subscription)
        .execution_options(populate_existing=True)
    )
    for record in uow.session.scalars(statement).all():
        changes.record_event(
            uow,
            record,
            actions[record.list_id, record.user_id],
            SENDER,
            status=record.status,
            email_enabled=True,
            account_id=owner_ids[record.id],
        )


def _sort_key(mailing: MemberMailing) -> tuple[datetime, int, datetime]:
    return mailing.mailing_at, mailing.mailing_id, mailing.occurred_at
