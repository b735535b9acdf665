"""Names the skipped rows and the ignored values of a request in the result of its job."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from sqlalchemy import select

from models import ImportChunk, MemberImport
from services.subscriptions.imports.chunks.rejected_rows import describe_row
from services.subscriptions.imports.chunks.verdicts import ADDED
from services.subscriptions.imports.judged_rows import JudgedRow
from storage.unit_of_work import UnitOfWork

# The maximum number of skipped rows, and of ignored values. The URL ``errors_url`` has all.
MAX_REPORTED = 100


def build_report(
    rows: Sequence[JudgedRow], verdicts: Sequence[str], left_out: Mapping[int, Sequence[str]]
) -> dict[str, Any]:
    skipped = (
        {"index": row.line - 1, "code": describe_row(row, verdict)[0]}
        for row, verdict in zip(rows, verdicts, strict=True)
        if verdict != ADDED
    )
    ignored = (
        {"index": rows[number].line - 1, "field": name}
        for number in sorted(left_out)
        for name in _list_names(rows[number], left_out[number])
    )
    return {
        "ignored": [*islice(ignored, MAX_REPORTED)],
        "skipped": [*islice(skipped, MAX_REPORTED)],
    }


def _list_names(row: JudgedRow, sentences: Sequence[str]) -> Iterator[str]:
    omitted_values = row.extras.left_out if row.extras else ()
    yield from (value.column for value in omitted_values)
    if len(sentences) > len(omitted_values):
        # The list or the member has too many tags.
        yield "tags"


def read_report(uow: UnitOfWork, task: MemberImport) -> dict[str, Any]:
    if task.source != "members":
        return {}
    query = select(ImportChunk.report).where(ImportChunk.import_id == task.id)
    reports = [each for each in uow.session.scalars(query.order_by(ImportChunk.number)) if each]
    return {
        name: [*islice((entry for report in reports for entry in report[name]), MAX_REPORTED)]
        for name in ("ignored", "skipped")
    }
