"""Defines the stages of an erasure. Each stage erases a person's rows of one kind.

Each call of a stage erases a batch of rows, and returns a bookmark for the next call. The
transaction that erases a batch also stores the bookmark, so that no row is counted twice. Repeating
a stage is safe, because the rows that it has erased no longer exist or are blank.

No stage of an erasure locks the row of the erased person. To prevent deadlocks, the stages of an
erasure lock rows in the same order as other transactions.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from sqlalchemy import Delete, Update, and_, case, delete, func, select, text, tuple_, update
from sqlalchemy.orm import InstrumentedAttribute

import models
from core.ids import PersonId
from models.declarative import Model
from services import removals
from services.attachments.files import build_original_key, list_file_keys
from services.engagement import answers
from services.engagement import records as engagement_records
from services.subscriptions.consent import history
from services.subscriptions.members import changes, locks
from services.subscriptions.members.changes import Actor, ActorKind, Via
from services.subscriptions.watches import watches
from storage.purge import delete_rows, is_in_places, select_first_places
from storage.unit_of_work import UnitOfWork

# The maximum numbers of events and of other rows that an erasure processes per batch. Erasing a
# full batch takes a fraction of a second.
MAX_EVENTS = 5_000
MAX_ROWS = 1_000
# The number of lists per batch is small, because bulk actions on these lists must wait for the
# batch.
MAX_LISTS = 20
# The stages that the result of an erasure job lists, each with its number of erased rows.
REPORTED = ("subscriptions", "opt_outs_kept", "lists", "attachments", "keys", "jobs")
_TEXTS_OF_LISTS = (
    "tagline",
    "description",
    "avatar_image_url",
    "favicon_image_url",
    "colour",
    "logo_hash_id",
    "sender_name",
    "sign_up_text",
    "thanks_text",
    "confirmation_text",
    "engagement_wording",
    "confirmed_redirect",
)
_FIGURES_OF_LISTS: tuple[Any, ...] = (
    models.Mailing,
    models.Bounce,
    models.EngagementAnswer,
    models.MemberEngagement,
    models.SignUpView,
    models.OriginDay,
    models.OriginDayDelta,
    models.LandingDay,
    models.LandingDayDelta,
)


class Batch(NamedTuple):
    """The number of erased rows, and the bookmark, which is ``None`` after the last batch."""

    rows: int
    bookmark: int | None


# A function that erases a batch of a person's rows. The arguments of a stage are the unit of work,
# the person's id, and the bookmark from the previous call.
Stage = Callable[[UnitOfWork, PersonId, int | None], Batch]


def _create_event_stage(of_person: str) -> Stage:
    """Return a stage that blanks a person's data in subscription events.

    ``of_person`` is the SQL condition for the person's events. If the person has changed somebody
    else's subscription, only the IP address is blanked. The table ``subscription_events`` must have
    an index that contains the person's events in the order of their ids.
    """
    statement = text(f"""
    WITH batch AS (
        SELECT id FROM subscription_events WHERE {of_person} AND id > :after
        ORDER BY id LIMIT :limit
    ), blanked AS (
        UPDATE subscription_events AS e SET ip = NULL, request_id = NULL,
            changed = CASE WHEN e.user_id = :user_id THEN NULL ELSE e.changed END,
            reason = CASE WHEN e.user_id = :user_id THEN NULL ELSE e.reason END,
            mailing_id = CASE WHEN e.user_id = :user_id THEN NULL ELSE e.mailing_id END
        FROM batch
        WHERE e.id = batch.id AND (e.ip IS NOT NULL OR e.request_id IS NOT NULL
            OR e.user_id = :user_id AND (e.changed IS NOT NULL OR e.reason IS NOT NULL
                OR e.mailing_id IS NOT NULL))
        RETURNING e.id
    )
    SELECT (SELECT count(*) FROM blanked),
        CASE WHEN count(*) = :limit THEN max(id) END
    FROM batch
    """)  # noqa: S608

    def blank_batch(uow: UnitOfWork, user_id: int, after: int | None) -> Batch:
        values = {"user_id": user_id, "after": after or 0, "limit": MAX_EVENTS}
        rows, last = uow.session.execute(statement, values).one()
        return Batch(rows, last)

    return blank_batch


def _erase_consent(uow: UnitOfWork, user_id: int, _: int | None) -> Batch:
    rows = history.erase_history(uow, [user_id], limit=MAX_EVENTS)
    return Batch(rows, 0 if rows >= MAX_EVENTS else None)


def _blank_subscriptions(uow: UnitOfWork, user_id: int, after: int | None) -> Batch:
    """Clear the personal data in a batch of the person's subscriptions.

    The old values that imports and bulk actions recorded for an undo are deleted.
    """
    subscription = models.Subscription
    of_person = subscription.user_id == user_id
    query = select(subscription.list_id).where(of_person, subscription.list_id > (after or 0))
    list_ids = list(uow.session.scalars(query.order_by(subscription.list_id).limit(MAX_LISTS)))
    if not list_ids:
        return Batch(0, None)
    # Lock the lists in shared mode, so that no import or undo changes their subscriptions at the
    # same time.
    locks.lock_lists_shared(uow, *list_ids)
    on_lists = select(subscription).where(of_person, subscription.list_id.in_(list_ids))
    records = uow.session.scalars(on_lists.order_by(subscription.list_id)).all()
    # Delete the changes that imports and bulk actions have recorded, so that an undo can't restore
    # the person's name. Delete the changes before blanking the subscriptions, because an undo also
    # locks the changes first.
    ids = [record.id for record in records]
    for model in (models.ImportChange, models.BulkChange):
        uow.session.execute(delete(model).where(model.subscription_id.in_(ids)))
    operator = Actor(ActorKind.OPERATOR, Via.COMMAND)
    removed = models.SubscriptionStatus.REMOVED
    # A database trigger clears the column ``origin`` together with ``email``.
    blank: dict[str, Any] = dict.fromkeys(("name", "email", "submitted", "joined_at", "language"))
    blank |= {"fields": {}, "tag_ids": [], "email_enabled": False}
    for record in records:
        changes.change_record(uow, record, changes.ERASED, operator, status=removed, **blank)
    return Batch(len(records), list_ids[-1] if len(list_ids) == MAX_LISTS else None)


def _batch(ids: list[int]) -> Batch:
    return Batch(len(ids), ids[-1] if len(ids) == MAX_ROWS else None)


def _create_blanking_stage(owner: InstrumentedAttribute[Any], **values: Any) -> Stage:
    return partial(_change_batch, owner, update(owner.class_).values(values))


def _create_deleting_stage(owner: InstrumentedAttribute[Any]) -> Stage:
    """Return a stage that deletes a person's rows, newest first.

    The order matters because an API key may refer to the older key that created it.
    """
    return partial(_change_batch, owner, delete(owner.class_))


def _change_batch(
    owner: InstrumentedAttribute[Any],
    change: Update | Delete,
    uow: UnitOfWork,
    user_id: int,
    before: int | None,
) -> Batch:
    ids = _next_ids(uow, owner, user_id, before)
    uow.session.execute(change.where(owner.class_.id.in_(ids)))
    return _batch(ids)


def _next_ids(
    uow: UnitOfWork, owner: InstrumentedAttribute[Any], user_id: int, before: int | None
) -> list[int]:
    key = owner.class_.id
    older = [] if before is None else [key < before]
    query = select(key).where(owner == user_id, *older).order_by(key.desc()).limit(MAX_ROWS)
    return list(uow.session.scalars(query))


def _create_single_batch_stage(owner: InstrumentedAttribute[Any]) -> Stage:
    """Use this stage only for tables with few rows per person."""

    def delete_all(uow: UnitOfWork, user_id: int, _: int | None) -> Batch:
        rows = uow.session.execute(delete(owner.class_).where(owner == user_id).returning(owner))
        return Batch(len(rows.all()), None)

    return delete_all


def _create_unordered_stage(model: Any, is_own: Callable[[int], Any]) -> Stage:
    """Return a stage that deletes rows in any order, for tables without a suitable index."""

    def delete_batch(uow: UnitOfWork, user_id: int, _: int | None) -> Batch:
        ids = list(uow.session.scalars(select(model.id).where(is_own(user_id)).limit(MAX_ROWS)))
        uow.session.execute(delete(model).where(model.id.in_(ids)))
        return Batch(len(ids), 0 if len(ids) == MAX_ROWS else None)

    return delete_batch


def _create_keyless_stage(model: type[Model], user_id_column: InstrumentedAttribute[Any]) -> Stage:
    def delete_batch(uow: UnitOfWork, user_id: int, _: int | None) -> Batch:
        is_own = user_id_column == user_id
        places = select_first_places(model, is_own, order=(), limit=MAX_ROWS)
        count = delete_rows(uow, model, places)
        return Batch(count, 0 if count == MAX_ROWS else None)

    return delete_batch


def _refers_to_owned(refers: InstrumentedAttribute[Any], owned: Any) -> Callable[[int], Any]:
    return lambda user_id: refers.in_(select(owned.id).where(owned.user_id == user_id))


def _delete_requests(uow: UnitOfWork, user_id: int, _: int | None) -> Batch:
    is_own = _refers_to_owned(models.ApiRequest.key_id, models.ApiKey)(user_id)
    places = select_first_places(models.ApiRequest, is_own, order=(), limit=MAX_ROWS)
    count = delete_rows(uow, models.ApiRequest, places)
    return Batch(count, 0 if count == MAX_ROWS else None)


def _erase_engagement(uow: UnitOfWork, person_id: PersonId, _: int | None) -> Batch:
    rows = engagement_records.delete_person(uow, person_id)
    return Batch(rows + answers.detach_erased_people(uow, person_id), None)


def _blank_bounces(uow: UnitOfWork, user_id: int, _: int | None) -> Batch:
    """Remove the person's id and the status code from the bounces of the person.

    If the address joins the list again, Pressroom still finds the bounces, because each bounce
    contains an HMAC of the address.
    """
    bounce = models.Bounce
    places = select_first_places(bounce, bounce.user_id == user_id, order=(), limit=MAX_ROWS)
    blanked = update(bounce).where(is_in_places(bounce, places)).values(user_id=None, status=None)
    count = len(uow.session.execute(blanked.returning(bounce.list_id)).all())
    return Batch(count, 0 if count == MAX_ROWS else None)


def _delete_attachments(uow: UnitOfWork, user_id: int, before: int | None) -> Batch:
    attachment = models.Attachment
    ids = _next_ids(uow, attachment.user_id, user_id, before)
    deletion = delete(attachment).where(attachment.id.in_(ids)).returning(attachment)
    for row in uow.session.scalars(deletion):
        removals.forget_objects(uow, *list_file_keys(row), build_original_key(row.hash_id))
    return _batch(ids)


def _blank_imports(uow: UnitOfWork, user_id: int, before: int | None) -> Batch:
    """Cancel a person's imports and remove the imported files, which contain e-mail addresses."""
    row = models.MemberImport
    ids = _next_ids(uow, row.user_id, user_id, before)
    prefixes = uow.session.scalars(
        update(row)
        .where(row.id.in_(ids))
        .values(
            # Blank the error message of an import, because it may contain names of columns and
            # files.
            **dict.fromkeys(("filename", "description", "mapping", "columns", "samples", "error")),
            **dict.fromkeys(("wrapped_key", "wrapped_by")),
            status=case((row.status == "running", "cancelled"), else_=row.status),
            finished_at=func.coalesce(row.finished_at, func.now()),
            files_removed_at=func.coalesce(row.files_removed_at, func.now()),
        )
        .returning(row.object_prefix)
    )
    removals.forget_objects(uow, *(f"{prefix}/" for prefix in prefixes))
    # The import's helper jobs no longer use the waiting chunks and named members, because the
    # import's job has been deleted.
    for model in (models.WaitingChunk, models.NamedMember):
        uow.session.execute(delete(model).where(model.import_id.in_(ids)))
    return _batch(ids)


