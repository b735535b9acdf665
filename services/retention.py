"""How long each kind of record is kept. Upkeep purges expired records each hour."""

from datetime import UTC, datetime, timedelta

from sqlalchemy import ColumnElement

import models
from core.lanes import Lane
from models.declarative import Model
from services.jobs import upkeep
from services.people.account_mails import ACCOUNT_MAIL_RETENTION
from services.people.logins import ATTEMPT_RETENTION
from storage.purge import purge
from storage.resources import Resources

PURGE = upkeep.register(
    upkeep.UpkeepKind("maintenance.purge", every=timedelta(hours=1), lane=Lane.UPKEEP)
)
JOB_RETENTION = timedelta(days=30)
# A code that is sent a second time within this time revokes the tokens that it gave.
CODE_RETENTION = timedelta(days=30)
# Deleting a job cascades to other rows, so fewer jobs go in one transaction.
_MAX_JOBS_AT_ONCE = 5_000
_MAX_ROWS_AT_ONCE = 10_000


def purge_outlived(resources: Resources, *, now: datetime) -> int:
    """Delete expired records, one batch of each kind in a transaction, until none is left.

    Returns how many were deleted.
    """
    outlived: list[tuple[type[Model], ColumnElement[bool]]] = [
        (models.Job, models.Job.finished_at < now - JOB_RETENTION),
        (models.IdempotencyRecord, models.IdempotencyRecord.expires_at < now),
        (models.MailedLink, models.MailedLink.expires_at < now),
        (models.AccountMail, models.AccountMail.created_at < now - ACCOUNT_MAIL_RETENTION),
        (models.UserSession, models.UserSession.expires_at < now),
        (models.UserSession, models.UserSession.ended_at < now),
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
                limit = _MAX_JOBS_AT_ONCE if model is models.Job else _MAX_ROWS_AT_ONCE
                purged += purge(uow, model, is_over, limit=limit)
        total += purged
    return total
