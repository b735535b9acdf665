"""Finds the members that reports concern."""

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, time
from typing import Any

from sqlalchemy import text

from core import clock
from core.keyring import Keyring
from integrations.senders.port import BounceClass, Report, ReportKind, UnusedEvent
from models import ReportOutcome, Sender
from services.accounts.email_addresses import InvalidAddress, normalise_addresses
from services.senders.received_reports import (
    ENGAGEMENT_KINDS,
    OPT_OUT_SOURCES,
    ReceivedReport,
    get_opt_out_source,
)
from services.subscriptions.members import bounce_reports, changes, delivery_ids
from services.subscriptions.members.bounce_reports import MAX_MAILING_AGE, MemberMailing
from storage.array_texts import format_numbers
from storage.unit_of_work import UnitOfWork

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
    opt_outs = [each for each in received if each.members and get_opt_out_source(each) is not None]
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
        if each.event.kind in ENGAGEMENT_KINDS:
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
    is_final = event.kind in OPT_OUT_SOURCES or event.bounce_class is BounceClass.HARD
    return ReportOutcome.LATE if is_late and not is_final else ReportOutcome.APPLIED


def _describe_coverage(sender: Sender) -> Mapping[str, Any]:
    return {
        "any_list": sender.any_list,
        "owner_id": sender.user_id,
        "covered_ids": sender.list_ids,
    }