def _delete_chunks(uow: UnitOfWork, user_id: int, after: int | None) -> Batch:
    """Delete the rows that a person's imports rejected. The bookmark is the id of an import."""
    chunk = models.ImportChunk
    task = models.MemberImport
    query = select(chunk.import_id, chunk.number).join(task, task.id == chunk.import_id)
    query = query.where(task.user_id == user_id, task.id >= (after or 0))
    query = query.order_by(chunk.import_id, chunk.number).limit(MAX_ROWS)
    keys = [tuple(row) for row in uow.session.execute(query)]
    uow.session.execute(delete(chunk).where(tuple_(chunk.import_id, chunk.number).in_(keys)))
    return Batch(len(keys), keys[-1][0] if len(keys) == MAX_ROWS else None)


def _blank_exports(uow: UnitOfWork, user_id: int, before: int | None) -> Batch:
    export = models.MemberExport
    ids = _next_ids(uow, export.user_id, user_id, before)
    prefixes = uow.session.scalars(
        update(export)
        .where(export.id.in_(ids))
        .values(
            files_removed_at=func.coalesce(export.files_removed_at, func.now()),
            **dict.fromkeys(("wrapped_key", "wrapped_by", "filter", "label")),
        )
        .returning(export.object_prefix)
    )
    removals.forget_objects(uow, *(f"{prefix}/" for prefix in prefixes))
    return _batch(ids)


