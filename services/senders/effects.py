"""Finds the members that reports concern, and applies the reports to members and mailings.

The number of SQL statements hardly depends on the number of reports in a batch. Only the opt-outs
of members are stored one by one, because opt-outs are rare.

``apply_opt_outs`` runs first and in its own transaction, so that an opt-out takes effect even while
a bulk action locks the list. ``apply_reports`` applies everything else. If ``apply_reports`` fails,
both functions run again. This is safe, because storing an opt-out twice has no effect.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, NamedTuple

from sqlalchemy import text

from core import clock
from core.keyring import Keyring
from integrations.senders.port import BounceClass, Report, ReportKind, UnusedEvent, UnusedReason
from models import ReportOutcome, Sender
from services.accounts.email_addresses import InvalidAddress, normalise_addresses
from services.senders import notices
from services.senders.reports import mask_recipient
from services.subscriptions.mailings import has_many_bounces, has_many_complaints
from services.subscriptions.members import (
    bounce_reports,
    changes,
    delivery_ids,
    opt_out_checks,
    unsubscribe,
)
from services.subscriptions.members.bounce_reports import MemberMailing, ReportedBounce
from services.subscriptions.members.delivery_ids import DeliveryId
from storage.array_texts import format_numbers, format_texts
from storage.unit_of_work import UnitOfWork

# A report may state a time that is at most this far in the future. A later time is replaced with
# the time of arrival.
_MAX_CLOCK_DIFFERENCE = timedelta(minutes=5)
# A report on a mailing that is older than this doesn't change the mailing's figures.
MAX_MAILING_AGE = timedelta(days=30)
# The maximum number of opt-outs that one SQL statement stores. A sender may name a thousand lists,
# so that the complaints in one batch may cause millions of opt-outs.
_MAX_OPT_OUTS_PER_STATEMENT = 10_000
_OPT_OUT_SOURCES = {
    ReportKind.COMPLAINED: unsubscribe.SENDER_COMPLAINT,
    ReportKind.UNSUBSCRIBED: unsubscribe.SENDER_UNSUBSCRIBE,
}
_ENGAGEMENT_KINDS = frozenset({ReportKind.DELIVERED, ReportKind.OPENED, ReportKind.CLICKED})
_BOUNCE_FIGURES = {
    BounceClass.HARD: "hard_bounced",
    BounceClass.SOFT: "soft_bounced",
    BounceClass.BLOCKED: "blocked",
    BounceClass.CONTENT: "blocked",
}
# If a report has a different outcome on each of several lists, the first outcome here is shown.
_OUTCOME_ORDER = (
    ReportOutcome.APPLIED,
    ReportOutcome.DUPLICATE,
    ReportOutcome.LATE,
    ReportOutcome.STALE,
    ReportOutcome.OFF,
    ReportOutcome.IGNORED,
    ReportOutcome.UNMATCHED,
)
_COVERED = """(CAST(:any_list AS boolean) OR l.user_id = :owner_id AND (
    CAST(:covered_ids AS bigint[]) IS NULL OR l.id = ANY (CAST(:covered_ids AS bigint[]))))"""
# Returns the indexes of the reports whose recipients have a subscription to the list in the report.
# The sender must cover this list.
_FIND_BY_DELIVERY = text(f"""
SELECT r.number - 1
FROM unnest(CAST(:list_ids AS bigint[]), CAST(:user_ids AS bigint[]))
    WITH ORDINALITY AS r (list_id, user_id, number)
