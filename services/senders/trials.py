"""Shows what the reports in a request body would change, without changing any data."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from psycopg2.errors import QueryCanceled
from sqlalchemy import event, text

from core import clock
from core.errors.requests import BODY_TOO_LARGE, REQUEST_TOO_SLOW
from core.errors.senders import REPORT_TOO_MANY
from integrations.senders.json_body import parse_json
from integrations.senders.port import SenderProvider
from models import Sender
from services.senders import effects
from services.senders.adapters import get_adapter
from services.senders.recipients import find_members
from services.senders.report import ReceivedReport
from storage.expected_errors import raise_instead
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

MAX_TRIED_REPORTS = 100
MAX_TRIED_BODY_BYTES = 256 * 1024
MAX_TRIAL_SECONDS = 2.0


def run_trial(resources: Resources, sender: Sender, body: bytes) -> list[ReceivedReport]:
    """Return the reports, each with the outcome that it would have in a real request.

    Raise ``request.too_slow`` after ``MAX_TRIAL_SECONDS``, because the caller waits for the result.
    """
    ends_at = time.monotonic() + MAX_TRIAL_SECONDS
    reports = read_reports(resources, sender, body)
    with resources.unit_of_work() as uow, _limit_time(uow, ends_at):
        uow.session.execute(text("SET TRANSACTION READ ONLY"))
        find_members(uow, sender, reports)
        # The outcomes don't depend on ``effects.apply_opt_outs``.
        effects.predict_outcomes(uow, sender, reports)
    return reports


def read_reports(resources: Resources, sender: Sender, body: bytes) -> list[ReceivedReport]:
    if len(body) > MAX_TRIED_BODY_BYTES:
        raise BODY_TOO_LARGE(most="256 KB")
    # Count the events before they are converted, because a hostile address takes a millisecond.
    if _count_events(body) > MAX_TRIED_REPORTS:
        raise REPORT_TOO_MANY(most=MAX_TRIED_REPORTS)
    adapter = get_adapter(resources, SenderProvider(sender.provider))
    reports = [ReceivedReport(each, clock.now()) for each in adapter.parse(body).events]
    if len(reports) > MAX_TRIED_REPORTS:
        raise REPORT_TOO_MANY(most=MAX_TRIED_REPORTS)
    return reports


def _count_events(body: bytes) -> int:
    content = parse_json(body)
    # The provider ``generic`` posts an envelope, and some providers post arrays.
    envelope = content.get("data") if isinstance(content, dict) else None
    events = envelope.get("reports") if isinstance(envelope, dict) else content
    return len(events) if isinstance(events, list) else 1


@contextmanager
def _limit_time(uow: UnitOfWork, ends_at: float) -> Iterator[None]:
    """Limit the total time of the statements. The clock of ``ends_at`` is ``time.monotonic``."""
    too_slow = REQUEST_TOO_SLOW(seconds=MAX_TRIAL_SECONDS)

    def limit_statement(_connection: object, cursor: Any, *_: object) -> None:
        milliseconds = int((ends_at - time.monotonic()) * 1000)
        if milliseconds <= 0:
            raise too_slow
        cursor.execute(f"SET LOCAL statement_timeout = {milliseconds}")

    connection = uow.session.connection()
    event.listen(connection, "before_cursor_execute", limit_statement)
    try:
        with raise_instead(QueryCanceled, too_slow):
            yield
    finally:
        event.remove(connection, "before_cursor_execute", limit_statement)