def _delete_list_figures(uow: UnitOfWork, user_id: int, _: int | None) -> Batch:
    """Delete the figures of the person's lists, which can contain texts such as campaign names."""
    for model in _FIGURES_OF_LISTS:
        is_own = _refers_to_owned(model.list_id, models.MailingList)(user_id)
        places = select_first_places(model, is_own, order=(), limit=MAX_ROWS)
        if count := delete_rows(uow, model, places):
            return Batch(count, 0)
    return Batch(0, None)


def _delete_senders(uow: UnitOfWork, user_id: int, _: int | None) -> Batch:
    """Delete the person's senders.

    Each sender's reports are deleted first, in batches, because a sender can have millions of
    reports.
    """
    for model in (models.SenderReport, models.SenderBody):
        is_own = _refers_to_owned(model.sender_id, models.Sender)(user_id)
        places = select_first_places(model, is_own, order=(), limit=MAX_ROWS)
        if count := delete_rows(uow, model, places):
            return Batch(count, 0)
    # Deleting a sender also deletes its secrets and its hourly numbers of reports, because their
    # foreign keys have ON DELETE CASCADE.
    is_own = models.Sender.user_id == user_id
    places = select_first_places(models.Sender, is_own, order=(), limit=MAX_ROWS)
    return Batch(delete_rows(uow, models.Sender, places), None)