JOIN lists AS l ON l.id = r.list_id AND {_COVERED}
JOIN subscriptions AS m ON m.list_id = r.list_id AND m.user_id = r.user_id
JOIN users AS u ON u.id = r.user_id AND u.erased_at IS NULL
""")  # noqa: S608 - no input
# Finds the lists to which members were transferred, directly or in several steps. Both events of a
# transfer have the same time, because the same transaction stores both.
_FIND_TRANSFERS = text(f"""
WITH RECURSIVE places AS (
    SELECT number - 1 AS number, list_id, user_id, since
    FROM unnest(CAST(:list_ids AS bigint[]), CAST(:user_ids AS bigint[]),
        CAST(:times AS timestamptz[])) WITH ORDINALITY AS r (list_id, user_id, since, number)
    UNION
    SELECT places.number, arrival.list_id, places.user_id, arrival.created_at
    FROM places JOIN subscription_events AS departure
        ON departure.list_id = places.list_id AND departure.user_id = places.user_id
        AND departure.action = '{changes.TRANSFERRED_AWAY}' AND departure.created_at >= places.since
    JOIN subscription_events AS arrival
        ON arrival.user_id = departure.user_id AND arrival.created_at = departure.created_at
        AND arrival.action = '{changes.TRANSFERRED_IN}'
)
SELECT DISTINCT places.number, l.id
FROM places JOIN lists AS l ON l.id = places.list_id AND {_COVERED}
ORDER BY 1, 2
""")  # noqa: S608 - no input
_FIND_MAILINGS = text("""
SELECT m.id, m.list_id, m.created_at
FROM unnest(CAST(:mailing_ids AS bigint[]), CAST(:list_ids AS bigint[])) AS r (id, list_id)
JOIN mailings AS m ON m.id = r.id AND m.list_id = r.list_id
""")
# Several members of a list can match an address. The statement returns only one member per list.
# The first choice is the member whose subscription has the address. The second choice is the member
# whose account has the address. The last choice is a member whose account had the address before.
_FIND_BY_ADDRESS = text(f"""
WITH addresses AS (
    SELECT number - 1 AS number, email
    FROM unnest(CAST(:addresses AS text[])) WITH ORDINALITY AS a (email, number)
), people AS (
    SELECT a.number, a.email, u.id, false AS is_former
    FROM addresses AS a JOIN users AS u ON u.email = a.email AND u.erased_at IS NULL
    UNION ALL
    SELECT a.number, a.email, u.id, true
    FROM addresses AS a JOIN former_addresses AS f ON f.email = a.email
    JOIN users AS u ON u.id = f.user_id AND u.erased_at IS NULL
)
SELECT DISTINCT ON (p.number, m.list_id) p.number, m.list_id, m.user_id, m.status
FROM people AS p JOIN subscriptions AS m ON m.user_id = p.id
JOIN lists AS l ON l.id = m.list_id AND {_COVERED}
ORDER BY p.number, m.list_id, (m.email = p.email) DESC NULLS LAST, p.is_former, m.user_id
""")  # noqa: S608 - no input
_HAS_MEMBER = text("""
SELECT EXISTS (
    SELECT FROM users AS u JOIN subscriptions AS m ON m.user_id = u.id
    WHERE u.email = :address AND m.list_id = :list_id
)
""")
# Insert the rows in a fixed order, to prevent deadlocks.
_KEEP_ADDRESSES = text("""
INSERT INTO opt_outs (list_id, address_hmac, kind, source)
SELECT list_id, address_hmac, 'list', source
FROM unnest(CAST(:list_ids AS bigint[]), CAST(:digests AS bytea[]), CAST(:sources AS text[]))
    WITH ORDINALITY AS r (list_id, address_hmac, source, number)
ORDER BY list_id, address_hmac, number
ON CONFLICT DO NOTHING
RETURNING list_id, address_hmac
""")
# Returns the indexes of the marks that already existed.
_ADD_MARKS = text("""
WITH marks AS (
    SELECT * FROM unnest(CAST(:user_ids AS bigint[]), CAST(:list_ids AS bigint[]),
        CAST(:mailing_ids AS bigint[]), CAST(:kinds AS text[]))
        WITH ORDINALITY AS m (user_id, list_id, mailing_id, kind, number)
), added AS (
    INSERT INTO mailing_marks (user_id, list_id, mailing_id, kind)
    SELECT user_id, list_id, mailing_id, kind FROM marks ORDER BY number
    ON CONFLICT DO NOTHING
    RETURNING user_id, list_id, mailing_id, kind
)
SELECT number - 1 FROM marks LEFT JOIN added USING (user_id, list_id, mailing_id, kind)
WHERE added.user_id IS NULL
""")
_FIGURES = (
    *("delivered", "hard_bounced", "soft_bounced", "blocked", "complained", "unsubscribed"),
    *("opened", "machine_opened", "clicked"),
)
_ADD_FIGURES = text(f"""
UPDATE mailings AS m SET {", ".join(f"{name} = m.{name} + r.{name}" for name in _FIGURES)}
FROM unnest(CAST(:ids AS bigint[]), CAST(:list_ids AS bigint[]),
    {", ".join(f"CAST(:{name} AS bigint[])" for name in _FIGURES)})
    AS r (id, list_id, {", ".join(_FIGURES)})
