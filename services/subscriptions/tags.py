"""The tags of a list: words without regard to case, kept as they were first written.

A member has the ids of tags. The id of a tag that was deleted stands for nothing, and maintenance
takes it off (``remove_deleted_tags``).
"""

import unicodedata
from collections.abc import Collection, Iterable
from datetime import timedelta
from typing import Any

from sqlalchemy import ARRAY, BigInteger, Select, Text, any_, func, literal, select, text
from sqlalchemy import delete as sql_delete
from sqlalchemy.dialects.postgresql import insert

from core.errors import TransientError
from core.errors import mailing as errors
from core.languages.shown_lines import caseless, is_shown
from core.logging import get_logger
from models import DeletedTag, MemberTag
from services import paging
from services.jobs.maintenance import register_maintenance
from services.paging import PageOfRows, PageRequest
from services.subscriptions.fields import ValueRefused
from services.subscriptions.members import locks
from storage.expected_errors import raise_if_taken
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

MAX_TAGS_OF_LIST = 10_000
MAX_TAGS_OF_MEMBER = 100
MAX_TAG_CHARACTERS = 40


def normalise_tag(text: str) -> str:
    """The tag that a caller wrote; raises ``ValueRefused``."""
    name = unicodedata.normalize("NFC", text).strip()
    # A comma separates tags in files.
    if len(name) > MAX_TAG_CHARACTERS or "," in name or not is_shown(name):
        raise ValueRefused(
            f"must have 1 to {MAX_TAG_CHARACTERS} characters in one line, one of them visible and "
            "none a comma or a control of the text's direction"
        )
    return name


def fold_tag(name: str) -> str:
    """Return the name without regard to case and composition."""
    return caseless(name)


def tag_ids_of(
    uow: UnitOfWork, list_id: int, names: Iterable[str], *, make: bool, hold: bool = False
) -> dict[str, int]:
    """The ids of tags by the names given, which ``normalise_tag`` made; raises ``tag.too_many``.

    Args:
        make: whether those that the list has not are made, or left out. Another transaction that
            makes one of them is waited for, so a job does this apart from its long work.
        hold: whether none can be deleted until the transaction ends. Another transaction that
            deletes or renames one of them is waited for.
    """
    wanted = {name: fold_tag(name) for name in names}
    spelt: dict[str, str] = {}
    for name, key in wanted.items():
        spelt.setdefault(key, name)
    found = _find(uow, list_id, spelt, hold=hold)
    # More than once, when one was deleted between the two statements.
    while make and (missing := spelt.keys() - found.keys()):
        there = select(func.count()).select_from(MemberTag).where(MemberTag.list_id == list_id)
        if (uow.session.scalar(there) or 0) + len(missing) > MAX_TAGS_OF_LIST:
            raise errors.TAG_TOO_MANY(most=MAX_TAGS_OF_LIST)
        # In one order, so that no two transactions wait for each other.
        rows = [{"list_id": list_id, "name": spelt[key], "folded": key} for key in sorted(missing)]
        uow.session.execute(insert(MemberTag).values(rows).on_conflict_do_nothing())
        found |= _find(uow, list_id, missing, hold=hold)
    return {name: found[key] for name, key in wanted.items() if key in found}


def names_of(uow: UnitOfWork, tag_ids: Iterable[int], *, hold: bool = False) -> dict[int, str]:
    """The names of tags by their ids; those that were deleted are left out.

    ``hold`` is as in ``tag_ids_of``.
    """
    wanted = set(tag_ids)
    if not wanted:
        return {}
    ids = literal(sorted(wanted), ARRAY(BigInteger))
    query = select(MemberTag.id, MemberTag.name).where(MemberTag.id == any_(ids))
    found = uow.session.execute(_held(query) if hold else query)
    return {row.id: row.name for row in found}


def list_tags(uow: UnitOfWork, list_id: int, wanted: PageRequest) -> PageOfRows[MemberTag]:
    """The tags of a list, newest first. Raises ``cursor.invalid``."""
    query = select(MemberTag).where(MemberTag.list_id == list_id)
    return paging.read(uow, paging.by_id(query, MemberTag.id, wanted), wanted)


def get_tag(uow: UnitOfWork, list_id: int, tag_id: int, *, lock: bool = False) -> MemberTag:
    """Raises ``tag.not_found``, also for a tag of another list."""
    query = select(MemberTag).where(MemberTag.id == tag_id, MemberTag.list_id == list_id)
    found = uow.session.scalar(query.with_for_update() if lock else query)
    if found is None:
        raise errors.TAG_NOT_FOUND()
    return found


def rename_tag(uow: UnitOfWork, list_id: int, tag_id: int, name: str) -> MemberTag:
    """Give the tag another name for all its members; raises ``tag.not_found``, ``tag.name_taken``.

    ``name`` is one that ``normalise_tag`` made.
    """
    tag = get_tag(uow, list_id, tag_id, lock=True)
    tag.name, tag.folded = name, fold_tag(name)
    with raise_if_taken("uq_tags_list_id_folded", errors.TAG_NAME_TAKEN(name=name)):
        uow.session.flush()
    return tag


def _find(uow: UnitOfWork, list_id: int, keys: Collection[str], *, hold: bool) -> dict[str, int]:
    if not keys:
        return {}
    query = select(MemberTag.folded, MemberTag.id).where(
        MemberTag.list_id == list_id, MemberTag.folded == any_(literal([*keys], ARRAY(Text)))
    )
    found = uow.session.execute(_held(query) if hold else query)
    return {row.folded: row.id for row in found}


def _held(query: Select[*tuple[Any, ...]]) -> Select[*tuple[Any, ...]]:
    return query.with_for_update(read=True, key_share=True)


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

# As ``member_filter.keep`` has it. In strict mode a condition is never taken for its list.
_IN_FILTER = """jsonb_path_exists(filter,
    'strict $.** ? (@.field == "tag").* ? (@ == $id || exists(@[*] ? (@ == $id)))',
    jsonb_build_object('id', CAST(:tag_id AS bigint)), true)"""
_USES = text(f"""
SELECT 'segment' AS kind, id, name FROM segments WHERE list_id = :list_id AND {_IN_FILTER}
UNION ALL
SELECT 'bulk_action', id, action FROM bulk_actions
WHERE list_id = :list_id AND status = 'running' AND (tag_id = :tag_id OR {_IN_FILTER})
UNION ALL
SELECT 'export', id, kind FROM exports
WHERE list_id = :list_id AND finished_at IS NULL AND {_IN_FILTER}
ORDER BY kind DESC, id
""")  # noqa: S608


def delete_tag(uow: UnitOfWork, list_id: int, tag_id: int) -> int:
    """Take the tag off the list and all members.

    Raises ``tag.not_found``, ``list.busy`` and, for a tag that a segment or an unfinished bulk
    action or export uses, ``tag.in_use``.
    """
    with locks.waiting_briefly(uow):
        # A transaction that begins to use the tag holds it, and the next statement sees its work.
        tag = get_tag(uow, list_id, tag_id, lock=True)
    values = {"tag_id": tag_id, "list_id": list_id}
    if uses := [row._asdict() for row in uow.session.execute(_USES, values)]:
        words, facts = errors.uses_named(uses), {"used_by": uses}
        raise errors.TAG_IN_USE(name=tag.name, uses=words, facts=facts)
    uow.session.delete(tag)
    uow.session.add(DeletedTag(list_id=list_id, id=tag_id))
    uow.session.flush()
    return 1


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
