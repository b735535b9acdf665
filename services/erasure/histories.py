"""Erases what the history of subscriptions says of a person, a batch at a time."""

from sqlalchemy import text

from services.erasure.batches import Batch, Stage
from services.mailing.consent import consent_entries
from storage.unit_of_work import UnitOfWork

# So that a batch takes a fraction of a second. Tests set less.
MAX_EVENTS = 5_000


def blanking_events(of_person: str) -> Stage:
    """Blank from where changes of subscriptions came, and what the person's own changes touched.

    Those of other people's subscriptions too: as the owner of a list the person changed them, from
    an address. ``of_person`` is a condition that an index serves in the order of ids.
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


def erase_consent(uow: UnitOfWork, user_id: int, _: int | None) -> Batch:
    """What shows how the person came onto lists, and the wordings of lists that were theirs."""
    rows = consent_entries.erase(uow, [user_id], most=MAX_EVENTS)
    return Batch(rows, 0 if rows >= MAX_EVENTS else None)
