"""How long each kind of record is kept. Upkeep purges expired records each hour.

Jobs and what happened to subscriptions are dropped by the partition (``services.partitions``).

Of a subscriber's IP address the network stays after a while: enough to show from where a person
agreed, and too little to find them.
"""

from datetime import UTC, datetime, timedelta

from sqlalchemy import ColumnElement, text

import models
from core.lanes import Lane
from models.declarative import Model
from services.jobs import upkeep
from services.mailing.list_reports import REPORT_RETENTION
from services.people.account_mails import ACCOUNT_MAIL_RETENTION
from services.people.logins import ATTEMPT_RETENTION
from storage.purge import purge
from storage.resources import Resources

PURGE = upkeep.register(
    upkeep.UpkeepKind("maintenance.purge", every=timedelta(hours=1), lane=Lane.UPKEEP)
)
SHORTEN_IP_ADDRESSES = upkeep.register(
    upkeep.UpkeepKind("maintenance.shorten_ips", every=timedelta(hours=1), lane=Lane.UPKEEP)
)
IP_ADDRESS_RETENTION = timedelta(days=90)
# A code that is sent a second time within this time revokes the tokens that it gave.
CODE_RETENTION = timedelta(days=30)
_MAX_ROWS_AT_ONCE = 10_000
# The database itself knows how long an event is kept, by its own clock.
_PURGE_EVENTS = text("SELECT purge_events(:most)")

# Ids rise with time, so the old events are the first ones behind the bookmark.
_LAST_OLD_EVENT = text("""
WITH batch AS (
    SELECT id, created_at FROM subscription_events WHERE id > :after ORDER BY id LIMIT :limit
)
SELECT max(id) FROM batch WHERE id < coalesce(
    (SELECT min(id) FROM batch WHERE created_at >= :before), 9223372036854775807)
""")
_SHORTEN = text("""
UPDATE subscription_events SET ip = CASE WHEN pg_input_is_valid(ip, 'inet') THEN
    text(network(set_masklen(ip::inet, CASE family(ip::inet) WHEN 4 THEN 24 ELSE 64 END))) END
WHERE id > :after AND id <= :last AND ip IS NOT NULL AND strpos(ip, '/') = 0
RETURNING 1
""")


def purge_outlived(resources: Resources, *, now: datetime) -> int:
    """Delete expired records, one batch of each kind in a transaction, until none is left.

    Returns how many were deleted.
    """
    outlived: list[tuple[type[Model], ColumnElement[bool]]] = [
        (models.IdempotencyRecord, models.IdempotencyRecord.expires_at < now),
        (models.MailedLink, models.MailedLink.expires_at < now),
        (models.AccountMail, models.AccountMail.created_at < now - ACCOUNT_MAIL_RETENTION),
        (models.MailCount, models.MailCount.ends_at < now),
        (models.ListReport, models.ListReport.created_at < now - REPORT_RETENTION),
        (models.UserSession, models.UserSession.expires_at < now),
        (models.UserSession, models.UserSession.ended_at < now),
        (models.SpentProof, models.SpentProof.expires_at < now),
        (models.LoginAttempts, models.LoginAttempts.tried_at < now - ATTEMPT_RETENTION),
        # Only the present day counts.
        (models.ComposerUse, models.ComposerUse.day < now.astimezone(UTC).date()),
        (models.OAuthCode, models.OAuthCode.expires_at < now - CODE_RETENTION),
        (models.OAuthToken, models.OAuthToken.expires_at < now),
    ]
    total, purged = 0, 1
    while purged:
        purged = 0
        with resources.unit_of_work() as uow:
            for model, is_over in outlived:
                purged += purge(uow, model, is_over, limit=_MAX_ROWS_AT_ONCE)
            purged += uow.session.execute(_PURGE_EVENTS, {"most": _MAX_ROWS_AT_ONCE}).scalar_one()
        total += purged
    return total


def shorten_ip_addresses(resources: Resources, *, now: datetime) -> int:
    """Cut the IP addresses of old events to their /24 or /64; how many they were."""
    total = 0
    while True:
        with resources.unit_of_work() as uow:
            after = upkeep.bookmark(uow, SHORTEN_IP_ADDRESSES) or 0
            limits = {"limit": _MAX_ROWS_AT_ONCE, "before": now - IP_ADDRESS_RETENTION}
            last = uow.session.scalar(_LAST_OLD_EVENT, {"after": after, **limits})
            if last is None:
                return total
            shortened = uow.session.execute(_SHORTEN, {"after": after, "last": last})
            total += len(shortened.all())
            upkeep.set_bookmark(uow, SHORTEN_IP_ADDRESSES, last)
