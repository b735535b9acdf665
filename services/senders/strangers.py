"""Opts addresses out of lists if their owners complained or unsubscribed, but aren't members.

The stored opt-outs contain an HMAC of the address instead of a person's id. With a valid delivery
id, the opt-out applies only to the list of the reported mail. Without one, it applies to all lists
that the sender covers at that time. There is no opt-out if the sender covers the lists of all
owners.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

from sqlalchemy import select, text

from core.ids import AccountId
from models import MailingList, ReportOutcome, Sender
from services.senders.report import ReceivedReport, get_opt_out_source
from services.subscriptions.members import address_opt_outs, opt_out_checks, opt_outs
from services.subscriptions.members.address_opt_outs import ReportedAddress
from storage.array_texts import format_numbers, format_texts
from storage.unit_of_work import UnitOfWork

# Returns the positions in the arrays at which the address belongs to a member of the list.
_FIND_MEMBERS = text("""
SELECT r.number - 1 FROM unnest(CAST(:addresses AS text[]), CAST(:list_ids AS bigint[]))
    WITH ORDINALITY AS r (address, list_id, number)
JOIN users AS u ON u.email = r.address
JOIN subscriptions AS m ON m.user_id = u.id AND m.list_id = r.list_id
""")
# Returns the digests of the addresses that had no opt-out from at least one of the lists.
_FindNew = Callable[
    [UnitOfWork, AccountId, Collection[int], Sequence[ReportedAddress]], Collection[bytes]
]


class _Place(NamedTuple):
    """``list_id`` is ``None`` if the opt-out applies to all lists that the sender covers."""

    report: ReceivedReport
    digest: bytes
    source: str
    list_id: int | None


def opt_out_strangers(uow: UnitOfWork, sender: Sender, reports: Iterable[ReceivedReport]) -> None:
    _judge_strangers(uow, sender, reports, address_opt_outs.record)


def predict_opt_outs(uow: UnitOfWork, sender: Sender, reports: Iterable[ReceivedReport]) -> None:
    _judge_strangers(uow, sender, reports, address_opt_outs.find_new)


def _judge_strangers(
    uow: UnitOfWork, sender: Sender, reports: Iterable[ReceivedReport], find_new: _FindNew
) -> None:
    if sender.any_list:
        return
    # Most batches contain no opt-outs, and need no query for the lists.
    strangers = [report for report in reports if _is_opt_out_of_stranger(report)]
    covered_ids = _read_covered_ids(uow, sender) if strangers else ()
    if not covered_ids:
        return
    # Maps each digest to the lists of its opt-out, or to ``None`` for all lists.
    list_ids: dict[bytes, set[int] | None] = {}
    sources: dict[bytes, str] = {}
    # The reports that add a list. All other reports repeat an earlier report of the batch.
    adding_places: list[_Place] = []
    for place in _find_places(uow, frozenset(covered_ids), strangers):
        place.report.outcome = ReportOutcome.DUPLICATE
        # If an address both complained and unsubscribed, store the complaint.
        if place.source == opt_outs.SENDER_COMPLAINT or place.digest not in sources:
            sources[place.digest] = place.source
        known_ids = list_ids.get(place.digest, set())
        if known_ids is not None and place.list_id not in known_ids:
            adding_places.append(place)
            list_ids[place.digest] = None if place.list_id is None else known_ids | {place.list_id}
    reported = [ReportedAddress(each, sources[each], list_ids[each]) for each in list_ids]
    new_digests = find_new(uow, sender.user_id, covered_ids, reported) if reported else ()
    for place in adding_places:
        if place.digest in new_digests:
            place.report.outcome = ReportOutcome.APPLIED


def _is_opt_out_of_stranger(report: ReceivedReport) -> bool:
    is_opt_out = get_opt_out_source(report) is not None
    return is_opt_out and not report.members and report.address is not None


def _read_covered_ids(uow: UnitOfWork, sender: Sender) -> Collection[int]:
    if sender.list_ids is not None:
        return sender.list_ids
    query = select(MailingList.id).where(MailingList.user_id == sender.user_id)
    return uow.session.scalars(query).all()


def _find_places(
    uow: UnitOfWork, covered_ids: Collection[int], reports: Iterable[ReceivedReport]
) -> list[_Place]:
    places: list[_Place] = []
    for report in reports:
        source = get_opt_out_source(report)
        assert source is not None
        assert report.address is not None
        list_id = report.delivery.list_id if report.delivery else None
        if list_id is None or list_id in covered_ids:
            digest = opt_out_checks.compute_address_digest(uow.settings.keyring, report.address)
            places.append(_Place(report, digest, source, list_id))
    # A delivery id belongs to a person who isn't a member, for example to an erased person. If
    # somebody else is a member with the reported address, store no opt-out, because this member
    # didn't get the reported mail.
    named = [place for place in places if place.list_id is not None]
    values = {
        "addresses": format_texts(place.report.address for place in named),
        "list_ids": format_numbers(place.list_id for place in named),
    }
    numbers = uow.session.scalars(_FIND_MEMBERS, values) if named else ()
    reports_about_members = {id(named[number].report) for number in numbers}
    return [place for place in places if id(place.report) not in reports_about_members]
