"""Finds the list members that are affected by the reports of a sender.

A report identifies the member by the delivery id of a mail or, without a delivery id, by the
address.
"""

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, time
from typing import Any, NamedTuple

from sqlalchemy import func, select, text

from core import clock
from core.ids import PersonId
from core.keyring import Keyring
from integrations.senders.port import BounceClass, Report, ReportKind, UnusedEvent
from models import MailingList, ReportOutcome, Sender
from services.accounts.email_addresses import InvalidAddress, normalise_addresses
from services.engagement.measuring import find_measured
from services.senders.report import (
    ENGAGEMENT_KINDS,
    OPT_OUT_SOURCES,
    ReceivedReport,
    get_opt_out_source,
)
from services.subscriptions.members import changes, delivery_ids
from services.subscriptions.members.bounce_recording import MAX_MAILING_AGE
from services.subscriptions.members.stale_events import MemberMailing, find_stale_mailings
from storage.array_texts import format_numbers
from storage.unit_of_work import UnitOfWork

_COVERED = """(CAST(:any_list AS boolean) OR l.user_id = :owner_id AND (
    CAST(:covered_ids AS bigint[]) IS NULL OR l.id = ANY (CAST(:covered_ids AS bigint[]))))"""
# A delivery id contains a list id and a user id. Returns the indexes of the reports whose delivery
# id contains the id of a list that the sender covers, and the id of a user with a subscription to
# this list.
_FIND_BY_DELIVERY = text(f"""
SELECT r.number - 1
FROM unnest(CAST(:list_ids AS bigint[]), CAST(:user_ids AS bigint[]))
    WITH ORDINALITY AS r (list_id, user_id, number)
JOIN lists AS l ON l.id = r.list_id AND {_COVERED}
JOIN subscriptions AS m ON m.list_id = r.list_id AND m.user_id = r.user_id
JOIN users AS u ON u.id = r.user_id AND u.erased_at IS NULL
""")  # noqa: S608 - no input
# Finds the lists to which members were transferred, directly or in several steps. A transfer stores
# one event for the member's old list and one for the new list. Both events are stored in one
# transaction, so they have the same time.
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
_PEOPLE = """
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
"""
# Finds the members with an address, at most one on each list. If several members of a list have or
# had the address, the query returns the member whose subscription has the address. If no
# subscription has the address, the query returns a member whose account has the address or, as a
# last resort, had the address in the past. The last column says whether the subscription has the
# address.
_FIND_BY_ADDRESS = text(f"""
{_PEOPLE}
SELECT DISTINCT ON (p.number, m.list_id) p.number, m.list_id, m.user_id, m.status,
    m.email IS NOT DISTINCT FROM p.email
FROM people AS p JOIN subscriptions AS m ON m.user_id = p.id
JOIN lists AS l ON l.id = m.list_id AND {_COVERED}
ORDER BY p.number, m.list_id, (m.email = p.email) DESC NULLS LAST, p.is_former, m.user_id
""")  # noqa: S608 - no input
_COUNT_BY_ADDRESS = text(f"""
{_PEOPLE}
SELECT p.number, count(*) FROM people AS p JOIN subscriptions AS m ON m.user_id = p.id
JOIN lists AS l ON l.id = m.list_id AND {_COVERED}
GROUP BY p.number
""")  # noqa: S608 - no input
# A stranger's opt-out is a single row, but the row contains the ids of all covered lists.
_LISTS_PER_WRITTEN_ROW = 100
# The assumed number of an owner's lists, for a sender that covers the lists of all owners.
_LISTS_OF_ANY_OWNER = 100


class _Candidate(NamedTuple):
    list_id: int
    user_id: PersonId
    status: str
    has_address: bool