def _blank_reports(uow: UnitOfWork, user_id: int, _: int | None) -> Batch:
    row = models.SenderReport
    ids = list(uow.session.scalars(select(row.id).where(row.user_id == user_id).limit(MAX_ROWS)))
    uow.session.execute(update(row).where(row.id.in_(ids)).values(user_id=None))
    return Batch(len(ids), 0 if len(ids) == MAX_ROWS else None)


def _blank_answers(uow: UnitOfWork, user_id: int, _: int | None) -> Batch:
    """Clear webhook responses, because a receiver may have repeated the person's e-mail address."""
    row = models.WebhookDelivery
    has_answer = and_(row.person_id == user_id, row.answer.is_not(None))
    ids = list(uow.session.scalars(select(row.id).where(has_answer).limit(MAX_ROWS)))
    uow.session.execute(update(row).where(row.id.in_(ids)).values(answer=None))
    # If some of the person's rows may still contain webhook responses, return 0 as the next
    # position, because ``None`` would end the stage. This stage ignores the bookmark's position,
    # because it always searches from the start.
    return Batch(len(ids), 0 if len(ids) == MAX_ROWS else None)


# The stages of an erasure by name, in the order in which they run. The first stage stops all mails
# to the person, and the second stage stops the person's jobs. Jobs are deleted before the rows that
# they use, because a worker also locks a job before its rows. The row with the person's storage use
# is deleted after the rows that consume the storage.
STAGES: Mapping[str, Stage] = {
    "subscriptions": _blank_subscriptions,
    "jobs": _create_deleting_stage(models.Job.user_id),
    # Delete webhook deliveries before their endpoints.
    "deliveries": _create_unordered_stage(
        models.WebhookDelivery,
        _refers_to_owned(models.WebhookDelivery.endpoint_id, models.WebhookEndpoint),
    ),
    # Deleting a webhook endpoint also deletes its secrets.
    "endpoints": _create_single_batch_stage(models.WebhookEndpoint.user_id),
    "answers": _blank_answers,
    "senders": _delete_senders,
    "reported": _blank_reports,
    # A mark prevents a report about the person from being counted twice.
    "marks": _create_keyless_stage(models.MailingMark, models.MailingMark.user_id),
    "engagement": _erase_engagement,
    "watches": lambda uow, user_id, _: Batch(watches.delete_person(uow, user_id), None),
    "bounces": _blank_bounces,
    "attachments": _delete_attachments,
    "imports": _blank_imports,
    "chunks": _delete_chunks,
    "bulk_actions": _create_deleting_stage(models.BulkAction.user_id),
    "exports": _blank_exports,
    # The person's archived lists are blanked but not deleted, because members must still be able to
    # unsubscribe.
    "lists": _create_blanking_stage(
        models.MailingList.user_id,
        title="Erased",
        slug=func.concat("erased-", models.MailingList.id),
        redirect_origins=[],
        engagement=models.EngagementMode.OFF,
        **dict.fromkeys(_TEXTS_OF_LISTS),
    ),
    "mailings": _delete_list_figures,
    "tags": _create_unordered_stage(
        models.MemberTag, _refers_to_owned(models.MemberTag.list_id, models.MailingList)
    ),
    "segments": _create_unordered_stage(
        models.Segment, _refers_to_owned(models.Segment.list_id, models.MailingList)
    ),
    "fields": _create_single_batch_stage(models.MemberField.user_id),
    # Orders are kept, but their URLs and claim tokens are blanked.
    "orders": _create_blanking_stage(
        models.PaymentOrder.user_id, redirect_url=None, payment_url=None, claim_token_hmac=None
    ),
    # Delete the request log before the API keys, because the log refers to the keys.
    "requests": _delete_requests,
    "keys": _create_deleting_stage(models.ApiKey.user_id),
    "sessions": _create_deleting_stage(models.UserSession.user_id),
    "denials": _create_single_batch_stage(models.DeniedEntry.user_id),
    "erased_denials": _create_single_batch_stage(models.ErasedDenial.user_id),
    # An erased owner's lists are archived, so they don't need these opt-outs.
    "address_opt_outs": _create_keyless_stage(models.AddressOptOut, models.AddressOptOut.user_id),
    "apps": _create_single_batch_stage(models.TotpSecret.user_id),
    "passkeys": _create_deleting_stage(models.Passkey.user_id),
    "recovery_codes": _create_deleting_stage(models.RecoveryCode.user_id),
    # Deleting an OAuth grant also deletes the grant's authorization codes and tokens.
    "grants": _create_deleting_stage(models.OAuthGrant.user_id),
    "addresses": _create_single_batch_stage(models.FormerAddress.user_id),
    "mails": _create_deleting_stage(models.AccountMail.user_id),
    "links": _create_deleting_stage(models.MailedLink.user_id),
    # A report about an abusive list remains valid after its reporter was erased, so only the
    # reporter's id is removed.
    "reports": _create_blanking_stage(models.ListReport.user_id, user_id=None),
    "stored_bytes": _create_single_batch_stage(models.StorageUse.user_id),
    "composer_calls": _create_single_batch_stage(models.ComposerUse.user_id),
    "events": _create_event_stage("user_id = :user_id"),
    "acts": _create_event_stage(
        "actor_id = :user_id AND (ip IS NOT NULL OR request_id IS NOT NULL)"
    ),
    # The security events of an erased person are kept as evidence until their retention period
    # ends, but without the IP address and the user agent. The database refuses to blank the
    # security events of a person who isn't erased.
    "account_events": _create_blanking_stage(
        models.RecordedEvent.user_id, ip=None, user_agent=None
    ),
    "consent": _erase_consent,
    # The last stage is repeated until it finds no more rows, so it must delete the rows rather than
    # blank them.
    "idempotency": _create_unordered_stage(
        models.IdempotencyRecord, lambda user_id: models.IdempotencyRecord.caller_id == user_id
    ),
}
