"""Removes the ids of deleted tags from the records of members."""

from datetime import timedelta

from sqlalchemy import delete, func, select, text

from core.errors import TransientError
from core.logging import get_logger
from models import DeletedTag
from services.jobs.maintenance import register_maintenance
from services.subscriptions.members import locks
from storage.resources import Resources

log = get_logger(__name__)

REMOVE_DELETED_TAGS = register_maintenance(
    "maintenance.deleted_tags",
    every=timedelta(minutes=10),
    run=lambda resources, _: remove_deleted_tags(resources),
)
# The maximum number of members that one batch changes. Changing one batch locks the list for less
# than a second.
MAX_BATCH_MEMBERS = 5_000
_MAX_BATCH_TAGS = 1_000
# How long a row stays in ``deleted_tags``. Transactions that were open when a tag was deleted can
# still add its id to members.
_ROW_RETENTION = timedelta(hours=1)
# Disable sequential scans, because Postgres might assume that most members have a deleted tag, and
# read the members of all lists.
_REQUIRE_INDEX = text("SET LOCAL enable_seqscan = off")
# The statement needs no condition on ``list_id``, because a tag id only occurs on members of one
# list. Don't change ``updated_at``, because an undo skips members whose ``updated_at`` has changed.
_REMOVE_TAGS = text("""
UPDATE subscriptions AS m SET tag_ids =
    ARRAY(SELECT unnest(m.tag_ids) EXCEPT SELECT unnest(CAST(:tag_ids AS bigint[])) ORDER BY 1)
WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM subscriptions
    WHERE tag_ids <> '{}' AND tag_ids && CAST(:tag_ids AS bigint[]) LIMIT :most
))
RETURNING 1
""")


def remove_deleted_tags(resources: Resources) -> int:
    """Return the number of changed members. Skip locked lists until the next run of the job."""
    with resources.unit_of_work() as uow:
        list_ids = uow.session.scalars(select(DeletedTag.list_id).distinct()).all()
    total = 0
    for list_id in list_ids:
        try:
            total += _remove_from_list(resources, list_id)
        except TransientError as error:
            log.info("deleted_tags.list_busy", list_id=list_id, reason=str(error))
    return total


def _remove_from_list(resources: Resources, list_id: int) -> int:
    total = 0
    last_tag_id = 0
    while True:
        with resources.unit_of_work() as uow:
            locks.lock_list(uow, list_id)
            query = (
                select(DeletedTag.id)
                .where(DeletedTag.list_id == list_id, DeletedTag.id > last_tag_id)
                .order_by(DeletedTag.id)
                .limit(_MAX_BATCH_TAGS)
            )
            tag_ids = uow.session.scalars(query).all()
            if not tag_ids:
                return total
            uow.session.execute(_REQUIRE_INDEX)
            values = {"tag_ids": tag_ids, "most": MAX_BATCH_MEMBERS}
            changed_count = len(uow.session.execute(_REMOVE_TAGS, values).all())
            total += changed_count
            if changed_count < MAX_BATCH_MEMBERS:
                uow.session.execute(
                    delete(DeletedTag).where(
                        DeletedTag.list_id == list_id,
                        DeletedTag.id.in_(tag_ids),
                        DeletedTag.created_at < func.now() - _ROW_RETENTION,
                    )
                )
                last_tag_id = tag_ids[-1]
