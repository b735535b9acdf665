"""Counts the bounces, opens and other reported events of each mailing.

A mark is a row in ``mailing_marks``, which records that an event of a member and a mailing was
counted. It prevents a second count if a provider reports an event twice.

A soft bounce counts only while the mail isn't delivered by a later attempt. The times in the marks
decide about this, so that the order of the reports doesn't matter.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

from sqlalchemy import TextClause, text

from core import clock
from core.ids import PersonId
from integrations.senders.port import BounceClass, Report, ReportKind
from models import ReportOutcome, Sender
from services.engagement.records import EngagementEvent, EngagementKind, add_events
from services.senders import notices
from services.senders.report import ReceivedReport, iterate_outcomes
from services.subscriptions.mailings import has_many_bounces, has_many_complaints
from services.subscriptions.members.bounce_recording import MAX_MAILING_AGE
from storage.array_texts import format_numbers, format_texts, format_times
from storage.unit_of_work import UnitOfWork

_BOUNCE_FIGURES = {
    BounceClass.HARD: "hard_bounced",
    BounceClass.SOFT: "soft_bounced",
    BounceClass.BLOCKED: "blocked",
    BounceClass.CONTENT: "blocked",
}
_SOFT_BOUNCED = "soft_bounced"
_DELIVERED = "delivered"
# Inserts the marks in the parameter arrays into ``mailing_marks``. For each mark that the
# table already contains, the statement returns the mark's index in the arrays, counted from 0.
_ADD_MARKS = text("""
WITH marks AS (
    SELECT * FROM unnest(CAST(:user_ids AS bigint[]), CAST(:list_ids AS bigint[]),
        CAST(:mailing_ids AS bigint[]), CAST(:kinds AS text[]), CAST(:times AS timestamptz[]))
        WITH ORDINALITY AS m (user_id, list_id, mailing_id, kind, occurred_at, number)
), added AS (
    INSERT INTO mailing_marks (user_id, list_id, mailing_id, kind, occurred_at)
    SELECT user_id, list_id, mailing_id, kind, occurred_at FROM marks ORDER BY number
    ON CONFLICT DO NOTHING
    RETURNING user_id, list_id, mailing_id, kind
)
SELECT number - 1 FROM marks LEFT JOIN added USING (user_id, list_id, mailing_id, kind)
WHERE added.user_id IS NULL
""")
# Returns the same indexes as ``_ADD_MARKS``, but inserts no marks.
_FIND_MARKS = text("""
SELECT number - 1 FROM unnest(CAST(:user_ids AS bigint[]), CAST(:list_ids AS bigint[]),
    CAST(:mailing_ids AS bigint[]), CAST(:kinds AS text[]))
    WITH ORDINALITY AS r (user_id, list_id, mailing_id, kind, number)
JOIN mailing_marks USING (user_id, list_id, mailing_id, kind)
""")
# Returns the times of the deliveries and soft bounces that were counted for mails. ``OFFSET 0``
# makes Postgres look up each mail in an index.
_FIND_TIMES = text(f"""
SELECT r.number - 1, m.kind, coalesce(m.occurred_at, m.created_at)
FROM unnest(CAST(:user_ids AS bigint[]), CAST(:list_ids AS bigint[]),
    CAST(:mailing_ids AS bigint[])) WITH ORDINALITY AS r (user_id, list_id, mailing_id, number)
CROSS JOIN LATERAL (
    SELECT kind, occurred_at, created_at FROM mailing_marks
    WHERE user_id = r.user_id AND list_id = r.list_id AND mailing_id = r.mailing_id
        AND kind IN ('{_DELIVERED}', '{_SOFT_BOUNCED}')
    OFFSET 0
) AS m
""")  # noqa: S608 - no input
_UPDATE_TIMES = text("""
UPDATE mailing_marks AS m SET occurred_at = r.occurred_at
FROM unnest(CAST(:user_ids AS bigint[]), CAST(:list_ids AS bigint[]),
    CAST(:mailing_ids AS bigint[]), CAST(:kinds AS text[]), CAST(:times AS timestamptz[]))
    AS r (user_id, list_id, mailing_id, kind, occurred_at)
