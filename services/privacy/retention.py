"""Defines the retention rules, which determine how long the rows of each table are kept.

The table in docs/day-two.md must list the same retention periods. Retention rules use the
database's clock, because the clocks of different hosts may differ.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import ColumnElement, Select, SQLColumnExpression, func, inspect, select
from sqlalchemy.orm import InstrumentedAttribute

import models
from core.settings import Settings
from core.settings.notations import Retained
from models.declarative import Model
from services.accounts.account_mails import ACCOUNT_MAIL_RETENTION
from services.accounts.logins import ATTEMPT_RETENTION
from services.credits.orders import ABANDONED_ORDER_RETENTION
from services.feed.reading import FEED_RETENTION
from services.subscriptions.bulk_files import BULK_FILE_RETENTION
from services.subscriptions.undo import UNDO_TIME
from storage.purge import select_first_places

# The id of the last event whose IP address has been replaced.
_SHORTENED_UP_TO = (
    select(func.coalesce(models.Maintenance.bookmark, 0))
    .where(models.Maintenance.name == "maintenance.shorten_ips")
    .scalar_subquery()
)
# Changes made by imports and bulk actions are kept this much longer than their retention period, so
# that an undo can finish. An import may run for two weeks, and undoing the import may take another
# week.
_UNDO_RESERVE = timedelta(days=21)
# How long expired authorization codes are kept, so that the tokens of a code can be revoked if the
# code is used twice.
_CODE_RETENTION = timedelta(days=30)
_DAY = timedelta(days=1)

REQUESTED_AT = func.coalesce(
    models.Subscription.confirmation_asked_at, models.Subscription.created_at
)


@dataclass(frozen=True)
class Rule:
    """A retention rule, whose period begins at the time in the column ``moment``.

    Attributes:
        period: the retention period, as a fixed time or as the setting that contains it.
        moment: a column, or ``None`` for a rule whose overdue rows aren't counted.
        oldest_by: indexed columns that sort the oldest rows first, if ``moment`` has no index.
        oldest_from: the conditions of the partial index that ``oldest_by`` uses.
        is_purged: whether the hourly purge deletes the expired rows.
        longer: an extension of the retention period, because unfinished work may need the rows.
        part: a suffix for the rule's name, such as ``.ip``.
    """

    model: type[Model]
    period: Retained | timedelta
    moment: SQLColumnExpression[Any] | None = None
    only: tuple[ColumnElement[bool], ...] = ()
    oldest_by: tuple[SQLColumnExpression[Any], ...] = ()
    oldest_from: tuple[ColumnElement[bool], ...] = ()
    is_purged: bool = True
    longer: timedelta = timedelta(0)
    part: str = ""

    @property
    def name(self) -> str:
        return f"{self.model.__tablename__}{self.part}"

    def age(self, settings: Settings) -> timedelta:
        if isinstance(self.period, Retained):
            return timedelta(days=settings.retention[self.period]) + self.longer
        return self.period + self.longer


def select_expired(
    rule: Rule, age: timedelta, *, limit: int
) -> tuple[Select[Any], tuple[ColumnElement[bool], ...]]:
    """Return a query for the oldest rows of a rule's table, and conditions that expired rows meet.

    No conditions are returned if the query already selects only expired rows.
    """
    assert rule.moment is not None
    conditions = (rule.moment < func.now() - age, *rule.only)
    if rule.oldest_by:
        return select_first_places(
            rule.model, *rule.oldest_from, order=rule.oldest_by, limit=limit
        ), conditions
    return select_first_places(rule.model, *conditions, order=(rule.moment,), limit=limit), ()


def _create_rule(
    moment: InstrumentedAttribute[Any], period: Retained | timedelta, **more: Any
) -> Rule:
    model: Any = moment.class_
    return Rule(model, period, moment, **more)


def _create_expiry_rule(moment: InstrumentedAttribute[Any], **more: Any) -> Rule:
    return _create_rule(moment, timedelta(0), **more)


def _create_key_rule(
    moment: InstrumentedAttribute[Any], period: Retained | timedelta, **more: Any
) -> Rule:
    """Return a retention rule for rows whose primary keys rise with time."""
    return _create_rule(moment, period, oldest_by=inspect(moment.class_).primary_key, **more)


def _create_ip_rule(
    moment: InstrumentedAttribute[Any], ip: InstrumentedAttribute[Any], **more: Any
) -> Rule:
    only = (ip.is_not(None), func.strpos(ip, "/") == 0)
    return _create_rule(
        moment, Retained.IP_ADDRESSES, only=only, is_purged=False, part=".ip", **more
    )


def _create_file_rule(kind: Any) -> Rule:
    oldest = {"oldest_by": (kind.created_at,), "oldest_from": (kind.files_removed_at.is_(None),)}
    return _create_rule(
        kind.finished_at, BULK_FILE_RETENTION, is_purged=False, part=".files", **oldest
    )


RULES = (
    _create_rule(models.Job.finished_at, Retained.JOBS),
    _create_key_rule(models.SubscriptionEvent.created_at, Retained.SUBSCRIPTION_EVENTS),
    _create_ip_rule(
        models.SubscriptionEvent.created_at,
        models.SubscriptionEvent.ip,
        oldest_by=(models.SubscriptionEvent.id,),
        oldest_from=(models.SubscriptionEvent.id > _SHORTENED_UP_TO,),
    ),
    _create_ip_rule(models.ConsentEntry.occurred_at, models.ConsentEntry.ip),
    _create_ip_rule(models.ConsentClaim.occurred_at, models.ConsentClaim.ip),
    _create_rule(models.RecordedEvent.occurred_at, Retained.EVENTS),
    _create_key_rule(models.ImportChange.applied_at, Retained.IMPORT_CHANGES, longer=_UNDO_RESERVE),
    _create_key_rule(models.BulkChange.applied_at, UNDO_TIME, longer=_UNDO_RESERVE),
    # The row of a bulk action is kept longer than the rows with its changes.
    _create_rule(models.BulkAction.finished_at, timedelta(days=365)),
    _create_key_rule(models.FeedEvent.occurred_at, FEED_RETENTION),
    _create_key_rule(models.SegmentChange.at, FEED_RETENTION),
    _create_rule(
        models.MemberImport.finished_at,
        Retained.IMPORTS,
        # Keep every import that added members, because the import proves how the members joined the
        # list.
        only=(
            models.MemberImport.files_removed_at.is_not(None),
            (models.MemberImport.added == models.MemberImport.undone) | models.MemberImport.dry_run,
        ),
    ),
    _create_file_rule(models.MemberImport),
    _create_rule(
        models.MemberExport.created_at,
        Retained.EXPORTS,
        only=(models.MemberExport.files_removed_at.is_not(None),),
    ),
    _create_file_rule(models.MemberExport),
    _create_expiry_rule(models.IdempotencyRecord.expires_at),
    _create_expiry_rule(models.UserSession.expires_at),
    _create_expiry_rule(models.UserSession.ended_at, part=".ended"),
    _create_expiry_rule(models.MailedLink.expires_at),
    _create_rule(models.AccountMail.created_at, ACCOUNT_MAIL_RETENTION),
    _create_expiry_rule(models.MailCount.ends_at),
    _create_rule(models.ListReport.created_at, Retained.LIST_REPORTS),
    # A row of ``departures`` is an opt-out or an erasure. In a deployment with backups, the row is
    # deleted as soon as maintenance has copied it to the journal next to the backups.
    _create_key_rule(models.Departure.created_at, timedelta(days=30)),
    _create_rule(models.WebhookDelivery.created_at, FEED_RETENTION),
    # Keep a deleted webhook endpoint longer than its deliveries, because deleting its row deletes
    # all remaining deliveries at once.
    _create_rule(models.WebhookEndpoint.deleted_at, FEED_RETENTION + _DAY),
    _create_expiry_rule(models.WebhookSecret.expires_at),
    _create_rule(models.ApiRequest.occurred_at, Retained.REQUESTS),
    _create_rule(models.Mailing.created_at, Retained.MAILINGS),
    _create_rule(models.MailingMark.created_at, Retained.MAILING_MARKS),
    _create_key_rule(models.SenderReport.received_at, Retained.REPORTS),
    _create_rule(models.SenderBody.received_at, _DAY),
    _create_expiry_rule(models.SenderSecret.expires_at),
    _create_rule(models.SenderCount.hour, 2 * _DAY),
    # Keep a deleted sender a day longer than its reports, because deleting the sender's row deletes
    # all remaining reports at once, which would take long for many reports.
    _create_rule(models.Sender.deleted_at, Retained.REPORTS, longer=_DAY),
    _create_rule(models.Bounce.created_at, Retained.BOUNCES),
    _create_rule(models.SignUpView.day, Retained.SEEN),
    _create_rule(models.LoginAttempts.tried_at, ATTEMPT_RETENTION),
    _create_expiry_rule(models.SpentProof.expires_at),
    _create_rule(models.ComposerUse.day, _DAY),
    _create_rule(models.OAuthCode.expires_at, _CODE_RETENTION),
    _create_expiry_rule(models.OAuthToken.expires_at),
    Rule(models.PaymentOrder, ABANDONED_ORDER_RETENTION, is_purged=False),
    Rule(
        models.Subscription,
        Retained.STRANGERS,
        REQUESTED_AT,
        only=(models.Subscription.status == models.SubscriptionStatus.PENDING,),
        is_purged=False,
    ),
    Rule(models.User, Retained.STRANGERS, is_purged=False),
)
