"""The stages in which a person who is marked is erased.

A stage erases one batch and says where it goes on. It is in one transaction with that bookmark, so
no row is counted twice. It may begin anew at any time: it then finds less, or nothing.

No stage locks the person. Each locks rows of one kind, and in the order of the code that also
writes them.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from sqlalchemy import Delete, Update, case, delete, func, select, text, tuple_, update
from sqlalchemy.orm import InstrumentedAttribute

import models
from services import removals
from services.attachments.files import keys_of_files, original_key
from services.subscriptions import consent
from services.subscriptions.members import changes, locks
from services.subscriptions.members.changes import Actor, ActorKind, Via
from storage.unit_of_work import UnitOfWork


class Batch(NamedTuple):
    rows: int
    # Where the next batch goes on; ``None``: there is none.
    bookmark: int | None


# Called with the person's id and the bookmark, if any.
Stage = Callable[[UnitOfWork, int, int | None], Batch]


# A batch of so many takes a fraction of a second. Tests set less.
MAX_EVENTS = 5_000
MAX_ROWS = 1_000
# A batch keeps bulk actions off all the lists of its subscriptions.
MAX_LISTS = 20


def _blanking_events(of_person: str) -> Stage:
    """Blank from where changes of subscriptions came, and what the person's own changes touched.

    Changes of other people's subscriptions are blanked too: as the owner of a list the person made
    them, from an address. ``of_person`` is a condition that an index serves in the order of ids.
    """
    statement = text(f"""
    WITH batch AS (
        SELECT id FROM subscription_events WHERE {of_person} AND id > :after
        ORDER BY id LIMIT :limit
    ), blanked AS (
        UPDATE subscription_events AS e SET ip = NULL, request_id = NULL,
            changed = CASE WHEN e.user_id = :user_id THEN NULL ELSE e.changed END,
            reason = CASE WHEN e.user_id = :user_id THEN NULL ELSE e.reason END
        FROM batch
        WHERE e.id = batch.id AND (e.ip IS NOT NULL OR e.request_id IS NOT NULL
            OR e.user_id = :user_id AND (e.changed IS NOT NULL OR e.reason IS NOT NULL))
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
    """Erase what shows how the person came onto lists, and the wordings of their own lists."""
    rows = consent.erase(uow, [user_id], most=MAX_EVENTS)
    return Batch(rows, 0 if rows >= MAX_EVENTS else None)


def _blank_subscriptions(uow: UnitOfWork, user_id: int, after: int | None) -> Batch:
    """Blank the person's records on some lists, and what is kept of them for an undo."""
    own = models.Subscription
    of_person = own.user_id == user_id
    query = select(own.list_id).where(of_person, own.list_id > (after or 0))
    list_ids = list(uow.session.scalars(query.order_by(own.list_id).limit(MAX_LISTS)))
    if not list_ids:
        return Batch(0, None)
    # An import or its undo may write one of these records, and has the list to itself then.
    locks.share_lists(uow, *list_ids)
    on_these = select(own).where(of_person, own.list_id.in_(list_ids))
    records = uow.session.scalars(on_these.order_by(own.list_id)).all()
    # Before the records, as an undo locks them. Without these rows it brings no name back.
    ids = [each.id for each in records]
    for kind in (models.ImportChange, models.BulkChange):
        uow.session.execute(delete(kind).where(kind.subscription_id.in_(ids)))
    operator, removed = Actor(ActorKind.OPERATOR, Via.COMMAND), models.SubscriptionStatus.REMOVED
    blank: dict[str, Any] = dict.fromkeys(("name", "email", "submitted", "joined_at", "language"))
    blank |= {"fields": {}, "tag_ids": [], "email_enabled": False}
    for each in records:
        changes.change(uow, each, changes.ERASED, operator, status=removed, **blank)
    return Batch(len(records), list_ids[-1] if len(list_ids) == MAX_LISTS else None)


def _batch(ids: list[int]) -> Batch:
    return Batch(len(ids), ids[-1] if len(ids) == MAX_ROWS else None)


def _blanking(owner: InstrumentedAttribute[Any], **values: Any) -> Stage:
    """Write these values into the rows that have the person as their ``owner``, and keep them."""
    return partial(_change_batch, owner, update(owner.class_).values(values))


def _deleting(owner: InstrumentedAttribute[Any]) -> Stage:
    """Delete the owner's rows, the newest first: a key comes before the one that made it."""
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


def _deleting_few(owner: InstrumentedAttribute[Any]) -> Stage:
    """As ``_deleting``, of a table that has few rows of a person."""

    def delete_all(uow: UnitOfWork, user_id: int, _: int | None) -> Batch:
        gone = uow.session.execute(delete(owner.class_).where(owner == user_id).returning(owner))
        return Batch(len(gone.all()), None)

    return delete_all


def _deleting_where(model: Any, is_own: Callable[[int], Any]) -> Stage:
    """Delete rows of which no index has the order by id: the first ones found, until none is."""

    def delete_batch(uow: UnitOfWork, user_id: int, _: int | None) -> Batch:
        ids = list(uow.session.scalars(select(model.id).where(is_own(user_id)).limit(MAX_ROWS)))
        uow.session.execute(delete(model).where(model.id.in_(ids)))
        return Batch(len(ids), 0 if len(ids) == MAX_ROWS else None)

    return delete_batch


def _of(refers: InstrumentedAttribute[Any], owned: Any) -> Callable[[int], Any]:
    """The conditions on what refers to the person's things."""
    return lambda user_id: refers.in_(select(owned.id).where(owned.user_id == user_id))


def _delete_attachments(uow: UnitOfWork, user_id: int, before: int | None) -> Batch:
    own = models.Attachment
    ids = _next_ids(uow, own.user_id, user_id, before)
    for each in uow.session.scalars(delete(own).where(own.id.in_(ids)).returning(own)):
        removals.forget(uow, *keys_of_files(each), original_key(each.hash_id))
    return _batch(ids)


def _blank_imports(uow: UnitOfWork, user_id: int, before: int | None) -> Batch:
    """End the person's imports, and remove files with other people's addresses."""
    own = models.MemberImport
    ids = _next_ids(uow, own.user_id, user_id, before)
    prefixes = uow.session.scalars(
        update(own)
        .where(own.id.in_(ids))
        .values(
            # The error names columns and files.
            **dict.fromkeys(("filename", "description", "mapping", "columns", "samples", "error")),
            **dict.fromkeys(("wrapped_key", "wrapped_by")),
            status=case((own.status == "running", "cancelled"), else_=own.status),
            finished_at=func.coalesce(own.finished_at, func.now()),
            files_removed_at=func.coalesce(own.files_removed_at, func.now()),
        )
        .returning(own.object_prefix)
    )
    removals.forget(uow, *(f"{prefix}/" for prefix in prefixes))
    # No helper of an import whose job is gone takes them.
    for left in (models.WaitingChunk, models.NamedMember):
        uow.session.execute(delete(left).where(left.import_id.in_(ids)))
    return _batch(ids)


def _delete_chunks(uow: UnitOfWork, user_id: int, after: int | None) -> Batch:
    """Delete the rows of the person's files that were not added; the bookmark is an import."""
    chunk = models.ImportChunk
    own = models.MemberImport
    found = select(chunk.import_id, chunk.number).join(own, own.id == chunk.import_id)
    found = found.where(own.user_id == user_id, own.id >= (after or 0))
    found = found.order_by(chunk.import_id, chunk.number).limit(MAX_ROWS)
    keys = [tuple(row) for row in uow.session.execute(found)]
    uow.session.execute(delete(chunk).where(tuple_(chunk.import_id, chunk.number).in_(keys)))
    return Batch(len(keys), keys[-1][0] if len(keys) == MAX_ROWS else None)


def _blank_exports(uow: UnitOfWork, user_id: int, before: int | None) -> Batch:
    own = models.MemberExport
    ids = _next_ids(uow, own.user_id, user_id, before)
    removed_at = func.coalesce(own.files_removed_at, func.now())
    blanked = update(own).where(own.id.in_(ids)).values(files_removed_at=removed_at)
    gone = dict.fromkeys(("wrapped_key", "wrapped_by", "filter"))
    prefixes = uow.session.scalars(blanked.values(gone).returning(own.object_prefix))
    removals.forget(uow, *(f"{prefix}/" for prefix in prefixes))
    return _batch(ids)


def _blank_answers(uow: UnitOfWork, user_id: int, _: int | None) -> Batch:
    """Answers of other people's receivers, which may repeat the person's address."""
    row = models.WebhookDelivery
    about = row.person_id == user_id, row.answer.is_not(None)
    ids = list(uow.session.scalars(select(row.id).where(*about).limit(MAX_ROWS)))
    uow.session.execute(update(row).where(row.id.in_(ids)).values(answer=None))
    # A blanked answer is not found again.
    return Batch(len(ids), 0 if len(ids) == MAX_ROWS else None)


_WORDS_OF_LISTS = (
    *("tagline", "description", "avatar_image_url", "favicon_image_url", "colour"),
    *("logo_hash_id", "sender_name", "sign_up_text", "thanks_text", "confirmation_text"),
)

# The rows that mails go to come first, then what still runs for the person. Jobs come before their
# subjects, as a worker locks them: no import continues without its job. The counts of what is
# stored come after what they count.
STAGES: Mapping[str, Stage] = {
    "subscriptions": _blank_subscriptions,
    "jobs": _deleting(models.Job.user_id),
    # The answers of the receivers of the person's webhooks, before the endpoints go.
    "deliveries": _deleting_where(
        models.WebhookDelivery, _of(models.WebhookDelivery.endpoint_id, models.WebhookEndpoint)
    ),
    # Their secrets go with them.
    "endpoints": _deleting_few(models.WebhookEndpoint.user_id),
    "answers": _blank_answers,
    "attachments": _delete_attachments,
    "imports": _blank_imports,
    "chunks": _delete_chunks,
    "bulk_actions": _deleting(models.BulkAction.user_id),
    "exports": _blank_exports,
    # The archived lists stay, since members may still leave them.
    "lists": _blanking(
        models.MailingList.user_id,
        title="Erased",
        slug=func.concat("erased-", models.MailingList.id),
        redirect_origins=[],
        **dict.fromkeys(_WORDS_OF_LISTS),
    ),
    "tags": _deleting_where(models.MemberTag, _of(models.MemberTag.list_id, models.MailingList)),
    "segments": _deleting_where(models.Segment, _of(models.Segment.list_id, models.MailingList)),
    "fields": _deleting_few(models.MemberField.user_id),
    # The payer's URLs and claim token go; the order and the payment stay.
    "orders": _blanking(
        models.PaymentOrder.user_id, redirect_url=None, payment_url=None, claim_token_hmac=None
    ),
    "keys": _deleting(models.ApiKey.user_id),
    "sessions": _deleting(models.UserSession.user_id),
    "denials": _deleting_few(models.DeniedEntry.user_id),
    "erased_denials": _deleting_few(models.ErasedDenial.user_id),
    "apps": _deleting_few(models.TotpSecret.user_id),
    "passkeys": _deleting(models.Passkey.user_id),
    "recovery_codes": _deleting(models.RecoveryCode.user_id),
    # A grant's codes and tokens go with it.
    "grants": _deleting(models.OAuthGrant.user_id),
    "addresses": _deleting_few(models.FormerAddress.user_id),
    "mails": _deleting(models.AccountMail.user_id),
    "links": _deleting(models.MailedLink.user_id),
    # They still count.
    "reports": _blanking(models.ListReport.user_id, user_id=None),
    "stored_bytes": _deleting_few(models.StorageUse.user_id),
    "composer_calls": _deleting_few(models.ComposerUse.user_id),
    "events": _blanking_events("user_id = :user_id"),
    "acts": _blanking_events("actor_id = :user_id AND (ip IS NOT NULL OR request_id IS NOT NULL)"),
    # They stay for their year, as proof of what became of the account: ids, a type and a time. The
    # database allows that for people who are erased alone.
    "account_events": _blanking(models.RecordedEvent.user_id, ip=None, user_agent=None),
    "consent": _erase_consent,
    # The last one deletes: it is looked at until it finds nothing.
    "idempotency": _deleting_where(
        models.IdempotencyRecord, lambda user_id: models.IdempotencyRecord.caller_id == user_id
    ),
}
# The counts that the operator is told, beside the person's id.
TOLD = ("subscriptions", "opt_outs_kept", "lists", "attachments", "keys", "jobs")
