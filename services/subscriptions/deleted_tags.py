"""Removes the ids of deleted tags from the members who have them."""

from datetime import timedelta

from sqlalchemy import delete, func, select, text

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
# A batch locks its list for a fraction of a second.
MAX_BATCH_MEMBERS = 5_000
_MAX_BATCH_TAGS = 1_000
# A transaction that read the tag before its deletion may still give it to a member.
_KEPT_FOR = timedelta(hours=1)


def remove_deleted_tags(resources: Resources) -> int:
    """Remove deleted tags from members, list by list; returns the number of changed members.

    The next run does the lists that are busy now.
    """
    with resources.unit_of_work() as uow:
        list_ids = uow.session.scalars(select(DeletedTag.list_id).distinct()).all()
    total = 0
    for list_id in list_ids:
        try:
            total += _remove_from_list(resources, list_id)
        except TransientError as error:
            log.info("deleted_tags.list_busy", list_id=list_id, reason=str(error))
    return total


# According to the statistics, most members may have one of the tags. Postgres would then read the
# members of all lists.
_REQUIRE_INDEX = text("SET LOCAL enable_seqscan = off")
# Members of other lists have none of these tags. ``updated_at`` is kept, because an undo compares
# it, and the visible data of the member doesn't change.
_REMOVE_TAGS = text("""
UPDATE subscriptions AS m SET tag_ids =
    ARRAY(SELECT unnest(m.tag_ids) EXCEPT SELECT unnest(CAST(:tag_ids AS bigint[])) ORDER BY 1)
WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM subscriptions
    WHERE tag_ids <> '{}' AND tag_ids && CAST(:tag_ids AS bigint[]) LIMIT :most
))
RETURNING 1
""")


def _remove_from_list(resources: Resources, list_id: int) -> int:
    of_list = DeletedTag.list_id == list_id
    total = 0
    after = 0
    while True:
        with resources.unit_of_work() as uow:
            locks.lock_list(uow, list_id)
            query = select(DeletedTag.id).where(of_list, DeletedTag.id > after)
            query = query.order_by(DeletedTag.id).limit(_MAX_BATCH_TAGS)
            tag_ids = uow.session.scalars(query).all()
            if not tag_ids:
                return total
            uow.session.execute(_REQUIRE_INDEX)
            values = {"tag_ids": tag_ids, "most": MAX_BATCH_MEMBERS}
            changed = len(uow.session.execute(_REMOVE_TAGS, values).all())
            total += changed
            if changed < MAX_BATCH_MEMBERS:
                is_old = DeletedTag.created_at < func.now() - _KEPT_FOR
                uow.session.execute(
                    delete(DeletedTag).where(of_list, DeletedTag.id.in_(tag_ids), is_old)
                )
                after = tag_ids[-1]
