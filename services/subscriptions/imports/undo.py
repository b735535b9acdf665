"""The undo of an import: restores the records that the import changed.

A record isn't restored if another change came after the import. A record is unchanged if its
``updated_at`` is the time of the import. Opt-outs stay. The claims of consent in the file are
deleted, whatever was changed.
"""

from functools import partial

from sqlalchemy import func, text

from core.errors.imports import IMPORT_RUNNING
from core.queues import Queue
from core.scopes import Scope
from models import JobStatus, MemberImport
from services.feed.catalogue import FeedEventType, announce
from services.jobs.batches import work_in_turns
from services.jobs.kinds import JobKind, call_with_subject, register_kind
from services.jobs.lease import JobCancelled, Lease
from services.jobs.transitions import complete_job, record_progress
from services.subscriptions.consent import claims
from services.subscriptions.members import locks
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

BATCH = 10_000
# Each field that still has the import's value gets its earlier one, or none.
_FIELDS_BEFORE = """CASE WHEN b.fields_after IS NULL THEN {now} ELSE (
            SELECT coalesce(jsonb_object_agg(f.key, f.value), '{{}}') FROM (
                SELECT n.key, CASE WHEN n.value = b.fields_after -> n.key
                    THEN b.fields_before -> n.key ELSE n.value END AS value
                FROM jsonb_each({now}) AS n
            ) AS f WHERE {none}
        ) END"""
_EXTRAS_BEFORE = f"""fields = {
    _FIELDS_BEFORE.format(now="m.fields", none="jsonb_typeof(f.value) <> 'null'")
},
        tag_ids = CASE WHEN b.tags_added IS NULL THEN m.tag_ids ELSE
            ARRAY(SELECT unnest(m.tag_ids) EXCEPT SELECT unnest(b.tags_added) ORDER BY 1) END,
        joined_at = CASE WHEN m.joined_at = b.joined_at_after
            THEN b.joined_at_before ELSE m.joined_at END,"""
_RESTORE = f"""
WITH first AS (
    SELECT subscription_id FROM import_changes
    WHERE import_id = :import_id AND subscription_id > :after
    ORDER BY subscription_id LIMIT :batch
), batch AS (
    -- A range, not a join: the plan of a join would rely on statistics of a new import.
    SELECT * FROM import_changes WHERE import_id = :import_id
        AND subscription_id > :after AND subscription_id <= (SELECT max(subscription_id) FROM first)
), gone AS (
    -- All but those of members whom a later change holds: another undo may take them back.
    DELETE FROM import_changes AS c WHERE import_id = :import_id
        AND subscription_id > :after AND subscription_id <= (SELECT max(subscription_id) FROM first)
        AND NOT (c.activated AND EXISTS (
            SELECT FROM subscriptions AS m WHERE m.id = c.subscription_id
                AND m.status = 'active' AND m.updated_at <> c.applied_at OFFSET 0
        ))
), untouched AS (
    UPDATE subscriptions AS m SET
        status = CASE WHEN b.activated THEN b.status_before ELSE m.status END,
        name = b.name_before, type = b.type_before, paid_expiry = b.paid_expiry_before,
        {_EXTRAS_BEFORE}
        import_id = CASE WHEN b.activated THEN b.import_id_before ELSE m.import_id END,
        imported_at = CASE WHEN b.activated THEN b.imported_at_before ELSE m.imported_at END,
        updated_at = b.updated_at_before
    FROM batch AS b WHERE m.id = b.subscription_id AND m.updated_at = b.applied_at
    RETURNING m.list_id, m.user_id, m.status, m.email_enabled, b.activated
), touched AS (
    UPDATE subscriptions AS m SET
        name = CASE WHEN m.name IS NOT DISTINCT FROM b.name_after
            THEN b.name_before ELSE m.name END,
        type = CASE WHEN m.type = b.type_after THEN b.type_before ELSE m.type END,
        paid_expiry = CASE WHEN m.paid_expiry IS NOT DISTINCT FROM b.paid_expiry_after
            THEN b.paid_expiry_before ELSE m.paid_expiry END,
        {_EXTRAS_BEFORE}
        -- By it the undo of what holds a member makes them as they were before that.
        updated_at = CASE WHEN b.activated AND m.status = 'active'
            THEN m.updated_at ELSE clock_timestamp() END
    FROM batch AS b WHERE m.id = b.subscription_id AND m.updated_at <> b.applied_at AND (
        (m.name IS NOT DISTINCT FROM b.name_after AND b.name_after IS DISTINCT FROM b.name_before)
        OR (m.type = b.type_after AND b.type_after <> b.type_before)
        OR (m.paid_expiry IS NOT DISTINCT FROM b.paid_expiry_after
            AND b.paid_expiry_after IS DISTINCT FROM b.paid_expiry_before)
        OR m.tag_ids && b.tags_added OR m.joined_at = b.joined_at_after
        OR EXISTS (
            SELECT FROM jsonb_each(b.fields_after) AS a WHERE m.fields -> a.key = a.value
        ))
), later AS (
    -- A later import keeps values of this one for its own undo; those must not come back either.
    UPDATE import_changes AS c SET
        name_before = CASE WHEN c.name_before IS NOT DISTINCT FROM b.name_after
            THEN b.name_before ELSE c.name_before END,
        type_before = CASE WHEN c.type_before = b.type_after
            THEN b.type_before ELSE c.type_before END,
        paid_expiry_before = CASE WHEN c.paid_expiry_before IS NOT DISTINCT FROM b.paid_expiry_after
            THEN b.paid_expiry_before ELSE c.paid_expiry_before END,
        fields_before = {_FIELDS_BEFORE.format(now="c.fields_before", none="true")},
        joined_at_before = CASE WHEN c.joined_at_before = b.joined_at_after
            THEN b.joined_at_before ELSE c.joined_at_before END
    FROM batch AS b CROSS JOIN LATERAL (
        SELECT ctid AS place FROM import_changes
        WHERE subscription_id = b.subscription_id AND import_id <> b.import_id
            AND applied_at > b.applied_at
        OFFSET 0
    ) AS l
    WHERE c.ctid = l.place
), noted AS (
    INSERT INTO subscription_events (list_id, user_id, action, actor, actor_id, via,
        status_before, status_after, email_enabled_before, email_enabled_after)
    SELECT list_id, user_id, 'import_undone', 'import', :user_id, 'import',
        CASE WHEN activated THEN 'active' ELSE status END, status, email_enabled, email_enabled
    FROM untouched
)
SELECT (SELECT count(*) FROM untouched WHERE activated), (SELECT max(subscription_id) FROM first)
"""  # noqa: S608
# New records have no row in import_changes. A record that was there before the import stays even
# where that row was lost, since the record is older.
_REMOVE = """
WITH batch AS (
    SELECT id, updated_at = imported_at AND created_at = imported_at AS is_untouched
    FROM subscriptions
    WHERE import_id = :import_id AND id > :after ORDER BY id LIMIT :batch
), removed AS (
    DELETE FROM subscriptions AS m USING batch WHERE m.id = batch.id AND batch.is_untouched
    RETURNING m.id
)
SELECT (SELECT count(*) FROM removed), (SELECT max(id) FROM batch)
"""