WHERE m.id = r.id AND m.list_id = r.list_id
RETURNING m.id, m.rows, m.hard_bounced, m.complained,
    m.hard_bounced - r.hard_bounced AS former_hard_bounced,
    m.complained - r.complained AS former_complained
""")  # noqa: S608 - no input
_NEEDED_OPT_OUTS = text("""
SELECT r.number - 1 FROM unnest(CAST(:list_ids AS bigint[]), CAST(:user_ids AS bigint[]))
    WITH ORDINALITY AS r (list_id, user_id, number)
WHERE NOT EXISTS (
    SELECT FROM opt_outs AS o
    WHERE o.list_id = r.list_id AND o.user_id = r.user_id AND o.kind = 'list'
) OR EXISTS (
    SELECT FROM subscriptions AS m WHERE m.list_id = r.list_id AND m.user_id = r.user_id
        AND m.status IN ('active', 'pending')
)
""")


# The key of a row in ``mailing_marks``, which prevents a report from being counted twice. The key
# consists of a user id, a list id, a mailing id and the name of a figure.
_Mark = tuple[int, int, int, str]


@dataclass(slots=True)
class ReceivedReport:
    """An event that a sender posted, and its effect.

    The event is a report, or an event that Pressroom ignores or can't read. ``find_members`` and
    ``apply_reports`` set the attributes that describe the effect.

    Attributes:
        occurred_at: the time that the sender states, or the time of arrival if that time is missing
            or lies in the future.
        delivery: the content of the report's delivery id, or ``None`` if the report has no valid
            delivery id.
        address: the normalised address of the recipient, or ``None`` if the report has no valid
            address.
        members: the recipient's subscriptions that the report changes. A report without a delivery
            id may change subscriptions to several lists.
        outcomes: the outcome for each item of ``members``, in the same order.
    """

    event: Report | UnusedEvent
    received_at: datetime
    occurred_at: datetime = field(init=False)
    delivery: DeliveryId | None = None
    address: str | None = None
    members: list[MemberMailing] = field(default_factory=list)
    outcomes: list[ReportOutcome] = field(default_factory=list)
    outcome: ReportOutcome = ReportOutcome.UNMATCHED

    def __post_init__(self) -> None:
        occurred_at = self.event.occurred_at
        is_usable = (
            occurred_at is not None and occurred_at <= self.received_at + _MAX_CLOCK_DIFFERENCE
        )
        self.occurred_at = occurred_at if occurred_at and is_usable else self.received_at
        if isinstance(self.event, UnusedEvent):
            is_ignored = self.event.reason is UnusedReason.IGNORED
            self.outcome = ReportOutcome.IGNORED if is_ignored else ReportOutcome.INVALID


def find_members(uow: UnitOfWork, sender: Sender, received: Sequence[ReceivedReport]) -> None:
    """Find the members that the reports concern, and fill in ``members`` and ``outcomes``.

    ``apply_reports`` may change the outcomes later, for example to ``DUPLICATE``. A report is stale
    if its event happened before the person last joined the list, came back or turned mail on.
    """
    used = [each for each in received if isinstance(each.event, Report)]
    for each in used:
        each.members = []
    _read_recipients(used, uow.settings.keyring)
    _find_by_delivery(uow, sender, [each for each in used if each.delivery is not None])
    _add_transferred(uow, sender, used)
    if not sender.any_list:
        has_only_address = [
            each for each in used if each.delivery is None and each.address is not None
        ]
        _find_by_address(uow, sender, has_only_address)
    members = [member for each in used for member in each.members]
    stale_numbers = bounce_reports.find_stale_mailings(uow, members)
    oldest = clock.now() - MAX_MAILING_AGE
    number = 0
    for each in used:
        outcomes: list[ReportOutcome] = []
        for member in each.members:
            is_stale = number in stale_numbers
            outcomes.append(
                ReportOutcome.STALE if is_stale else _choose_outcome(each.event, member, oldest)
            )
            number += 1
        each.outcomes = outcomes


class ReportFacts(NamedTuple):
    """The fields of a report that Pressroom keeps for the list of recent reports.

    Attributes:
        code: the cause of a bounce. For an event that Pressroom ignores or can't read, the
            provider's name of the event's type.
        recipient: the masked address of the recipient, if no member was found.
    """

    kind: str | None
    outcome: str
    code: str | None
    status: str | None
    mailing_id: int | None
    list_id: int | None
    user_id: int | None
    recipient: str | None


def describe_report(received: ReceivedReport) -> ReportFacts:
    event = received.event
    if isinstance(event, UnusedEvent):
        outcome = received.outcome.value
        return ReportFacts(None, outcome, event.event_type, None, None, None, None, None)
    member = received.members[0] if received.members else None
    is_masked = member is None and received.address is not None
    return ReportFacts(
        kind=event.kind.value,
        outcome=received.outcome.value,
        code=None if event.bounce_class is None else event.bounce_class.value,
        status=event.status,
        mailing_id=member.mailing_id if member and member.mailing_id > 0 else None,
        list_id=member.list_id if member else None,
        user_id=member.user_id if member else None,
        recipient=mask_recipient(received.address or "") if is_masked else None,
    )


def choose_opt_outs(received: Iterable[ReceivedReport]) -> list[ReceivedReport]:
    """Return the complaints and unsubscriptions among the reports."""
    return [each for each in received if _get_source(each) is not None]


def apply_opt_outs(uow: UnitOfWork, received: Iterable[ReceivedReport]) -> list[int]:
    """Store an opt-out for each complaint and unsubscription, without a lock on a list.

    Return the ids of the jobs that unsubscribe the members (see ``record_reported_opt_outs``).
    """
    sources: dict[tuple[int, int], str] = {}
    for each in received:
        source = _get_source(each)
        for member, outcome in zip(each.members, each.outcomes, strict=True):
            # If a member has both, store the complaint instead of the unsubscription.
            is_stronger = source == unsubscribe.SENDER_COMPLAINT or member.pair not in sources
            if source is not None and outcome is ReportOutcome.APPLIED and is_stronger:
                sources[member.pair] = source
    if not sources:
        return []
    pairs = sorted(sources)
    values = {"list_ids": [pair[0] for pair in pairs], "user_ids": [pair[1] for pair in pairs]}
    needed = [pairs[number] for number in uow.session.scalars(_NEEDED_OPT_OUTS, values)]
    return unsubscribe.record_reported_opt_outs(uow, {pair: sources[pair] for pair in needed})


def apply_reports(uow: UnitOfWork, sender: Sender, received: Sequence[ReceivedReport]) -> None:
    """Apply all effects of the reports except the opt-outs of members, and fill in ``outcome``.

    Raises ``TransientError`` if another transaction holds the lock on a list.
    """
    _apply_bounces(uow, sender, received)
    _keep_addresses_opted_out(uow, sender, received)
    _count_marks(uow, sender, received)
    for each in received:
        if len(each.outcomes) == 1:
            [each.outcome] = each.outcomes
        elif each.outcomes:
            each.outcome = min(each.outcomes, key=_OUTCOME_ORDER.index)


def _get_source(received: ReceivedReport) -> str | None:
    """Return the source for the opt-out of a complaint or an unsubscription.

    Return ``None`` for all other events.
    """
    event = received.event
    return _OPT_OUT_SOURCES.get(event.kind) if isinstance(event, Report) else None


def _iterate_outcomes(
    received: Iterable[ReceivedReport],
) -> Iterator[tuple[ReceivedReport, Report, int, MemberMailing, ReportOutcome]]:
    """Yield each member of each report, with the member's index and the outcome for the member."""
    for each in received:
        if isinstance(each.event, Report):
            members = zip(each.members, [*each.outcomes], strict=True)
            for index, (member, outcome) in enumerate(members):
                yield each, each.event, index, member, outcome


