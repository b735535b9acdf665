"""Removes the ids of deleted tags from the members who have them."""

from datetime import timedelta

from sqlalchemy import delete as sql_delete
from sqlalchemy import func, select, text

from core.errors import TransientError
from core.logging import get_logger
from models import DeletedTag
from services.jobs.maintenance import register_maintenance
from services.subscriptions.members import locks
from storage.resources import Resources

log = get_logger(__name__)
TAKE_OFF_TAGS = register_maintenance(
    "maintenance.deleted_tags",
    every=timedelta(minutes=10),
    run=lambda resources, _: remove_deleted_tags(resources),
)
# A batch keeps its list for a fraction of a second.
MAX_BATCH_MEMBERS = 5_000
_MAX_TAGS_AT_ONCE = 1_000
# An act that had looked the tag up before may give it to a member until then.
_GIVEN_WITHIN = timedelta(hours=1)


def remove_deleted_tags(resources: Resources) -> int:
    """Take deleted tags off members, list by list; how often a member lost some.

    A list that is busy is left to the next run.
    """
    with resources.unit_of_work() as uow:
        list_ids = uow.session.scalars(select(DeletedTag.list_id).distinct()).all()
    total = 0
    for list_id in list_ids:
        try:
            total += _take_off_list(resources, list_id)
        except TransientError as error:
            log.info("deleted_tags.list_busy", list_id=list_id, reason=str(error))
    return total


# Where statistics take most members to have one of the tags, Postgres would read all members of the
# platform until it has found so many.
_BY_INDEX = text("SET LOCAL enable_seqscan = off")
# Members of other lists have none of these tags. `updated_at` stays, by which an undo knows its own
# work: what anybody sees of the member is the same.
_TAKE_OFF = text("""
UPDATE subscriptions AS m SET tag_ids =
    ARRAY(SELECT unnest(m.tag_ids) EXCEPT SELECT unnest(CAST(:tag_ids AS bigint[])) ORDER BY 1)
WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM subscriptions
    WHERE tag_ids <> '{}' AND tag_ids && CAST(:tag_ids AS bigint[]) LIMIT :most
))
RETURNING 1
""")


def _take_off_list(resources: Resources, list_id: int) -> int:
    own = DeletedTag.list_id == list_id
    total, after = 0, 0
    while True:
        with resources.unit_of_work() as uow:
            locks.lock_list(uow, list_id)
            query = select(DeletedTag.id).where(own, DeletedTag.id > after)
            found = query.order_by(DeletedTag.id).limit(_MAX_TAGS_AT_ONCE)
            tag_ids = uow.session.scalars(found).all()
            if not tag_ids:
                return total
            uow.session.execute(_BY_INDEX)
            values = {"tag_ids": tag_ids, "most": MAX_BATCH_MEMBERS}
            changed = len(uow.session.execute(_TAKE_OFF, values).all())
            total += changed
            if changed < MAX_BATCH_MEMBERS:
                is_over = DeletedTag.created_at < func.now() - _GIVEN_WITHIN
                gone = sql_delete(DeletedTag).where(own, DeletedTag.id.in_(tag_ids), is_over)
                uow.session.execute(gone)
                after = tag_ids[-1]
