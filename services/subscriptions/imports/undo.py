"""Undoes an import by restoring the changed members and removing the added members.

If a subscription was changed after the import, the undo restores only the values that haven't been
changed. A subscription is unchanged since the import if its ``updated_at`` is the time of the
import. Opt-outs that an import stored stay in force after the undo. The undo deletes the consent
claims that the import stored, even if the member stays in the list.
"""

from sqlalchemy import text

from core.errors.imports import IMPORT_NOT_FOUND, IMPORT_RUNNING, IMPORT_UNDO_OVER
from models import JobStatus, MemberImport
from services.feed.catalogue import FeedEventType, announce_event
from services.subscriptions.consent.claims import delete_claims
from services.subscriptions.imports.undo_figures import (
    CORRECT_FOR_REMOVED,
    CORRECT_FOR_RESTORED,
    CORRECT_LANDINGS_FOR_REMOVED,
    CORRECT_LANDINGS_FOR_RESTORED,
    CORRECT_ORIGINS_FOR_REMOVED,
    CORRECT_ORIGINS_FOR_RESTORED,
)
from services.subscriptions.undo import RestoredBatch, Undo
from storage.unit_of_work import UnitOfWork

MEMBERS_PER_BATCH = 10_000
# An SQL expression for a member's fields after the undo. If a field still has the value from the
# import, the undo restores the former value, or removes the field if it had none.
_EARLIER_FIELDS = """CASE WHEN b.fields_after IS NULL THEN {now} ELSE (
            SELECT coalesce(jsonb_object_agg(f.key, f.value), '{{}}') FROM (
                SELECT n.key, CASE WHEN n.value = b.fields_after -> n.key
                    THEN b.fields_before -> n.key ELSE n.value END AS value
                FROM jsonb_each({now}) AS n
            ) AS f WHERE {none}
        ) END"""
_EARLIER_EXTRAS = f"""fields = {
    _EARLIER_FIELDS.format(now="m.fields", none="jsonb_typeof(f.value) <> 'null'")
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
    -- Select a range instead of a join, because the plan of a join would need statistics about a
    -- new import.
    SELECT * FROM import_changes WHERE import_id = :import_id
        AND subscription_id > :after AND subscription_id <= (SELECT max(subscription_id) FROM first)
), gone AS (
    -- Keep the changes of members whom a later change affects, because another undo may restore
    -- these members.
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
        {_EARLIER_EXTRAS}
        import_id = CASE WHEN b.activated THEN b.import_id_before ELSE m.import_id END,
        imported_at = CASE WHEN b.activated THEN b.imported_at_before ELSE m.imported_at END,
        updated_at = b.updated_at_before
    FROM batch AS b WHERE m.id = b.subscription_id AND m.updated_at = b.applied_at
    RETURNING m.list_id, m.user_id, m.status, m.email_enabled, m.source, m.type,
        old.status AS last_status, old.type AS last_type, b.type_after, b.activated, b.applied_at,
        m.origin
), touched AS (
    UPDATE subscriptions AS m SET
        name = CASE WHEN m.name IS NOT DISTINCT FROM b.name_after
            THEN b.name_before ELSE m.name END,
        type = CASE WHEN m.type = b.type_after THEN b.type_before ELSE m.type END,
        paid_expiry = CASE WHEN m.paid_expiry IS NOT DISTINCT FROM b.paid_expiry_after
            THEN b.paid_expiry_before ELSE m.paid_expiry END,
        {_EARLIER_EXTRAS}
        -- Keep the time of a later change, because the undo of the later change recognises the
        -- member by this time.
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
    RETURNING m.list_id, m.user_id, m.status, m.email_enabled
), later AS (
    -- Correct the earlier values that a later import has stored, because the undo of the later
    -- import must not restore values of this import.
    UPDATE import_changes AS c SET
        name_before = CASE WHEN c.name_before IS NOT DISTINCT FROM b.name_after
            THEN b.name_before ELSE c.name_before END,
        type_before = CASE WHEN c.type_before = b.type_after
            THEN b.type_before ELSE c.type_before END,
        paid_expiry_before = CASE WHEN c.paid_expiry_before IS NOT DISTINCT FROM b.paid_expiry_after
            THEN b.paid_expiry_before ELSE c.paid_expiry_before END,
        fields_before = {_EARLIER_FIELDS.format(now="c.fields_before", none="true")},
        joined_at_before = CASE WHEN c.joined_at_before = b.joined_at_after
            THEN b.joined_at_before ELSE c.joined_at_before END
    FROM batch AS b CROSS JOIN LATERAL (
        SELECT ctid AS place FROM import_changes
        WHERE subscription_id = b.subscription_id AND import_id <> b.import_id
            AND applied_at > b.applied_at
        OFFSET 0
    ) AS l
    WHERE c.ctid = l.place
    RETURNING c.subscription_id, c.activated, c.applied_at, c.type_before, c.type_after,
        old.type_before AS last_type_before
), corrected AS ({CORRECT_FOR_RESTORED}),
corrected_origins AS ({CORRECT_ORIGINS_FOR_RESTORED}),
corrected_landings AS ({CORRECT_LANDINGS_FOR_RESTORED}), noted AS (
    INSERT INTO subscription_events (list_id, user_id, action, actor, actor_id, via,
        status_before, status_after, email_enabled_before, email_enabled_after)
    SELECT list_id, user_id, 'import_undone', 'import', :user_id, 'import',
        CASE WHEN activated THEN 'active' ELSE status END, status, email_enabled, email_enabled
    FROM untouched
    UNION ALL SELECT list_id, user_id, 'import_undone', 'import', :user_id, 'import',
        status, status, email_enabled, email_enabled
    FROM touched
)
SELECT (SELECT count(*) FROM untouched WHERE activated), (SELECT max(subscription_id) FROM first)
"""  # noqa: S608
# Removes the subscriptions that the import created. The table ``import_changes`` contains no rows
# for created subscriptions. Subscriptions that existed before the import are never removed.
_REMOVE = f"""
WITH batch AS (
    SELECT id, updated_at = imported_at AND created_at = imported_at AS is_untouched,
        status = 'active' AS is_member
    FROM subscriptions
    WHERE import_id = :import_id AND id > :after ORDER BY id LIMIT :batch
), removed AS (
    DELETE FROM subscriptions AS m USING batch WHERE m.id = batch.id AND batch.is_untouched
    RETURNING m.source, m.type, m.imported_at, m.origin
), corrected AS ({CORRECT_FOR_REMOVED}),
corrected_origins AS ({CORRECT_ORIGINS_FOR_REMOVED}),
corrected_landings AS ({CORRECT_LANDINGS_FOR_REMOVED})
SELECT (SELECT count(*) FROM removed), max(id),
    count(*) FILTER (WHERE is_member AND NOT is_untouched), count(*) FILTER (WHERE NOT is_member)
FROM batch
"""  # noqa: S608


