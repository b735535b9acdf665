"""What is kept for how long: an entry for each table, and for what in a table has its own time."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from sqlalchemy import ColumnElement, SQLColumnExpression, func, inspect, or_

import models
from core.settings.retention_days import Retained
from models.declarative import Model
from services.feed.reading import FEED_RETENTION
from services.mailing.bulk_files import BULK_FILE_RETENTION
from services.money.topups.abandoned import ABANDONED_ORDER_RETENTION
from services.people.account_mails import ACCOUNT_MAIL_RETENTION
from services.people.logins import ATTEMPT_RETENTION
from services.retention.kept_addresses import ADDRESS_RULES
from services.retention.kept_for_undo import UNDO_RULES
from services.retention.partitions import OTHERS_END_WITHIN, TURNS
from services.retention.retention_rules import Rule

# A code that is sent a second time within this time revokes the tokens that it gave.
CODE_RETENTION = timedelta(days=30)
_DAY = timedelta(days=1)


def _by_key(model: type[Model]) -> tuple[ColumnElement[Any], ...]:
    """Keys rise with time: the order of rows of which no index has the moment."""
    return tuple(inspect(model).primary_key)


def _until(model: type[Model], moment: SQLColumnExpression[Any], words: str) -> Rule:
    """Rows that say themselves when their time is over."""
    return Rule(model.__tablename__, model, timedelta(0), words, moment)


REQUESTED_AT = func.coalesce(
    models.Subscription.confirmation_asked_at, models.Subscription.created_at
)

RULES = (
    Rule(
        "jobs",
        models.Job,
        Retained.JOBS,
        "after its end, and 15 days longer at most while it shares a partition with younger ones",
        models.Job.finished_at,
        is_purged=False,
        longer=TURNS["jobs"] + OTHERS_END_WITHIN,
    ),
    Rule(
        "subscription_events",
        models.SubscriptionEvent,
        Retained.SUBSCRIPTION_EVENTS,
        "after the change, and 180 days longer at most while it shares a partition with younger "
        "ones",
        models.SubscriptionEvent.created_at,
        oldest_by=_by_key(models.SubscriptionEvent),
        is_purged=False,
        longer=TURNS["subscription_events"],
    ),
    *ADDRESS_RULES,
    Rule(
        "events",
        models.RecordedEvent,
        Retained.EVENTS,
        "after it happened, with the IP address",
        models.RecordedEvent.occurred_at,
    ),
    *UNDO_RULES,
    Rule(
        "feed_events",
        models.FeedEvent,
        FEED_RETENTION,
        "after it happened, and 10 days longer at most while it shares a partition with younger "
        "ones",
        models.FeedEvent.occurred_at,
        oldest_by=_by_key(models.FeedEvent),
        is_purged=False,
        longer=TURNS["feed_events"],
    ),
    Rule(
        "imports",
        models.MemberImport,
        Retained.IMPORTS,
        "after its end, if no member came by it; otherwise for as long as its list",
        models.MemberImport.finished_at,
        only=(
            # What members came by stays: it says how each of them joined.
            or_(
                models.MemberImport.added == models.MemberImport.undone, models.MemberImport.dry_run
            ),
            models.MemberImport.files_removed_at.is_not(None),
        ),
    ),
    Rule(
        "imports.files",
        models.MemberImport,
        BULK_FILE_RETENTION,
        "after its end, with the rows that were not added and the cells that its owner is shown",
        models.MemberImport.finished_at,
        oldest_by=(models.MemberImport.created_at,),
        oldest_from=(models.MemberImport.files_removed_at.is_(None),),
        is_purged=False,
    ),
    Rule(
        "exports",
        models.MemberExport,
        Retained.EXPORTS,
        "after it was asked for",
        models.MemberExport.created_at,
        only=(models.MemberExport.files_removed_at.is_not(None),),
    ),
    Rule(
        "exports.files",
        models.MemberExport,
        BULK_FILE_RETENTION,
        "after its end",
        models.MemberExport.finished_at,
        oldest_by=(models.MemberExport.created_at,),
        oldest_from=(models.MemberExport.files_removed_at.is_(None),),
        is_purged=False,
    ),
    _until(
        models.IdempotencyRecord,
        models.IdempotencyRecord.expires_at,
        "24 hours after the first call with the key",
    ),
    _until(
        models.UserSession,
        models.UserSession.expires_at,
        "30 days after the login, or until it ends",
    ),
    Rule(
        "user_sessions.ended",
        models.UserSession,
        timedelta(0),
        "until it ends",
        models.UserSession.ended_at,
    ),
    _until(
        models.MailedLink, models.MailedLink.expires_at, "until it expires, after 7 days at most"
    ),
    _until(
        models.AccountMerge,
        models.AccountMerge.expires_at,
        "an hour after it was asked for, unless the person agrees; others for good, without the "
        "address once they end: mailed links name the record that was merged",
    ),
    Rule(
        "account_mails",
        models.AccountMail,
        ACCOUNT_MAIL_RETENTION,
        "after it was asked for",
        models.AccountMail.created_at,
    ),
    _until(models.MailCount, models.MailCount.ends_at, "until its window ends"),
    Rule(
        "list_reports",
        models.ListReport,
        Retained.LIST_REPORTS,
        "after the report",
        models.ListReport.created_at,
    ),
    Rule(
        "departures",
        models.Departure,
        # Where there are no backups, nothing takes them.
        timedelta(days=30),
        "after it was written, or until the journal beside the backups has it",
        models.Departure.created_at,
        oldest_by=_by_key(models.Departure),
    ),
    Rule(
        "webhook_deliveries",
        models.WebhookDelivery,
        FEED_RETENTION,
        "after its event, with the answer",
        models.WebhookDelivery.created_at,
    ),
    Rule(
        "webhook_endpoints",
        models.WebhookEndpoint,
        # Longer than its deliveries, which would all go with it at once.
        FEED_RETENTION + _DAY,
        "after its owner deleted it; others until their person is erased",
        models.WebhookEndpoint.deleted_at,
    ),
    _until(
        models.WebhookSecret,
        models.WebhookSecret.expires_at,
        "24 hours after the rotation that replaced it; the newest as long as its endpoint",
    ),
    Rule(
        "login_attempts",
        models.LoginAttempts,
        ATTEMPT_RETENTION,
        "after the last one that failed",
        models.LoginAttempts.tried_at,
    ),
    _until(models.SpentProof, models.SpentProof.expires_at, "until it expires, after minutes"),
    Rule(
        "composer_uses",
        models.ComposerUse,
        _DAY,
        "after the beginning of its day",
        models.ComposerUse.day,
    ),
    Rule(
        "oauth_codes",
        models.OAuthCode,
        CODE_RETENTION,
        "after it expired",
        models.OAuthCode.expires_at,
    ),
    _until(
        models.OAuthToken, models.OAuthToken.expires_at, "until it expires, after 30 days at most"
    ),
    Rule(
        "payment_orders",
        models.PaymentOrder,
        ABANDONED_ORDER_RETENTION,
        "after it was made, with its history, if it has no payment and no owner; others for good",
        is_purged=False,
    ),
    Rule(
        "subscriptions",
        models.Subscription,
        Retained.STRANGERS,
        "after it was asked for, if nobody confirmed it; others for as long as their list",
        REQUESTED_AT,
        only=(models.Subscription.status == models.SubscriptionStatus.PENDING,),
        is_purged=False,
    ),
    Rule(
        "users",
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
    models.MovedAccount: "until its person is erased: rosters use the address that it has now",
    models.MemberDayDelta: "until it is added to its day, after half a minute",
    models.OAuthGrant: "until its person is erased: events name it",
    models.ObjectRemoval: "until the object is gone",
    models.OptOut: "until the person lifts it",
    models.Passkey: "until its person removes it or is erased",
    models.Partition: "until it is dropped, with its rows",
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
    models.Upkeep: "for good: one row a kind",
}