def find_members(uow: UnitOfWork, sender: Sender, reports: Sequence[ReceivedReport]) -> None:
    """Set ``members`` and ``outcomes`` of each report, unless an earlier call has set them.

    The outcome is ``STALE`` if the member joined the list or turned mail on after the reported
    event.
    """
    readable_reports = [
        report
        for report in reports
        if isinstance(report.event, Report) and not report.are_members_found
    ]
    read_recipients(readable_reports, uow.settings.keyring)
    _find_by_delivery(
        uow, sender, [report for report in readable_reports if report.delivery is not None]
    )
    _add_transferred(uow, sender, readable_reports)
    if not sender.any_list:
        has_only_address = [
            report
            for report in readable_reports
            if report.delivery is None and report.address is not None
        ]
        _find_by_address(uow, sender, has_only_address)
    members = [member for report in readable_reports for member in report.members]
    stale_numbers = find_stale_mailings(uow, members)
    measured = find_measured(
        uow,
        {
            member.pair
            for report in readable_reports
            if isinstance(report.event, Report) and report.event.kind in ENGAGEMENT_KINDS
            for member in report.members
        },
    )
    oldest = clock.now() - MAX_MAILING_AGE
    number = 0
    for report in readable_reports:
        outcomes: list[ReportOutcome] = []
        for member in report.members:
            if number in stale_numbers:
                outcomes.append(ReportOutcome.STALE)
            else:
                is_measured = member.pair in measured
                outcomes.append(
                    _choose_outcome(report.event, member, oldest, is_measured=is_measured)
                )
            number += 1
        report.outcomes = outcomes
        report.are_measured = [member.pair in measured for member in report.members]
        report.are_members_found = True


def read_recipients(reports: Iterable[ReceivedReport], keyring: Keyring) -> None:
    addressed: list[tuple[ReceivedReport, str]] = []
    for report in reports:
        if report.is_recipient_read or not isinstance(report.event, Report):
            continue
        report.is_recipient_read = True
        if report.event.email:
            addressed.append((report, report.event.email))
        if report.event.delivery_id is not None:
            report.delivery = delivery_ids.read_delivery_id(keyring, report.event.delivery_id)
    addresses = normalise_addresses([email for _, email in addressed])
    for (report, _), address in zip(addressed, addresses, strict=True):
        report.address = None if isinstance(address, InvalidAddress) else address


def count_lists(uow: UnitOfWork, sender: Sender) -> int:
    if sender.any_list:
        return _LISTS_OF_ANY_OWNER
    if sender.list_ids is not None:
        return len(sender.list_ids)
    query = select(func.count()).where(MailingList.user_id == sender.user_id)
    return uow.session.scalar(query) or 0


def estimate_costs(
    uow: UnitOfWork, sender: Sender, lists: int, reports: Sequence[ReceivedReport]
) -> list[int]:
    """Return about how many rows each report changes. Call ``read_recipients`` first."""
    costs = [1] * len(reports)
    has_only_address: dict[str, list[int]] = defaultdict(list)
    for number, report in enumerate(reports):
        if not isinstance(report.event, Report):
            continue
        if report.event.bounce_class is BounceClass.HARD:
            costs[number] = lists
        elif report.delivery is None and report.address is not None and not sender.any_list:
            has_only_address[report.address].append(number)
            if get_opt_out_source(report) is not None:
                costs[number] += lists // _LISTS_PER_WRITTEN_ROW
    addresses = sorted(has_only_address)
    values = {**_describe_coverage(sender), "addresses": addresses}
    for address_number, count in (
        uow.session.execute(_COUNT_BY_ADDRESS, values) if addresses else ()
    ):
        for number in has_only_address[addresses[address_number]]:
            costs[number] += count
    return costs


def _find_by_delivery(uow: UnitOfWork, sender: Sender, reports: Sequence[ReceivedReport]) -> None:
    deliveries = [(report, report.delivery) for report in reports if report.delivery is not None]
    if not deliveries:
        return
    values = {
        **_describe_coverage(sender),
        "list_ids": format_numbers(item.list_id for _, item in deliveries),
        "user_ids": format_numbers(item.user_id for _, item in deliveries),
    }
    began_at = _find_mailings(uow, {(item.mailing_id, item.list_id) for _, item in deliveries})
    for number in uow.session.scalars(_FIND_BY_DELIVERY, values):
        report, item = deliveries[number]
        mailing_at = began_at.get((item.mailing_id, item.list_id)) or _begin_day(item.day)
        report.members = [
            MemberMailing(
                item.list_id, item.user_id, item.mailing_id, mailing_at, report.occurred_at
            )
        ]


