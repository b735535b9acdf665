"""The tags of a list, which differ by more than case and are stored as they were first written.

A member has the ids of tags. The id of a deleted tag has no effect, and ``deleted_tags`` removes it
from the members.
"""

import unicodedata
from collections.abc import Collection, Iterable
from typing import Any

from sqlalchemy import ARRAY, BigInteger, Select, Text, any_, func, literal, select, text
from sqlalchemy.dialects.postgresql import insert

from core.errors import mailing as errors
from core.languages.shown_lines import caseless, is_shown
from models import DeletedTag, MemberTag
from services import paging
from services.paging import PageOfRows, PageRequest
from services.subscriptions.fields import ValueRefused
from services.subscriptions.members import locks
from storage.expected_errors import raise_if_taken
from storage.unit_of_work import UnitOfWork

MAX_TAGS_OF_LIST = 10_000
MAX_TAGS_OF_MEMBER = 100
MAX_TAG_CHARACTERS = 40


def normalise_tag(text: str) -> str:
    """Return the normalised name of a tag; raises ``ValueRefused``."""
    name = unicodedata.normalize("NFC", text).strip()
    # A comma separates tags in files.
    if len(name) > MAX_TAG_CHARACTERS or "," in name or not is_shown(name):
        raise ValueRefused(
            f"must have 1 to {MAX_TAG_CHARACTERS} characters in one line, one of them visible and "
            "none a comma or a control of the text's direction"
        )
    return name


def fold_tag(name: str) -> str:
    """Return the form that names have in common if they differ in case or composition."""
    return caseless(name)


def find_tag_ids(
    uow: UnitOfWork, list_id: int, names: Iterable[str], *, make: bool, hold: bool = False
) -> dict[str, int]:
    """Return the ids of tags by their names; raises ``tag.too_many``.

    Args:
        names: names that ``normalise_tag`` returned.
        make: whether missing tags are created; otherwise they are left out. The transaction waits
            for others that create one of the tags. So a job does this apart from its long work.
        hold: whether the tags are locked against deletion until the transaction ends. The
            transaction waits for others that delete or rename one of them.
    """
    keys_by_name = {name: fold_tag(name) for name in names}
    names_by_key: dict[str, str] = {}
    for name, key in keys_by_name.items():
        names_by_key.setdefault(key, name)
    ids_by_key = _find_ids(uow, list_id, names_by_key, hold=hold)
    # The loop repeats if a tag was deleted between the two statements.
    while make and (missing := names_by_key.keys() - ids_by_key.keys()):
        count = select(func.count()).select_from(MemberTag).where(MemberTag.list_id == list_id)
        if (uow.session.scalar(count) or 0) + len(missing) > MAX_TAGS_OF_LIST:
            raise errors.TAG_TOO_MANY(most=MAX_TAGS_OF_LIST)
        # All transactions insert in the same order, so that they don't deadlock.
        rows = [
            {"list_id": list_id, "name": names_by_key[key], "folded": key}
            for key in sorted(missing)
        ]
        uow.session.execute(insert(MemberTag).values(rows).on_conflict_do_nothing())
        ids_by_key |= _find_ids(uow, list_id, missing, hold=hold)
    return {name: ids_by_key[key] for name, key in keys_by_name.items() if key in ids_by_key}


def find_tag_names(
    uow: UnitOfWork, tag_ids: Iterable[int], *, hold: bool = False
) -> dict[int, str]:
    """Return the names of tags by their ids, without deleted tags.

    ``hold`` locks the tags against deletion until the transaction ends.
    """
    unique_ids = set(tag_ids)
    if not unique_ids:
        return {}
    ids = literal(sorted(unique_ids), ARRAY(BigInteger))
    query = select(MemberTag.id, MemberTag.name).where(MemberTag.id == any_(ids))
    rows = uow.session.execute(_with_lock(query) if hold else query)
    return {row.id: row.name for row in rows}


def list_tags(uow: UnitOfWork, list_id: int, wanted: PageRequest) -> PageOfRows[MemberTag]:
    """Return a page of the list's tags, newest first; raises ``cursor.invalid``."""
    query = select(MemberTag).where(MemberTag.list_id == list_id)
    return paging.read(uow, paging.by_id(query, MemberTag.id, wanted), wanted)


def get_tag(uow: UnitOfWork, list_id: int, tag_id: int, *, lock: bool = False) -> MemberTag:
    """Return a tag of the list; raises ``tag.not_found``."""
    query = select(MemberTag).where(MemberTag.id == tag_id, MemberTag.list_id == list_id)
    tag = uow.session.scalar(query.with_for_update() if lock else query)
    if tag is None:
        raise errors.TAG_NOT_FOUND()
    return tag


def rename_tag(uow: UnitOfWork, list_id: int, tag_id: int, name: str) -> MemberTag:
    """Give the tag another name for all its members; raises ``tag.not_found``, ``tag.name_taken``.

    ``name`` is a name that ``normalise_tag`` returned.
    """
    tag = get_tag(uow, list_id, tag_id, lock=True)
    tag.name = name
    tag.folded = fold_tag(name)
    with raise_if_taken("uq_tags_list_id_folded", errors.TAG_NAME_TAKEN(name=name)):
        uow.session.flush()
    return tag


def _find_ids(
    uow: UnitOfWork, list_id: int, keys: Collection[str], *, hold: bool
) -> dict[str, int]:
    if not keys:
        return {}
    query = select(MemberTag.folded, MemberTag.id).where(
        MemberTag.list_id == list_id, MemberTag.folded == any_(literal([*keys], ARRAY(Text)))
    )
    rows = uow.session.execute(_with_lock(query) if hold else query)
    return {row.folded: row.id for row in rows}


def _with_lock(query: Select[*tuple[Any, ...]]) -> Select[*tuple[Any, ...]]:
    return query.with_for_update(read=True, key_share=True)


# Searches the form that ``member_filter.keep`` stores. Strict mode doesn't unwrap lists.
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
    """Delete a tag of the list; returns 1.

    Raises ``tag.not_found``, ``list.busy``. Raises ``tag.in_use`` if a segment, an unfinished bulk
    action or an unfinished export uses the tag.
    """
    with locks.limit_lock_waits(uow):
        # Transactions that start to use the tag lock it. The next statement sees their work.
        tag = get_tag(uow, list_id, tag_id, lock=True)
    values = {"tag_id": tag_id, "list_id": list_id}
    if uses := [row._asdict() for row in uow.session.execute(_USES, values)]:
        raise errors.TAG_IN_USE(
            name=tag.name, uses=errors.uses_named(uses), facts={"used_by": uses}
        )
    uow.session.delete(tag)
    uow.session.add(DeletedTag(list_id=list_id, id=tag_id))
    uow.session.flush()
    return 1