def _read_recipients(received: Sequence[ReceivedReport], keyring: Keyring) -> None:
    """Verify the delivery ids of reports, and normalise the addresses."""
    emails: list[str] = []
    for each in received:
        assert isinstance(each.event, Report)
        emails.append(each.event.email or "")
        if each.event.delivery_id is not None:
            each.delivery = delivery_ids.read_delivery_id(keyring, each.event.delivery_id)
    for each, address in zip(received, normalise_addresses(emails), strict=True):
        each.address = None if isinstance(address, InvalidAddress) else address


def _find_by_delivery(uow: UnitOfWork, sender: Sender, received: Sequence[ReceivedReport]) -> None:
    """Find the member of each valid delivery id."""
    deliveries = [(each, each.delivery) for each in received if each.delivery is not None]
    if not deliveries:
        return
    values = {
        **_describe_coverage(sender),
        "list_ids": format_numbers(item.list_id for _, item in deliveries),
        "user_ids": format_numbers(item.user_id for _, item in deliveries),
    }
    began_at = _find_mailings(uow, {(item.mailing_id, item.list_id) for _, item in deliveries})
    for number in uow.session.scalars(_FIND_BY_DELIVERY, values):
        each, item = deliveries[number]
        mailing_at = began_at.get((item.mailing_id, item.list_id)) or _begin_day(item.day)
        each.members = [
            MemberMailing(item.list_id, item.user_id, item.mailing_id, mailing_at, each.occurred_at)
        ]