def _announce_end(uow: UnitOfWork, task: MemberImport, job_id: int, status: str) -> None:
    announce(
        uow,
        task.user_id,
        FeedEventType.BULK_ENDED,
        task.id,
        list_id=task.list_id,
        status=status,
        job_id=job_id,
        action="undo_import",
        changed=task.undone,
        kept=task.added - task.undone,
    )


def run(resources: Resources, lease: Lease) -> None:
    """Undo batches of records for one turn.

    Raises ``import.running`` for an import that went on since its undo was cancelled or failed.
    """
    work_in_turns(resources, lease, partial(_undo_batch, lease=lease))


UNDO_IMPORT = register_kind(
    JobKind(
        "members.undo",
        Queue.BULK,
        Scope.SUBSCRIPTION_FULL,
        retryable=True,
        run=run,
        # An undo removes members, which needs a recent login.
        needs_recent_login=True,
        # An undo that ended early is not taken back, and asking again goes on.
        on_abandoned=call_with_subject(MemberImport, _announce_end),
    )
)


def _undo_batch(uow: UnitOfWork, lease: Lease) -> bool:
    """Undo the next batch; return whether none is left."""
    task = uow.session.get(MemberImport, lease.subject_id)
    if task is None:
        raise JobCancelled
    if task.status == "running":
        raise IMPORT_RUNNING()
    locks.lock_list(uow, task.list_id)
    # Records that existed before the import come first, then the new ones. The bookmarks are the
    # last records of a batch, so that none reads again what an earlier one left alone.
    for statement, bookmark in ((_RESTORE, "undo_restored"), (_REMOVE, "undo_removed")):
        values = {"import_id": task.id, "user_id": task.user_id, "batch": BATCH}
        values["after"] = getattr(task, bookmark) or 0
        restored, last = uow.session.execute(text(statement), values).one()
        if last is not None:
            # The job first, then the import, as a transaction that ends a job locks them.
            record_progress(uow, lease, done=task.undone + restored, total=task.added)
            task.undone += restored
            setattr(task, bookmark, last)
            return False
    if claims.delete_claims(uow, task.id, limit=BATCH):
        # The file's claims about members who stay go too. Only by the job's holder.
        record_progress(uow, lease, done=task.undone, total=task.added)
        return False
    # The records that are not as before, such as those that a later import took over.
    kept = task.added - task.undone
    complete_job(uow, lease, {"import_id": task.id, "undone": task.undone, "kept": kept})
    task.kept, task.undone_at = kept, func.now()
    _announce_end(uow, task, lease.job_id, JobStatus.SUCCEEDED)
    return True