def _find_mailings(
    uow: UnitOfWork, keys: Collection[tuple[int, int]]
) -> dict[tuple[int, int], datetime]:
    """Map each pair of a mailing id and a list id to the time at which the mailing began."""
    mailing_ids, list_ids = zip(*keys, strict=True)
    values = {"mailing_ids": format_numbers(mailing_ids), "list_ids": format_numbers(list_ids)}
    rows = uow.session.execute(_FIND_MAILINGS, values)
    return {(mailing_id, list_id): created_at for mailing_id, list_id, created_at in rows}


def _add_transferred(uow: UnitOfWork, sender: Sender, reports: Iterable[ReceivedReport]) -> None:
    """Extend each opt-out to the lists to which the member was transferred after the mailing."""
    opt_outs = [
        report for report in reports if report.members and get_opt_out_source(report) is not None
    ]
    if not opt_outs:
        return
    mailings = [report.members[0] for report in opt_outs]
    values = {
        **_describe_coverage(sender),
        "list_ids": [mailing.list_id for mailing in mailings],
        "user_ids": [mailing.user_id for mailing in mailings],
        "times": [mailing.mailing_at for mailing in mailings],
    }
    for number, list_id in uow.session.execute(_FIND_TRANSFERS, values):
        if list_id != mailings[number].list_id:
            opt_outs[number].members.append(mailings[number]._replace(list_id=list_id))


def _find_by_address(uow: UnitOfWork, sender: Sender, reports: Sequence[ReceivedReport]) -> None:
    addresses = sorted({report.address for report in reports if report.address is not None})
    if not addresses:
        return
    values = {**_describe_coverage(sender), "addresses": addresses}
    members: dict[str, list[_Candidate]] = defaultdict(list)
    for number, *row in uow.session.execute(_FIND_BY_ADDRESS, values):
        members[addresses[number]].append(_Candidate(*row))
    for report in reports:
        assert isinstance(report.event, Report)
        assert report.address is not None
        candidates = members[report.address]
        if report.event.kind in ENGAGEMENT_KINDS:
            # A report of an open or a click without a delivery id doesn't say which list the mail
            # belongs to. Ignore the report if the person is an active member of several lists.
            candidates = [member for member in candidates if member.status == "active"]
            candidates = candidates if len(candidates) == 1 else []
        elif report.event.kind is ReportKind.BOUNCED:
            # A closed mailbox is a usual reason for a new address, so a bounce of the former
            # address says nothing about the new address.
            candidates = [member for member in candidates if member.has_address]
        mailing_id = _derive_mailing_id(report)
        mailing_at = _begin_day(report.occurred_at.astimezone(UTC).date())
        report.members = [
            MemberMailing(
                member.list_id, member.user_id, mailing_id, mailing_at, report.occurred_at
            )
            for member in candidates
        ]


def _derive_mailing_id(report: ReceivedReport) -> int:
    """Return a hash of the message id or the event's date, for a report without a delivery id.

    It is negative, because the ids of mailings are positive.
    """
    assert isinstance(report.event, Report)
    message_id = report.event.message_id
    day = report.occurred_at.astimezone(UTC).date()
    name = f"day:{day}" if message_id is None else f"message:{message_id}"
    digest = hashlib.blake2b(name.encode(errors="replace"), digest_size=8).digest()
    return -1 - (int.from_bytes(digest, "big") >> 1)


def _begin_day(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)


def _choose_outcome(
    event: Report | UnusedEvent, member: MemberMailing, oldest: datetime, *, is_measured: bool
) -> ReportOutcome:
    """Let an old report take effect only if it is an opt-out or a hard bounce.

    A report is old if the mailing began before ``oldest``.
    """
    assert isinstance(event, Report)
    is_late = member.mailing_at < oldest
    if event.kind in (ReportKind.OPENED, ReportKind.CLICKED) and not is_measured:
        return ReportOutcome.OFF
    if event.kind is ReportKind.CLICKED and event.is_machine:
        return ReportOutcome.IGNORED
    is_final = event.kind in OPT_OUT_SOURCES or event.bounce_class is BounceClass.HARD
    return ReportOutcome.LATE if is_late and not is_final else ReportOutcome.APPLIED


def _describe_coverage(sender: Sender) -> Mapping[str, Any]:
    return {
        "any_list": sender.any_list,
        "owner_id": sender.user_id,
        "covered_ids": sender.list_ids,
    }
