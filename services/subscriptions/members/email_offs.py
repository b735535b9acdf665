"""Finds out why, and since when, a member gets no mail from a list.

The reason isn't stored, but is derived from an opt-out, from a bounce, or from the subscription's
history.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import Any, NamedTuple

from sqlalchemy import text

from core.keyring import Keyring
from models import Subscription, SubscriptionStatus
from services.subscriptions.members.opt_out_checks import create_address_digester
from storage.database import Statement
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

# Finds the possible reasons for which a member's mail is turned off: an opt-out, a bounce, and the
# latest event in the member's history. Only the history contains the reason if the list's owner
# turned the mail off, or if the bounce was deleted at the end of its retention period.
_FIND_EMAIL_OFFS = """
SELECT m.id, o.created_at, b.is_hard, b.status, b.stopped_at, e.action, e.created_at
FROM unnest(CAST(:ids AS bigint[])) AS r (id)
JOIN subscriptions AS m ON m.id = r.id
LEFT JOIN LATERAL (
    SELECT min(each.created_at) AS created_at FROM (
        SELECT created_at FROM opt_outs
        WHERE list_id = m.list_id AND user_id = m.user_id AND kind = 'email'
        UNION ALL
        SELECT created_at FROM opt_outs
        WHERE list_id = m.list_id AND kind = 'email' AND address_hmac IN (
            SELECT d.digest
            FROM unnest(CAST(:digest_ids AS bigint[]), CAST(:digests AS bytea[])) AS d (id, digest)
            WHERE d.id = m.id
        )
    ) AS each
) AS o ON true
LEFT JOIN LATERAL (
    SELECT is_hard, status, stopped_at FROM bounces
    WHERE list_id = m.list_id AND user_id = m.user_id AND ended_at IS NULL AND lifted_at IS NULL
        AND stopped_at IS NOT NULL
    ORDER BY stopped_at LIMIT 1
) AS b ON true
LEFT JOIN LATERAL (
    SELECT action, created_at FROM subscription_events
    WHERE list_id = m.list_id AND user_id = m.user_id
        AND email_enabled_before AND NOT email_enabled_after
    ORDER BY id DESC LIMIT 1
) AS e ON true
"""
_STATEMENT = Statement(_FIND_EMAIL_OFFS)


class EmailOffReason(StrEnum):
    BOUNCED = "bounced"
    SOFT_BOUNCED = "soft_bounced"
    PERSON = "person"  # The person opted out of the list's mail.
    OWNER = "owner"


# The reasons for turned-off mail that are also names of actions in a subscription's history.
_BOUNCE_REASONS = (EmailOffReason.BOUNCED, EmailOffReason.SOFT_BOUNCED)


@dataclass(frozen=True, slots=True)
class EmailOff:
    """Why a member's mail is turned off, and since when (``None`` if unknown).

    ``status`` is the enhanced status code of a bounce (RFC 3463), or ``None``.
    """

    reason: EmailOffReason
    status: str | None
    at: datetime | None


class _Record(NamedTuple):
    id: int
    email: str | None


def find_bounce(uow: UnitOfWork, record: Subscription) -> EmailOff | None:
    is_active = record.status == SubscriptionStatus.ACTIVE
    email_off = find_email_off(uow, record) if is_active else None
    return email_off if email_off and email_off.reason in _BOUNCE_REASONS else None


def find_email_off(uow: UnitOfWork, record: Subscription) -> EmailOff | None:
    return find_email_offs(uow, [record]).get(record.id)


def find_email_offs(uow: UnitOfWork, records: Iterable[Subscription]) -> Mapping[int, EmailOff]:
    return _find_in_transaction(
        uow, [_Record(each.id, each.email) for each in records if not each.email_enabled]
    )


def find_email_offs_of_rows(
    uow: UnitOfWork, rows: Iterable[Mapping[str, Any]]
) -> Mapping[int, EmailOff]:
    return _find_in_transaction(uow, _select_off(rows))


def read_email_offs_of_rows(
    resources: Resources, rows: Iterable[Mapping[str, Any]]
) -> Mapping[int, EmailOff]:
    read_rows = partial(resources.database.rows, _STATEMENT)
    return _find(_select_off(rows), resources.keyring, read_rows)


def _select_off(rows: Iterable[Mapping[str, Any]]) -> list[_Record]:
    return [_Record(row["id"], row["email"]) for row in rows if not row["email_enabled"]]


def _find_in_transaction(uow: UnitOfWork, records: Sequence[_Record]) -> dict[int, EmailOff]:
    def read_rows(**values: object) -> Iterable[Sequence[Any]]:
        return uow.session.execute(text(_FIND_EMAIL_OFFS), values).all()

    return _find(records, uow.settings.keyring, read_rows)


def _find(
    records: Sequence[_Record], keyring: Keyring, read_rows: Callable[..., Iterable[Sequence[Any]]]
) -> dict[int, EmailOff]:
    if not records:
        return {}
    compute_digests = create_address_digester(keyring)
    digests = [
        (record.id, digest)
        for record in records
        if record.email is not None
        for digest in compute_digests(record.email)
    ]
    rows = read_rows(
        ids=[record.id for record in records],
        digest_ids=[record_id for record_id, _ in digests],
        digests=[digest for _, digest in digests],
    )
    return {record_id: _build_email_off(values) for record_id, *values in rows}


def _build_email_off(values: Sequence[Any]) -> EmailOff:
    opted_out_at, is_hard, status, stopped_at, action, turned_off_at = values
    if opted_out_at is not None:
        return EmailOff(EmailOffReason.PERSON, None, opted_out_at)
    if is_hard is not None:
        reason = EmailOffReason.BOUNCED if is_hard else EmailOffReason.SOFT_BOUNCED
        return EmailOff(reason, status, stopped_at)
    if action in _BOUNCE_REASONS:
        return EmailOff(EmailOffReason(action), None, turned_off_at)
    return EmailOff(EmailOffReason.OWNER, None, turned_off_at)