WHERE m.user_id = r.user_id AND m.list_id = r.list_id AND m.mailing_id = r.mailing_id
    AND m.kind = r.kind
""")
_FIGURES = (
    "delivered",
    "hard_bounced",
    "soft_bounced",
    "blocked",
    "complained",
    "unsubscribed",
    "opened",
    "machine_opened",
    "clicked",
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
_ENGAGEMENT_KINDS = frozenset(EngagementKind)
# A mail to a member: a user id, a list id and a mailing id.
_Mail = tuple[PersonId, int, int]
# The primary key of a mark: a user id, a list id, a mailing id, and the name of a counter of the
# mailing, such as ``hard_bounced``.
_Mark = tuple[PersonId, int, int, str]
# A mark, the outcome for the marked member, the report, and the member's index in
# ``report.members``.
_Place = tuple[_Mark, ReportOutcome, ReceivedReport, int]


def count_reports(uow: UnitOfWork, sender: Sender, reports: Sequence[ReceivedReport]) -> None:
    """Count each report once. The outcome of a repeated report becomes ``DUPLICATE``."""
    places = [*_iterate_places(reports)]
    all_times = _collect_times(places)
    times = {mark: moment for mark, moment in all_times.items() if _decides_soft_bounce(mark)}
    former_times = _read_times(uow, times)
    new_marks = _mark_duplicates(uow, places, all_times, _ADD_MARKS)
    later_times = {
        mark: moment
        for mark, moment in times.items()
        if mark in new_marks or (mark in former_times and former_times[mark] < moment)
    }
    _update_times(uow, {mark: later_times[mark] for mark in later_times.keys() & former_times})
    current_times = former_times | later_times
    figures: dict[tuple[int, int], Counter[str]] = defaultdict(Counter)
    for _, list_id, mailing_id, figure in new_marks:
        if mailing_id > 0 and figure != _SOFT_BOUNCED:
            figures[mailing_id, list_id][figure] += 1
    # Other mails have no soft bounce, so their figure can't change.
    for mail in {mark[:3] for mark in current_times if mark[3] == _SOFT_BOUNCED}:
        change = _has_soft_bounce(mail, current_times) - _has_soft_bounce(mail, former_times)
        if change:
            _, list_id, mailing_id = mail
            figures[mailing_id, list_id][_SOFT_BOUNCED] += change
    _add_figures(uow, sender, figures)
    _record_engagement(uow, places, new_marks)


def _record_engagement(
    uow: UnitOfWork, places: Iterable[_Place], new_marks: Collection[_Mark]
) -> None:
    """Record the events of measured members that were counted for the first time."""
    events: dict[_Mark, EngagementEvent] = {}
    for mark, _, report, index in places:
        user_id, list_id, _, kind = mark
        if mark in new_marks and kind in _ENGAGEMENT_KINDS and report.are_measured[index]:
            day = report.occurred_at.astimezone(UTC).date()
            events.setdefault(mark, EngagementEvent(list_id, user_id, EngagementKind(kind), day))
    add_events(uow, events.values())


def predict_duplicates(uow: UnitOfWork, reports: Sequence[ReceivedReport]) -> None:
    places = [*_iterate_places(reports)]
    _mark_duplicates(uow, places, _collect_times(places), _FIND_MARKS)


def _collect_times(places: Iterable[_Place]) -> dict[_Mark, datetime]:
    """Return when the latest event of each mark happened. Include repeated reports."""
    times: dict[_Mark, datetime] = {}
    for mark, outcome, report, _ in places:
        if outcome in (ReportOutcome.APPLIED, ReportOutcome.DUPLICATE):
            times[mark] = max(times.get(mark, report.occurred_at), report.occurred_at)
    return times


def _decides_soft_bounce(mark: _Mark) -> bool:
    return mark[3] in (_DELIVERED, _SOFT_BOUNCED) and mark[2] > 0


def _read_times(uow: UnitOfWork, marks: Iterable[_Mark]) -> dict[_Mark, datetime]:
    mails = [mark[:3] for mark in marks]
    if not mails:
        return {}
    rows = uow.session.execute(_FIND_TIMES, _format_keys(mails))
    return {(*mails[number], kind): occurred_at for number, kind, occurred_at in rows}


def _update_times(uow: UnitOfWork, times: Mapping[_Mark, datetime]) -> None:
    if times:
        marks = sorted(times)
        values = _format_keys(marks) | {
            "kinds": format_texts(mark[3] for mark in marks),
            "times": format_times(times[mark] for mark in marks),
        }
        uow.session.execute(_UPDATE_TIMES, values)


def _has_soft_bounce(mail: _Mail, times: Mapping[_Mark, datetime]) -> bool:
    bounced_at = times.get((*mail, _SOFT_BOUNCED))
    delivered_at = times.get((*mail, _DELIVERED))
    return bounced_at is not None and (delivered_at is None or delivered_at < bounced_at)


def _iterate_places(reports: Iterable[ReceivedReport]) -> Iterator[_Place]:
    """Yield the marks of the members in each report, except for old mailings."""
    oldest = clock.now() - MAX_MAILING_AGE
    for report, event, index, member, outcome in iterate_outcomes(reports):
        if member.mailing_at >= oldest:
            mark = (member.user_id, member.list_id, member.mailing_id, _choose_figure(event))
            yield mark, outcome, report, index


def _mark_duplicates(
    uow: UnitOfWork,
    places: Iterable[_Place],
    times: Mapping[_Mark, datetime],
    find_old_marks: TextClause,
) -> Collection[_Mark]:
    """Set the outcome of repeated reports, and return the other reports' marks."""
    places_by_mark: dict[_Mark, list[tuple[ReceivedReport, int]]] = {}
    for mark, outcome, report, index in places:
        if outcome is ReportOutcome.APPLIED:
            places_by_mark.setdefault(mark, []).append((report, index))
    if not places_by_mark:
        return ()
    marks = sorted(places_by_mark)
    values = _format_keys(marks) | {
        "kinds": format_texts(mark[3] for mark in marks),
        "times": format_times(times[mark] for mark in marks),
    }
    old_marks = {marks[number] for number in uow.session.scalars(find_old_marks, values)}
    for mark, marked_places in places_by_mark.items():
        for report, index in marked_places[0 if mark in old_marks else 1 :]:
            report.outcomes[index] = ReportOutcome.DUPLICATE
    return places_by_mark.keys() - old_marks


