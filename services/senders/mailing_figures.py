"""Counts the bounces, opens and other reported events of each mailing.

A mark is a row in ``mailing_marks``, which records that an event of a member and a mailing was
counted. If a provider reports an event twice, the mark prevents a second count.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable

from sqlalchemy import TextClause, text

from core import clock
from integrations.senders.port import BounceClass, Report
from models import ReportOutcome, Sender
from services.senders import notices
from services.senders.received_reports import ReceivedReport, iterate_outcomes
from services.subscriptions.mailings import has_many_bounces, has_many_complaints
from services.subscriptions.members.bounce_reports import MAX_MAILING_AGE
from storage.array_texts import format_numbers, format_texts
from storage.unit_of_work import UnitOfWork

_BOUNCE_FIGURES = {
    BounceClass.HARD: "hard_bounced",
    BounceClass.SOFT: "soft_bounced",
    BounceClass.BLOCKED: "blocked",
    BounceClass.CONTENT: "blocked",
}
# Inserts the marks in the four parameter arrays into ``mailing_marks``. For each mark that the
# table already contains, the statement returns the mark's index in the arrays, counted from 0.
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
# Returns the same indexes as ``_ADD_MARKS``, but inserts no marks.
_FIND_MARKS = text("""
SELECT number - 1 FROM unnest(CAST(:user_ids AS bigint[]), CAST(:list_ids AS bigint[]),
    CAST(:mailing_ids AS bigint[]), CAST(:kinds AS text[]))
    WITH ORDINALITY AS r (user_id, list_id, mailing_id, kind, number)
JOIN mailing_marks USING (user_id, list_id, mailing_id, kind)
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
# The primary key of a mark: a user id, a list id, a mailing id, and the name of a counter of the
# mailing, such as ``hard_bounced``.
_Mark = tuple[int, int, int, str]


def count_reports(uow: UnitOfWork, sender: Sender, reports: Iterable[ReceivedReport]) -> None:
    """Count each new report for its mailing, and record that the report was counted.

    If a report is already marked as counted, it isn't counted again, and its outcome becomes
    ``DUPLICATE``.
    """
    _add_figures(uow, sender, _mark_duplicates(uow, reports, _ADD_MARKS))


def predict_duplicates(uow: UnitOfWork, reports: Iterable[ReceivedReport]) -> None:
    """Predict the outcomes of ``count_reports`` without writing to the database."""
    _mark_duplicates(uow, reports, _FIND_MARKS)


def _mark_duplicates(
    uow: UnitOfWork, reports: Iterable[ReceivedReport], find_old_marks: TextClause
) -> Collection[_Mark]:
    """Set the outcome of reports that were counted before, and return the other reports' marks.

    ``find_old_marks``: the SQL statement that returns the indexes of marks that already exist.
    """
    places: dict[_Mark, list[tuple[ReceivedReport, int]]] = {}
    oldest = clock.now() - MAX_MAILING_AGE
    for report, event, index, member, outcome in iterate_outcomes(reports):
        if outcome is ReportOutcome.APPLIED and member.mailing_at >= oldest:
            mark = (member.user_id, member.list_id, member.mailing_id, _choose_figure(event))
            places.setdefault(mark, []).append((report, index))
    if not places:
        return ()
    marks = sorted(places)
    user_ids, list_ids, mailing_ids, kinds = zip(*marks, strict=True)
    values = {
        "user_ids": format_numbers(user_ids),
        "list_ids": format_numbers(list_ids),
        "mailing_ids": format_numbers(mailing_ids),
        "kinds": format_texts(kinds),
    }
    old_marks = {marks[number] for number in uow.session.scalars(find_old_marks, values)}
    for mark, marked_places in places.items():
        for report, index in marked_places[0 if mark in old_marks else 1 :]:
            report.outcomes[index] = ReportOutcome.DUPLICATE
    return places.keys() - old_marks


def _choose_figure(event: Report) -> str:
    if event.bounce_class is not None:
        return _BOUNCE_FIGURES[event.bounce_class]
    return event.kind.value


def _add_figures(uow: UnitOfWork, sender: Sender, marks: Iterable[_Mark]) -> None:
    """Increase the counters of mailings, and notify the lists' owners of alarming mailings.

    A mailing is alarming if too many of its mails bounced or caused complaints.
    """
    figures: dict[tuple[int, int], Counter[str]] = defaultdict(Counter)
    for _, list_id, mailing_id, figure in marks:
        if mailing_id > 0:
            figures[mailing_id, list_id][figure] += 1
    if figures:
        keys = sorted(figures)
        columns = {name: [figures[key][name] for key in keys] for name in _FIGURES}
        ids = {"ids": [key[0] for key in keys], "list_ids": [key[1] for key in keys]}
        for row in uow.session.execute(_ADD_FIGURES, ids | columns).all():
            # Notify the owner only when a mailing becomes alarming. A mailing becomes alarming only
            # once, because its counts of bounces and complaints never decrease.
            was_alarming = _is_alarming(row.rows, row.former_hard_bounced, row.former_complained)
            if _is_alarming(row.rows, row.hard_bounced, row.complained) and not was_alarming:
                notices.report_alarm(uow, sender, row.id)


def _is_alarming(rows: int, hard_bounced: int, complained: int) -> bool:
    """Return whether too many of a mailing's mails bounced or caused complaints."""
    return has_many_bounces(rows, hard_bounced) or has_many_complaints(rows, complained)
