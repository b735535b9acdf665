"""Checks whether senders have posted reports, and whether this host can verify signatures."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from sqlalchemy import Connection, text

from core import clock
from core.settings import Settings
from integrations.senders.sns_reachability import find_certificate_problem
from integrations.senders.sns_topics import parse_topic
from services.doctor.runner import Diagnosis, diagnose, fine, wrong

# The maximum difference between the clocks of this host and the database. If the clock of this host
# is wrong, valid requests are rejected, because most signatures are valid for only five minutes.
_MAX_CLOCK_DIFFERENCE = timedelta(seconds=30)
_MAX_LISTED = 20
_MAX_CHECKED_REGIONS = 3
_SELECT_SENDERS = text("""
    SELECT id, state, last_report_at, (
        SELECT coalesce(sum(count), 0) FROM sender_counts
        WHERE sender_id = senders.id AND outcome = 'refused'
            AND hour > now() - interval '24 hours'
    ) AS refused
    FROM senders WHERE deleted_at IS NULL
    ORDER BY last_report_at NULLS FIRST, id LIMIT :limit
""")
_SELECT_TOPICS = text("""
    SELECT DISTINCT ON (split_part(topic_arn, ':', 4)) topic_arn FROM senders
    WHERE deleted_at IS NULL AND topic_arn IS NOT NULL
    ORDER BY split_part(topic_arn, ':', 4) LIMIT :limit
""")


def check_senders(connection: Connection, settings: Settings) -> Iterator[Diagnosis]:
    rows = connection.execute(_SELECT_SENDERS, {"limit": _MAX_LISTED}).all()
    database_time = connection.execute(text("SELECT clock_timestamp()")).scalar_one()
    difference = abs(database_time - clock.now())
    findings = [_describe(row) for row in rows] or ["there are no senders"]
    advice = (
        "For senders with rejected calls, compare the secret or key with the one at the provider."
    )
    has_refused = any(row.refused for row in rows)
    yield fine("newest reports", "; ".join(findings), advice if has_refused else "")
    yield diagnose(
        "clock",
        f"this host and the database differ by {difference.total_seconds():.1f} s",
        difference > _MAX_CLOCK_DIFFERENCE,
        "Synchronise the clocks, for example with NTP.",
    )
    yield _check_certificates(connection, settings)


def _check_certificates(connection: Connection, settings: Settings) -> Diagnosis:
    check = "certificates"
    arns = connection.scalars(_SELECT_TOPICS, {"limit": _MAX_CHECKED_REGIONS})
    topics = [topic for arn in arns if (topic := parse_topic(arn)) is not None]
    if not topics:
        return fine(check, "no sender uses Amazon SES")
    base_url = None if settings.sns_base_url is None else str(settings.sns_base_url)
    for topic in topics:
        if (problem := find_certificate_problem(topic, base_url)) is not None:
            advice = "Allow the API to connect to Amazon SNS, so that the API can verify reports."
            return wrong(check, f"{topic.host} can't be reached ({problem})", advice)
    return fine(check, f"{', '.join(topic.host for topic in topics)} can be reached")


def _describe(row: Any) -> str:
    finding = "no report yet"
    if row.last_report_at is not None:
        finding = f"newest report {row.last_report_at:%Y-%m-%d %H:%M} UTC"
    if row.refused:
        finding += f", {row.refused} calls rejected in 24 h"
    return f"sender {row.id} is {row.state}, {finding}"