def _find_mailings(
    uow: UnitOfWork, keys: Collection[tuple[int, int]]
) -> dict[tuple[int, int], datetime]:
    """Return when mailings began. Each key contains a mailing id and a list id."""
    mailing_ids, list_ids = zip(*keys, strict=True)
    values = {"mailing_ids": format_numbers(mailing_ids), "list_ids": format_numbers(list_ids)}
    rows = uow.session.execute(_FIND_MAILINGS, values)
    return {(mailing_id, list_id): created_at for mailing_id, list_id, created_at in rows}


def _add_transferred(uow: UnitOfWork, sender: Sender, received: Iterable[ReceivedReport]) -> None:
    """Extend opt-outs to the lists to which the member was transferred after the mail."""
    opt_outs = [each for each in received if each.members and _get_source(each) is not None]
    if not opt_outs:
        return
    mailings = [each.members[0] for each in opt_outs]
    values = {
        **_describe_coverage(sender),
        "list_ids": [mailing.list_id for mailing in mailings],
        "user_ids": [mailing.user_id for mailing in mailings],
        "times": [mailing.mailing_at for mailing in mailings],
    }
    for number, list_id in uow.session.execute(_FIND_TRANSFERS, values):
        if list_id != mailings[number].list_id:
            opt_outs[number].members.append(mailings[number]._replace(list_id=list_id))


def _find_by_address(uow: UnitOfWork, sender: Sender, received: Sequence[ReceivedReport]) -> None:
    addresses = sorted({each.address for each in received if each.address is not None})
    if not addresses:
        return
    values = {**_describe_coverage(sender), "addresses": addresses}
    members: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
    for number, list_id, user_id, status in uow.session.execute(_FIND_BY_ADDRESS, values):
        members[addresses[number]].append((list_id, user_id, status))
    for each in received:
        assert isinstance(each.event, Report)
        assert each.address is not None
        candidates = members[each.address]
        if each.event.kind in _ENGAGEMENT_KINDS:
            # The report names no list. If the address is active on several lists, the report could
            # be on the mail of any of them, so the report is left unmatched.
            candidates = [member for member in candidates if member[2] == "active"]
            candidates = candidates if len(candidates) == 1 else []
        mailing_id = _derive_mailing_id(each)
        mailing_at = _begin_day(each.occurred_at.astimezone(UTC).date())
        each.members = [
            MemberMailing(list_id, user_id, mailing_id, mailing_at, each.occurred_at)
            for list_id, user_id, _ in candidates
        ]