def _restore_batch(uow: UnitOfWork, task: MemberImport) -> RestoredBatch | None:
    values = {"import_id": task.id, "list_id": task.list_id, "user_id": task.user_id}
    values["batch"] = MEMBERS_PER_BATCH
    # Restore all changed subscriptions before removing the subscriptions that the import created.
    after = {"after": task.undo_restored or 0}
    restored, last = uow.session.execute(text(_RESTORE), values | after).one()
    if last is not None:
        return RestoredBatch(restored, {"undo_restored": last})
    after = {"after": task.undo_removed or 0}
    restored, last, kept_count, left_count = uow.session.execute(
        text(_REMOVE), values | after
    ).one()
    if last is not None:
        counts = _add_skipped(task, kept_count, left_count)
        return RestoredBatch(restored, {"undo_removed": last, **counts})
    # After all members have been restored or removed, delete the consent claims that the import
    # stored.
    return RestoredBatch(0, {}) if delete_claims(uow, task.id, limit=MEMBERS_PER_BATCH) else None


def _add_skipped(task: MemberImport, kept_count: int, left_count: int) -> dict[str, int]:
    """Return the values of ``kept`` and ``undo_left`` after a batch of removed subscriptions.

    The batches together contain everyone who stays. If release 1.1.0 has processed the first batch,
    the function counts nobody.
    """
    if task.undo_removed is None:
        return {"kept": kept_count, "undo_left": left_count}
    if task.undo_left is None:
        return {}
    return {"kept": task.kept + kept_count, "undo_left": task.undo_left + left_count}


def _end_undo(uow: UnitOfWork, task: MemberImport, job_id: int, status: str) -> None:
    not_restored = task.added - task.undone
    if status == JobStatus.SUCCEEDED and task.undo_removed is None:
        # The undo has restored everyone.
        task.kept = 0
        task.undo_left = 0
    elif status == JobStatus.SUCCEEDED and task.undo_left is None:
        # Release 1.1.0 has begun the undo.
        task.kept = not_restored
    announce_event(
        uow,
        task.user_id,
        FeedEventType.BULK_ENDED,
        task.id,
        list_id=task.list_id,
        status=status,
        job_id=job_id,
        action="undo_import",
        changed=task.undone,
        kept=not_restored,
    )


IMPORT_UNDO = Undo(
    model=MemberImport,
    job_name="members.undo",
    id_name="import_id",
    not_found=IMPORT_NOT_FOUND,
    running=IMPORT_RUNNING,
    over=IMPORT_UNDO_OVER,
    count_changed=lambda task: task.added,
    restore_batch=_restore_batch,
    end=_end_undo,
    # An undo that skipped changed members isn't complete. The owner can repeat an incomplete undo
    # after reverting the changes to the skipped members.
    is_complete=lambda task: task.undone_at is not None and task.undone >= task.added,
    has_total=False,
    # Undoing an import requires a recent login, because the undo removes members.
    needs_recent_login=True,
    initial_values=dict.fromkeys(("undone_at", "undo_restored", "undo_removed")),
)
