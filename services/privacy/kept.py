"""How long rows are kept: an entry for each table, and for what in a table has its own time."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import ColumnElement, Select, SQLColumnExpression, func, inspect, or_, select
from sqlalchemy.orm import InstrumentedAttribute

import models
from core.settings import Settings
from core.settings.notations import Retained
from models.declarative import Model
from services.accounts.account_mails import ACCOUNT_MAIL_RETENTION
from services.accounts.logins import ATTEMPT_RETENTION
from services.credits.orders import ABANDONED_ORDER_RETENTION
from services.feed.reading import FEED_RETENTION
from services.subscriptions.bulk_actions.actions import BULK_UNDO_TIME
from services.subscriptions.bulk_files import BULK_FILE_RETENTION
from storage.purge import first

# A row's time is compared with the database's clock alone, so the clocks of hosts may differ.


@dataclass(frozen=True)
class Rule:
    """Rows that go some time after a moment of theirs."""

    model: type[Model]
    # How long after the moment: a name in the setting, or a time that is part of a promise.
    period: Retained | timedelta
    # When that is, for people: `after its end`.
    words: str
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


def _rule(
    moment: InstrumentedAttribute[Any], period: Retained | timedelta, words: str, **more: Any
) -> Rule:
    model: Any = moment.class_
    return Rule(model, period, words, moment, **more)


def _until(moment: InstrumentedAttribute[Any], words: str, **more: Any) -> Rule:
    """Rows that say themselves when their time is over."""
    return _rule(moment, timedelta(0), words, **more)


def _by_key(
    moment: InstrumentedAttribute[Any], period: Retained | timedelta, words: str, **more: Any
) -> Rule:
    """Rows of which no index has the moment: their keys rise with time."""
    return _rule(moment, period, words, oldest_by=inspect(moment.class_).primary_key, **more)


def _whole_address(
    moment: InstrumentedAttribute[Any], ip: InstrumentedAttribute[Any], words: str, **more: Any
) -> Rule:
    only = (ip.is_not(None), func.strpos(ip, "/") == 0)
    return _rule(
        moment, Retained.IP_ADDRESSES, words, only=only, is_purged=False, part=".ip", **more
    )


# The maintenance that shortens the addresses of events notes there how far it came.
_SHORTENED_UP_TO = (
    select(func.coalesce(models.Maintenance.bookmark, 0))
    .where(models.Maintenance.name == "maintenance.shorten_ips")
    .scalar_subquery()
)
# An import, or a bulk action, may go on for two weeks after the row of a change; an undo that began
# on the last day has a week.
_UNDO_LASTS = timedelta(days=21)
_SINCE = "since an undo needs it, and three weeks longer"
# A code that is sent a second time within this time revokes the tokens that it gave.
CODE_RETENTION = timedelta(days=30)
_DAY = timedelta(days=1)

REQUESTED_AT = func.coalesce(
    models.Subscription.confirmation_asked_at, models.Subscription.created_at
)

RULES = (
    _rule(models.Job.finished_at, Retained.JOBS, "after its end"),
    _by_key(models.SubscriptionEvent.created_at, Retained.SUBSCRIPTION_EVENTS, "after the change"),
    _whole_address(
        models.SubscriptionEvent.created_at,
        models.SubscriptionEvent.ip,
        "after the change; then its /24 (of IPv6: /64) alone",
        oldest_by=(models.SubscriptionEvent.id,),
        oldest_from=(models.SubscriptionEvent.id > _SHORTENED_UP_TO,),
    ),
    _whole_address(
        models.ConsentEntry.occurred_at,
        models.ConsentEntry.ip,
        "after the act; then its /24 (of IPv6: /48) alone, as long as the entry: until the person "
        "is erased",
    ),
    _whole_address(
        models.ConsentClaim.occurred_at,
        models.ConsentClaim.ip,
        "after the claimed moment; then its /24 (of IPv6: /48) alone, as long as the claim: until "
        "its import is undone or the person is erased",
    ),
    _rule(
        models.RecordedEvent.occurred_at, Retained.EVENTS, "after it happened, with the IP address"
    ),
    _by_key(
        models.ImportChange.applied_at,
        Retained.IMPORT_CHANGES,
        f"after the import, {_SINCE}",
        longer=_UNDO_LASTS,
    ),
    _by_key(
        models.BulkChange.applied_at, BULK_UNDO_TIME, f"after the act, {_SINCE}", longer=_UNDO_LASTS
    ),
    _rule(
        models.BulkAction.finished_at,
        timedelta(days=365),  # longer than what they changed
        "after its end, or until its owner is erased",
    ),
    _by_key(models.FeedEvent.occurred_at, FEED_RETENTION, "after it happened"),
    _rule(
        models.MemberImport.finished_at,
        Retained.IMPORTS,
        "after its end, if no member came by it; otherwise for as long as its list",
        only=(
            # An import that members came by stays: it says how each of them joined.
            or_(
                models.MemberImport.added == models.MemberImport.undone, models.MemberImport.dry_run
            ),
            models.MemberImport.files_removed_at.is_not(None),
        ),
    ),
    _rule(
        models.MemberImport.finished_at,
        BULK_FILE_RETENTION,
        "after its end, with the rows that were not added and the cells that its owner is shown",
        oldest_by=(models.MemberImport.created_at,),
        oldest_from=(models.MemberImport.files_removed_at.is_(None),),
        is_purged=False,
        part=".files",
    ),
    _rule(
        models.MemberExport.created_at,
        Retained.EXPORTS,
        "after it was asked for",
        only=(models.MemberExport.files_removed_at.is_not(None),),
    ),
    _rule(
        models.MemberExport.finished_at,
        BULK_FILE_RETENTION,
        "after its end",
        oldest_by=(models.MemberExport.created_at,),
        oldest_from=(models.MemberExport.files_removed_at.is_(None),),
        is_purged=False,
        part=".files",
    ),
    _until(models.IdempotencyRecord.expires_at, "24 hours after the first call with the key"),
    _until(models.UserSession.expires_at, "30 days after the login, or until it ends"),
    _until(models.UserSession.ended_at, "until it ends", part=".ended"),
    _until(models.MailedLink.expires_at, "until it expires, after 7 days at most"),
    _rule(models.AccountMail.created_at, ACCOUNT_MAIL_RETENTION, "after it was asked for"),
    _until(models.MailCount.ends_at, "until its window ends"),
    _rule(models.ListReport.created_at, Retained.LIST_REPORTS, "after the report"),
    _by_key(
        models.Departure.created_at,
        # Where there are no backups, nothing takes them.
        timedelta(days=30),
        "after it was written, or until the journal beside the backups has it",
    ),
    _rule(models.WebhookDelivery.created_at, FEED_RETENTION, "after its event, with the answer"),
    _rule(
        models.WebhookEndpoint.deleted_at,
        # Longer than its deliveries, which would all go with it at once.
        FEED_RETENTION + _DAY,
        "after its owner deleted it; others until their person is erased",
    ),
    _until(
        models.WebhookSecret.expires_at,
        "24 hours after the rotation that replaced it; the newest as long as its endpoint",
    ),
    _rule(models.LoginAttempts.tried_at, ATTEMPT_RETENTION, "after the last one that failed"),
    _until(models.SpentProof.expires_at, "until it expires, after minutes"),
    _rule(models.ComposerUse.day, _DAY, "after the beginning of its day"),
    _rule(models.OAuthCode.expires_at, CODE_RETENTION, "after it expired"),
    _until(models.OAuthToken.expires_at, "until it expires, after 30 days at most"),
    Rule(
        models.PaymentOrder,
        ABANDONED_ORDER_RETENTION,
        "after it was made, with its history, if it has no payment and no owner; others for good",
        is_purged=False,
    ),
    Rule(
        models.Subscription,
        Retained.STRANGERS,
        "after it was asked for, if nobody confirmed it; others for as long as their list",
        REQUESTED_AT,
        only=(models.Subscription.status == models.SubscriptionStatus.PENDING,),
        is_purged=False,
    ),
    Rule(
        models.User,
        Retained.STRANGERS,
        "after they were made, without a login or a trace; others until they are erased",
        is_purged=False,
    ),
)

# Rows that some act ends, by what that is.
KEPT_UNTIL: Mapping[type[Model], str] = {
    models.ApiKey: "until its person is erased: events name it, and the key that made it",
    models.Attachment: "until its owner deletes it or is erased",
    models.DeniedEntry: "until its owner removes it; until they, or who has the address, is erased",
    models.MemberField: "until its owner is erased: members have values of retired ones too",
    models.MemberTag: "until its owner deletes it or is erased",
    models.FormerAddress: "until its person is erased: lists may know them by it",
    models.ImportChunk: "as long as the files of its import",
    models.DeletedTag: "until maintenance has taken it off all members, an hour after its deletion",
    models.MemberDayDelta: "until it is added to its day, after half a minute",
    models.NamedMember: "as long as the files of its import",
    models.OAuthGrant: "until its person is erased: events name it",
    models.ObjectRemoval: "until the object is gone",
    models.OpenCharge: "until its call has ended, after two minutes at most",
    models.OptOut: "until the person lifts it",
    models.Passkey: "until its person removes it or is erased",
    models.PaymentEvent: "as long as its order",
    models.PaymentOrderChange: "as long as its order",
    models.PaymentOrderCheckpoint: "until the next one",
    models.Segment: "until its owner deletes it or is erased",
    models.RecoveryCode: "until its person makes new ones or is erased",
    models.StorageUse: "until its person is erased: one row a person",
    models.SubscriberDelta: "until it is added to the count, after half a minute",
    models.TotpSecret: "until its person removes it or is erased",
    models.WaitingChunk: "until it is applied, or its import ends",
}
# Rows that nothing ever deletes: what refers to them needs no index for it.
KEPT_FOR_GOOD: Mapping[type[Model], str] = {
    models.ConsentWording: "for good: entries name the version to which a person agreed",
    models.CreditAccount: "for good, as the ledger",
    models.CreditCheckpoint: "for good: one row an account",
    models.CreditEntry: "for good: the ledger is only added to",
    models.Erasure: "for good: one row a person, without the address",
    models.FeedOffset: "for good: one row",
    models.MailingList: "for good: its members may leave an archived list too",
    models.MemberDay: "for good: a row for each day, source and tier of which members came or went",
    models.OAuthClient: "for good: the operator registers each by hand",
    models.PaymentOrderTransition: "for good: a fixed set",
    models.SubscriberCount: "for good: one row a list",
    models.Maintenance: "for good: one row a kind",
}