def _derive_mailing_id(received: ReceivedReport) -> int:
    """Return an artificial mailing id for a report that has no delivery id.

    The id is a hash of the provider's message id, or of the day if the report has no message id.
    The id is negative, so that it differs from the ids of all rosters and mails.
    """
    assert isinstance(received.event, Report)
    message_id = received.event.message_id
    day = received.occurred_at.astimezone(UTC).date()
    name = f"day:{day}" if message_id is None else f"message:{message_id}"
    digest = hashlib.blake2b(name.encode(errors="replace"), digest_size=8).digest()
    return -1 - (int.from_bytes(digest, "big") >> 1)


def _begin_day(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)


def _choose_outcome(
    event: Report | UnusedEvent, member: MemberMailing, oldest: datetime
) -> ReportOutcome:
    """Return the outcome that a report has unless the report is a duplicate.

    ``oldest``: reports don't change the figures of mailings that began before this time.
    """
    assert isinstance(event, Report)
    is_late = member.mailing_at < oldest
    if event.kind in (ReportKind.OPENED, ReportKind.CLICKED):
        # Pressroom doesn't record opens and clicks.
        return ReportOutcome.OFF
    is_final = event.kind in _OPT_OUT_SOURCES or event.bounce_class is BounceClass.HARD
    return ReportOutcome.LATE if is_late and not is_final else ReportOutcome.APPLIED


def _choose_figure(event: Report) -> str:
    if event.bounce_class is not None:
        return _BOUNCE_FIGURES[event.bounce_class]
    return event.kind.value


def _apply_bounces(uow: UnitOfWork, sender: Sender, received: Sequence[ReceivedReport]) -> None:
    """Record hard and soft bounces. A member's soft bounces end when a mail reaches the member."""
    places: list[tuple[ReceivedReport, int]] = []
    reported: list[ReportedBounce] = []
    reached: list[MemberMailing] = []
    for each, event, index, member, outcome in _iterate_outcomes(received):
        if outcome is ReportOutcome.STALE:
            continue
        if event.bounce_class in (BounceClass.HARD, BounceClass.SOFT):
            is_hard = event.bounce_class is BounceClass.HARD
            places.append((each, index))
            reported.append(ReportedBounce(member, is_hard, event.status))
        elif event.kind is ReportKind.DELIVERED or (
            event.kind in _ENGAGEMENT_KINDS and not event.is_machine
        ):
            reached.append(member)
    if not reported:
        bounce_reports.end_soft_bounces(uow, reached)
        return
    covered = None if sender.any_list else sender.list_ids
    results = bounce_reports.record_bounces(
        uow, reported, covered_list_ids=covered, reached=reached
    )
    for (each, index), result in zip(places, results, strict=True):
        each.outcomes[index] = ReportOutcome(result.value)


def _keep_addresses_opted_out(
    uow: UnitOfWork, sender: Sender, received: Iterable[ReceivedReport]
) -> None:
    """Store opt-outs for complaints and unsubscriptions of addresses that belong to no member.

    Such an opt-out contains an HMAC of the address instead of a person's id. The opt-outs apply
    only to lists whose ids the sender names, because a guessed address must not change the list of
    another owner. If the report has a valid delivery id, the opt-out applies only to the list of
    the mail. The delivery id may belong to an erased person.
    """
    if sender.any_list or sender.list_ids is None:
        return
    digests: dict[str, bytes] = {}
    places: list[tuple[ReceivedReport, int]] = []
    for each in received:
        if _get_source(each) is not None and not each.members and each.address is not None:
            if each.address not in digests:
                digests[each.address] = opt_out_checks.compute_address_digest(
                    uow.settings.keyring, each.address
                )
            list_ids = _choose_opted_out_lists(uow, sender.list_ids, each)
            places += [(each, list_id) for list_id in list_ids]
    for start in range(0, len(places), _MAX_OPT_OUTS_PER_STATEMENT):
        chunk = places[start : start + _MAX_OPT_OUTS_PER_STATEMENT]
        values = {
            "list_ids": [list_id for _, list_id in chunk],
            "digests": [digests[each.address or ""] for each, _ in chunk],
            "sources": [_get_source(each) for each, _ in chunk],
        }
        rows = uow.session.execute(_KEEP_ADDRESSES, values).all()
        added = {(list_id, bytes(digest)) for list_id, digest in rows}
        for each, list_id in chunk:
            key = (list_id, digests[each.address or ""])
            if key in added:
                # If the batch contains the report twice, the second one is a duplicate.
                added.remove(key)
                each.outcome = ReportOutcome.APPLIED
            elif each.outcome is ReportOutcome.UNMATCHED:
                each.outcome = ReportOutcome.DUPLICATE


