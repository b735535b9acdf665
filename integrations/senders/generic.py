"""Reads reports in Pressroom's own report format, which any program can post.

Each request is signed according to Standard Webhooks 1.0, or contains an API key. The request body
contains up to a thousand reports in the envelope that Standard Webhooks recommends: ``{"type",
"timestamp", "data"}``.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from core.errors import FieldProblem
from core.errors.requests import BODY_TOO_COMPLEX
from core.errors.senders import REPORT_INVALID, REPORT_TOO_MANY, REPORT_TRACE_ID_REFUSED
from core.json_parsing import JsonTooComplex, parse_json
from integrations.senders import standard_webhooks
from integrations.senders.bounce_statuses import choose_bounce_class
from integrations.senders.port import (
    BounceClass,
    ParsedBody,
    Report,
    ReportKind,
    SenderProof,
    SenderProvider,
    SenderRequest,
)

ENVELOPE_TYPE = "delivery.reports"
MAX_REPORTS = 1_000
MAX_PROBLEMS = 100
MAX_ADDRESS_CHARACTERS = 320
MAX_MESSAGE_ID_CHARACTERS = 998
_KINDS = {kind.value: kind for kind in ReportKind}
_BOUNCE_CLASSES = {each.value: each for each in BounceClass}
_STATUS = re.compile(r"[245]\.[0-9]{1,3}\.[0-9]{1,3}")
# Unlike a delivery id, a trace id is secret and contains two full stops.
_TRACE_ID = re.compile(r"1[A-Za-z0-9_-]{30}\.[A-Za-z0-9_-]{1,16}\.[A-Za-z0-9_-]+")


class GenericAdapter:
    provider = SenderProvider.GENERIC

    def verify(self, request: SenderRequest, proof: SenderProof) -> None:
        standard_webhooks.verify_message(request, proof.secrets)

    def parse(self, body: bytes) -> ParsedBody:
        written_reports = _read_envelope(body)
        reports: list[Report] = []
        problems: list[FieldProblem] = []
        for number, written in enumerate(written_reports):
            place = f"data.reports[{number}]"
            new_problems = list(_find_problems(written, place))
            if new_problems:
                problems += new_problems
                if len(problems) >= MAX_PROBLEMS:
                    break
            elif not problems:
                reports.append(_build_report(written))
        if problems:
            raise _build_error(problems[:MAX_PROBLEMS])
        return ParsedBody(tuple(reports))


def _read_envelope(body: bytes) -> list[Any]:
    try:
        envelope = parse_json(body)
    except JsonTooComplex:
        raise BODY_TOO_COMPLEX() from None
    except ValueError:
        raise REPORT_INVALID(place="body", rule="must be JSON") from None
    if not isinstance(envelope, dict) or envelope.get("type") != ENVELOPE_TYPE:
        raise REPORT_INVALID(place="type", rule=f"must be {ENVELOPE_TYPE}")
    content = envelope.get("data")
    reports = content.get("reports") if isinstance(content, dict) else None
    if not isinstance(reports, list):
        raise REPORT_INVALID(place="data.reports", rule="must be an array")
    if len(reports) > MAX_REPORTS:
        raise REPORT_TOO_MANY(most=MAX_REPORTS)
    return reports


def _find_problems(written: Any, place: str) -> Iterator[FieldProblem]:
    if not isinstance(written, dict):
        yield _problem(place, "must be an object")
        return
    yield from _find_recipient_problems(written, place)
    kind = written.get("kind")
    if not isinstance(kind, str) or kind not in _KINDS:
        yield _problem(f"{place}.kind", f"must be one of {', '.join(_KINDS)}")
    if not _is_text(written.get("message_id"), MAX_MESSAGE_ID_CHARACTERS):
        rule = f"must have 1 to {MAX_MESSAGE_ID_CHARACTERS} characters"
        yield _problem(f"{place}.message_id", rule)
    if not isinstance(written.get("machine", False), bool):
        yield _problem(f"{place}.machine", "must be true or false")
    occurred_at = written.get("occurred_at")
    if occurred_at is not None and _parse_time(occurred_at) is None:
        rule = "must be a time with a time zone, such as 2026-11-29T12:00:00Z"
        yield _problem(f"{place}.occurred_at", rule)
    yield from _find_bounce_problems(written, f"{place}.bounce")


def _find_recipient_problems(written: Mapping[str, Any], place: str) -> Iterator[FieldProblem]:
    delivery_id = written.get("delivery_id")
    email = written.get("email")
    if "trace_id" in written:
        yield _trace_problem(f"{place}.trace_id")
    elif isinstance(delivery_id, str) and _TRACE_ID.fullmatch(delivery_id):
        yield _trace_problem(f"{place}.delivery_id")
    elif delivery_id is None and email is None:
        yield _problem(f"{place}.delivery_id", "is required, unless email is set")
    elif not _is_text(delivery_id, MAX_MESSAGE_ID_CHARACTERS):
        yield _problem(f"{place}.delivery_id", "must be a text")
    if not _is_text(email, MAX_ADDRESS_CHARACTERS):
        yield _problem(f"{place}.email", f"must have 1 to {MAX_ADDRESS_CHARACTERS} characters")


def _find_bounce_problems(written: Mapping[str, Any], place: str) -> Iterator[FieldProblem]:
    bounce = written.get("bounce")
    if bounce is None:
        if written.get("kind") == ReportKind.BOUNCED:
            yield _problem(place, "is required for a bounce")
        return
    if not isinstance(bounce, dict):
        yield _problem(place, "must be an object")
        return
    if bounce.get("class") not in [*_BOUNCE_CLASSES]:
        yield _problem(f"{place}.class", f"must be one of {', '.join(_BOUNCE_CLASSES)}")
    status = bounce.get("status")
    if status is not None and (not isinstance(status, str) or not _STATUS.fullmatch(status)):
        yield _problem(f"{place}.status", "must be an enhanced status code, such as 5.1.1")


def _build_report(written: Mapping[str, Any]) -> Report:
    bounce = written.get("bounce") or {}
    kind = _KINDS[written["kind"]]
    bounce_class = None
    status = None
    if kind is ReportKind.BOUNCED:
        status = bounce.get("status")
        bounce_class = choose_bounce_class(_BOUNCE_CLASSES[bounce["class"]], status)
    return Report(
        kind,
        delivery_id=written.get("delivery_id"),
        email=written.get("email"),
        occurred_at=_parse_time(written.get("occurred_at")),
        message_id=written.get("message_id"),
        bounce_class=bounce_class,
        status=status,
        is_machine=written.get("machine", False),
    )


def _is_text(value: object, max_characters: int) -> bool:
    return value is None or (isinstance(value, str) and 1 <= len(value) <= max_characters)


def _parse_time(value: object) -> datetime | None:
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
        return None if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _problem(place: str, rule: str) -> FieldProblem:
    return FieldProblem(place, REPORT_INVALID.code, rule)


def _trace_problem(place: str) -> FieldProblem:
    rule = REPORT_TRACE_ID_REFUSED.sentence.partition(": ")[2]
    return FieldProblem(place, REPORT_TRACE_ID_REFUSED.code, rule)


def _build_error(problems: list[FieldProblem]) -> Exception:
    """Return ``report.trace_id_refused`` if a report contains a trace id, which is secret."""
    first = problems[0]
    for problem in problems:
        if problem.code == REPORT_TRACE_ID_REFUSED.code:
            return REPORT_TRACE_ID_REFUSED(place=problem.field, problems=tuple(problems))
    return REPORT_INVALID(place=first.field, rule=first.message, problems=tuple(problems))
