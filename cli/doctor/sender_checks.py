"""Checks when senders last posted reports, and whether the clock of this host is correct."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from sqlalchemy import Connection, text

from cli.doctor.runner import Diagnosis, diagnose, fine
from core import clock

# A signature is valid for only five minutes. If the clock of this host is wrong, valid reports are
# rejected.
_MAX_CLOCK_DIFFERENCE = timedelta(seconds=30)
_MAX_LISTED = 20
_SELECT_SENDERS = text("""
    SELECT id, state, last_report_at, (
        SELECT coalesce(sum(count), 0) FROM sender_counts
        WHERE sender_id = senders.id AND outcome = 'refused'
            AND hour > now() - interval '24 hours'
    ) AS refused
    FROM senders WHERE deleted_at IS NULL
    ORDER BY last_report_at NULLS FIRST, id LIMIT :limit
""")


def check_senders(connection: Connection) -> Iterator[Diagnosis]:
    """Show each sender's newest report, and compare the clocks of this host and of Postgres."""
    rows = connection.execute(_SELECT_SENDERS, {"limit": _MAX_LISTED}).all()
    database_time = connection.execute(text("SELECT clock_timestamp()")).scalar_one()
    difference = abs(database_time - clock.now())
    findings = [_describe(row) for row in rows] or ["there are no senders"]
    advice = "Check the secrets and keys of senders with rejected calls at their providers."
    has_refused = any(row.refused for row in rows)
    yield fine("newest reports", "; ".join(findings), advice if has_refused else "")
    yield diagnose(
        "clock",
        f"this host and the database differ by {difference.total_seconds():.1f} s",
        difference > _MAX_CLOCK_DIFFERENCE,
        "Synchronise the clocks, for example with NTP.",
    )


def _describe(row: Any) -> str:
    finding = "no report yet"
    if row.last_report_at is not None:
        finding = f"newest report {row.last_report_at:%Y-%m-%d %H:%M} UTC"
    if row.refused:
        finding += f", {row.refused} calls rejected in 24 h"
    return f"sender {row.id} is {row.state}, {finding}"