def _choose_opted_out_lists(
    uow: UnitOfWork, covered_ids: Sequence[int], received: ReceivedReport
) -> Sequence[int]:
    """Return the lists to which an opt-out applies if the report's address has no member."""
    if received.delivery is None:
        return covered_ids
    list_id = received.delivery.list_id
    values = {"address": received.address, "list_id": list_id}
    if list_id not in covered_ids or uow.session.scalar(_HAS_MEMBER, values):
        # A member with this address may be a different person who didn't get the mail.
        return ()
    return (list_id,)


def _count_marks(uow: UnitOfWork, sender: Sender, received: Iterable[ReceivedReport]) -> None:
    """Add each new report to the figures of its mailing.

    A new report adds a row that prevents the report from being counted twice. If the row exists,
    the report's outcome is changed to ``DUPLICATE``.
    """
    places: dict[_Mark, list[tuple[ReceivedReport, int]]] = {}
    oldest = clock.now() - MAX_MAILING_AGE
    for each, event, index, member, outcome in _iterate_outcomes(received):
        if outcome is ReportOutcome.APPLIED and member.mailing_at >= oldest:
            mark = (member.user_id, member.list_id, member.mailing_id, _choose_figure(event))
            places.setdefault(mark, []).append((each, index))
    if not places:
        return
    marks = sorted(places)
    user_ids, list_ids, mailing_ids, kinds = zip(*marks, strict=True)
    values = {
        "user_ids": format_numbers(user_ids),
        "list_ids": format_numbers(list_ids),
        "mailing_ids": format_numbers(mailing_ids),
        "kinds": format_texts(kinds),
    }
    old_marks = {marks[number] for number in uow.session.scalars(_ADD_MARKS, values)}
    for mark, marked in places.items():
        for each, index in marked[0 if mark in old_marks else 1 :]:
            each.outcomes[index] = ReportOutcome.DUPLICATE
    _add_figures(uow, sender, places.keys() - old_marks)


def _add_figures(uow: UnitOfWork, sender: Sender, marks: Iterable[_Mark]) -> None:
    """Add marks to the figures of mailings. Notify owners of mailings that reach the limits."""
    figures: dict[tuple[int, int], Counter[str]] = defaultdict(Counter)
    for _, list_id, mailing_id, figure in marks:
        if mailing_id > 0:
            figures[mailing_id, list_id][figure] += 1
    if figures:
        keys = sorted(figures)
        columns = {name: [figures[key][name] for key in keys] for name in _FIGURES}
        ids = {"ids": [key[0] for key in keys], "list_ids": [key[1] for key in keys]}
        for row in uow.session.execute(_ADD_FIGURES, ids | columns).all():
            # The figures only grow, so each mailing reaches the limits once.
            was_alarming = _is_alarming(row.rows, row.former_hard_bounced, row.former_complained)
            if _is_alarming(row.rows, row.hard_bounced, row.complained) and not was_alarming:
                notices.report_alarm(uow, sender, row.id)


def _is_alarming(rows: int, hard_bounced: int, complained: int) -> bool:
    """Return whether the bounces or complaints of a mailing reach the limits for an alarm."""
    return has_many_bounces(rows, hard_bounced) or has_many_complaints(rows, complained)


def _describe_coverage(sender: Sender) -> Mapping[str, Any]:
    return {
        "any_list": sender.any_list,
        "owner_id": sender.user_id,
        "covered_ids": sender.list_ids,
    }