def _format_keys(marks: Iterable[_Mail | _Mark]) -> dict[str, str]:
    marks = [*marks]
    return {
        "user_ids": format_numbers(mark[0] for mark in marks),
        "list_ids": format_numbers(mark[1] for mark in marks),
        "mailing_ids": format_numbers(mark[2] for mark in marks),
    }


def _choose_figure(event: Report) -> str:
    if event.bounce_class is not None:
        return _BOUNCE_FIGURES[event.bounce_class]
    if event.kind is ReportKind.OPENED and event.is_machine:
        return EngagementKind.MACHINE_OPENED
    return event.kind.value


def _add_figures(
    uow: UnitOfWork, sender: Sender, figures: Mapping[tuple[int, int], Counter[str]]
) -> None:
    if not figures:
        return
    keys = sorted(figures)
    columns = {name: [figures[key][name] for key in keys] for name in _FIGURES}
    ids = {"ids": [key[0] for key in keys], "list_ids": [key[1] for key in keys]}
    for row in uow.session.execute(_ADD_FIGURES, ids | columns).all():
        # Notify the owner only when a mailing becomes alarming. A mailing becomes alarming only
        # once, because its counts of hard bounces and complaints never decrease.
        was_alarming = _is_alarming(row.rows, row.former_hard_bounced, row.former_complained)
        if _is_alarming(row.rows, row.hard_bounced, row.complained) and not was_alarming:
            notices.report_alarm(uow, sender, row.id)


def _is_alarming(rows: int, hard_bounced: int, complained: int) -> bool:
    return has_many_bounces(rows, hard_bounced) or has_many_complaints(rows, complained)
