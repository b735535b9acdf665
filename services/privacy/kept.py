"""How long rows are kept that go by themselves; docs/day-two.md says it of each table."""

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
from storage.purge import first

# A row's time is compared with the database's clock alone, so the clocks of hosts may differ.


@dataclass(frozen=True)
class Rule:
    """Rows that go some time after a moment of theirs."""

    model: type[Model]
    # How long after the moment: a name in the setting, or a time that is part of a promise.
    period: Retained | timedelta
    # A column with an index. ``None``: rows that are overdue can't be counted.
    moment: SQLColumnExpression[Any] | None = None
    only: tuple[ColumnElement[bool], ...] = ()
    # Without an index on the moment: the oldest rows come first in the order of these columns, from
    # the condition on.
    oldest_by: tuple[SQLColumnExpression[Any], ...] = ()
    oldest_from: tuple[ColumnElement[bool], ...] = ()
    # The purge deletes such rows; other maintenance does the rest.
    is_purged: bool = True
    # How much longer the row is kept, for what may still need it when its time is over.
    longer: timedelta = timedelta(0)
    # Behind the table's name: what of its rows goes, such as `.ip`, or which of them.
    part: str = ""

    @property
    def name(self) -> str:
        return f"{self.model.__tablename__}{self.part}"

    def age(self, settings: Settings) -> timedelta:
        if isinstance(self.period, Retained):
            return timedelta(days=settings.retention[self.period]) + self.longer
        return self.period + self.longer


def past(
    rule: Rule, age: timedelta, *, limit: int
) -> tuple[Select[Any], tuple[ColumnElement[bool], ...]]:
    """The first rows of a rule that are past their time: in these places, if they also fit."""
    assert rule.moment is not None
    conditions = (rule.moment < func.now() - age, *rule.only)
    if rule.oldest_by:
        return first(rule.model, *rule.oldest_from, order=rule.oldest_by, limit=limit), conditions
    return first(rule.model, *conditions, order=(rule.moment,), limit=limit), ()


def _rule(moment: InstrumentedAttribute[Any], period: Retained | timedelta, **more: Any) -> Rule:
    model: Any = moment.class_
    return Rule(model, period, moment, **more)


def _until(moment: InstrumentedAttribute[Any], **more: Any) -> Rule:
    """Rows that say themselves when their time is over."""
    return _rule(moment, timedelta(0), **more)


def _by_key(moment: InstrumentedAttribute[Any], period: Retained | timedelta, **more: Any) -> Rule:
    """Rows of which no index has the moment: their keys rise with time."""
    return _rule(moment, period, oldest_by=inspect(moment.class_).primary_key, **more)


def _whole_address(
    moment: InstrumentedAttribute[Any], ip: InstrumentedAttribute[Any], **more: Any
) -> Rule:
    only = (ip.is_not(None), func.strpos(ip, "/") == 0)
    return _rule(moment, Retained.IP_ADDRESSES, only=only, is_purged=False, part=".ip", **more)


def _files(kind: Any) -> Rule:
    oldest = {"oldest_by": (kind.created_at,), "oldest_from": (kind.files_removed_at.is_(None),)}
    return _rule(kind.finished_at, BULK_FILE_RETENTION, is_purged=False, part=".files", **oldest)


# The maintenance that shortens the addresses of events notes there how far it came.
_SHORTENED_UP_TO = (
    select(func.coalesce(models.Maintenance.bookmark, 0))
    .where(models.Maintenance.name == "maintenance.shorten_ips")
    .scalar_subquery()
)
# An import, or a bulk action, may go on for two weeks after the row of a change; an undo that began
# on the last day has a week.
_UNDO_LASTS = timedelta(days=21)
# A code that is sent a second time within this time revokes the tokens that it gave.
CODE_RETENTION = timedelta(days=30)
_DAY = timedelta(days=1)

REQUESTED_AT = func.coalesce(
    models.Subscription.confirmation_asked_at, models.Subscription.created_at
)

RULES = (
    _rule(models.Job.finished_at, Retained.JOBS),
    _by_key(models.SubscriptionEvent.created_at, Retained.SUBSCRIPTION_EVENTS),
    _whole_address(
        models.SubscriptionEvent.created_at,
        models.SubscriptionEvent.ip,
        oldest_by=(models.SubscriptionEvent.id,),
        oldest_from=(models.SubscriptionEvent.id > _SHORTENED_UP_TO,),
    ),
    _whole_address(models.ConsentEntry.occurred_at, models.ConsentEntry.ip),
    _whole_address(models.ConsentClaim.occurred_at, models.ConsentClaim.ip),
    _rule(models.RecordedEvent.occurred_at, Retained.EVENTS),
    _by_key(models.ImportChange.applied_at, Retained.IMPORT_CHANGES, longer=_UNDO_LASTS),
    _by_key(models.BulkChange.applied_at, UNDO_TIME, longer=_UNDO_LASTS),
    # Longer than what they changed.
    _rule(models.BulkAction.finished_at, timedelta(days=365)),
    _by_key(models.FeedEvent.occurred_at, FEED_RETENTION),
    _rule(
        models.MemberImport.finished_at,
        Retained.IMPORTS,
        # An import that members came by stays: it says how each of them joined.
        only=(
            models.MemberImport.files_removed_at.is_not(None),
            (models.MemberImport.added == models.MemberImport.undone) | models.MemberImport.dry_run,
        ),
    ),
    _files(models.MemberImport),
    _rule(
        models.MemberExport.created_at,
        Retained.EXPORTS,
        only=(models.MemberExport.files_removed_at.is_not(None),),
    ),
    _files(models.MemberExport),
    _until(models.IdempotencyRecord.expires_at),
    _until(models.UserSession.expires_at),
    _until(models.UserSession.ended_at, part=".ended"),
    _until(models.MailedLink.expires_at),
    _rule(models.AccountMail.created_at, ACCOUNT_MAIL_RETENTION),
    _until(models.MailCount.ends_at),
    _rule(models.ListReport.created_at, Retained.LIST_REPORTS),
    # Where there are no backups, nothing takes them.
    _by_key(models.Departure.created_at, timedelta(days=30)),
    _rule(models.WebhookDelivery.created_at, FEED_RETENTION),
    # Longer than its deliveries, which would all go with it at once.
    _rule(models.WebhookEndpoint.deleted_at, FEED_RETENTION + _DAY),
    _until(models.WebhookSecret.expires_at),
    _rule(models.LoginAttempts.tried_at, ATTEMPT_RETENTION),
    _until(models.SpentProof.expires_at),
    _rule(models.ComposerUse.day, _DAY),
    _rule(models.OAuthCode.expires_at, CODE_RETENTION),
    _until(models.OAuthToken.expires_at),
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
