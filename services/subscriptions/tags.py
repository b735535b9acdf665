"""Creates, finds, renames and deletes the tags of lists.

The names of two tags on one list must not differ only in case, and are spelt as in the request that
created the tag. A member's record contains tag ids. The id of a deleted tag stays in records,
without any effect, until ``deleted_tags`` removes it.
"""

import unicodedata
from collections.abc import Collection, Iterable
from typing import Any

from sqlalchemy import ARRAY, BigInteger, Select, Text, any_, func, literal, select, text
from sqlalchemy.dialects.postgresql import insert

from core.errors import mailing as errors
from core.languages.shown_lines import fold_case, is_shown
from models import DeletedTag, MemberTag
from services import paging
from services.paging import PageOfRows, PageRequest
from services.subscriptions.fields import InvalidAttribute
from services.subscriptions.members import locks
from storage.expected_errors import raise_if_taken
from storage.unit_of_work import UnitOfWork

MAX_TAGS_OF_LIST = 10_000
MAX_TAGS_OF_MEMBER = 100
MAX_TAG_CHARACTERS = 40
# An SQL condition for rows whose stored filter uses the tag ``:tag_id``. The JSON path uses strict
# mode, so that it doesn't unwrap arrays automatically.
IS_IN_FILTER = """jsonb_path_exists(filter,
    'strict $.** ? (@.field == "tag").* ? (@ == $id || exists(@[*] ? (@ == $id)))',
    jsonb_build_object('id', CAST(:tag_id AS bigint)), true)"""
_FIND_USES = text(f"""
SELECT 'segment' AS kind, id, name FROM segments WHERE list_id = :list_id AND {IS_IN_FILTER}
UNION ALL
SELECT 'bulk_action', id, action FROM bulk_actions
WHERE list_id = :list_id AND status = 'running' AND (tag_id = :tag_id OR {IS_IN_FILTER})
UNION ALL
SELECT 'export', id, kind FROM exports
WHERE list_id = :list_id AND finished_at IS NULL AND {IS_IN_FILTER}
ORDER BY kind DESC, id
""")  # noqa: S608


def normalise_tag(text: str) -> str:
    """Raise ``InvalidAttribute`` for an invalid name."""
    name = unicodedata.normalize("NFC", text).strip()
    # The name of a tag can't contain a comma, because commas separate tags in exported files.
    if len(name) > MAX_TAG_CHARACTERS or "," in name or not is_shown(name):
        raise InvalidAttribute(
            f"must be a single line of 1 to {MAX_TAG_CHARACTERS} characters, with a visible one, "
            "and without commas or characters that change the text direction"
        )
    return name


def fold_tag(name: str) -> str:
    """Return a key that is the same for names that differ only in case or Unicode composition."""
    return fold_case(name)


def find_tag_ids(
    uow: UnitOfWork, list_id: int, names: Iterable[str], *, create: bool, lock: bool = False
) -> dict[str, int]:
    """Map tag names from ``normalise_tag`` to tag ids.

    Args:
        create: whether to create or omit missing tags. Create tags only in a short transaction,
            because concurrent transactions that create the same tag must wait.
        lock: whether to lock the tags against deletion, and to wait for concurrent changes.
    """
    keys_by_name = {name: fold_tag(name) for name in names}
    names_by_key: dict[str, str] = {}
    for name, key in keys_by_name.items():
        names_by_key.setdefault(key, name)
    ids_by_key = _find_ids(uow, list_id, names_by_key, lock=lock)
    # Repeat the loop if a concurrent transaction deletes a tag after ``insert`` has found that the
    # tag exists.
    while create and (missing := names_by_key.keys() - ids_by_key.keys()):
        count = select(func.count()).select_from(MemberTag).where(MemberTag.list_id == list_id)
        if (uow.session.scalar(count) or 0) + len(missing) > MAX_TAGS_OF_LIST:
            raise errors.TAG_TOO_MANY(most=MAX_TAGS_OF_LIST)
        # Insert tags in alphabetical order, so that two transactions can't deadlock.
        rows = [
            {"list_id": list_id, "name": names_by_key[key], "folded": key}
            for key in sorted(missing)
        ]
        uow.session.execute(insert(MemberTag).values(rows).on_conflict_do_nothing())
        ids_by_key |= _find_ids(uow, list_id, missing, lock=lock)
    return {name: ids_by_key[key] for name, key in keys_by_name.items() if key in ids_by_key}


def find_tag_names(
    uow: UnitOfWork, tag_ids: Iterable[int], *, lock: bool = False
) -> dict[int, str]:
    unique_ids = set(tag_ids)
    if not unique_ids:
        return {}
    ids = literal(sorted(unique_ids), ARRAY(BigInteger))
    query = select(MemberTag.id, MemberTag.name).where(MemberTag.id == any_(ids))
    rows = uow.session.execute(_lock_against_deletion(query) if lock else query)
    return {row.id: row.name for row in rows}


def list_tags(uow: UnitOfWork, list_id: int, page: PageRequest) -> PageOfRows[MemberTag]:
    query = select(MemberTag).where(MemberTag.list_id == list_id)
    return paging.read_page(uow, paging.select_page_by_id(query, MemberTag.id, page), page)


def get_tag(uow: UnitOfWork, list_id: int, tag_id: int, *, lock: bool = False) -> MemberTag:
    query = select(MemberTag).where(MemberTag.id == tag_id, MemberTag.list_id == list_id)
    tag = uow.session.scalar(query.with_for_update() if lock else query)
    if tag is None:
        raise errors.TAG_NOT_FOUND()
    return tag


def rename_tag(uow: UnitOfWork, list_id: int, tag_id: int, name: str) -> MemberTag:
    """Rename a tag to a name from ``normalise_tag``."""
    tag = get_tag(uow, list_id, tag_id, lock=True)
    tag.name = name
    tag.folded = fold_tag(name)
    with raise_if_taken("uq_tags_list_id_folded", errors.TAG_NAME_TAKEN(name=name)):
        uow.session.flush()
    return tag


def _find_ids(
    uow: UnitOfWork, list_id: int, keys: Collection[str], *, lock: bool
) -> dict[str, int]:
    if not keys:
        return {}
    query = select(MemberTag.folded, MemberTag.id).where(
        MemberTag.list_id == list_id, MemberTag.folded == any_(literal([*keys], ARRAY(Text)))
    )
    rows = uow.session.execute(_lock_against_deletion(query) if lock else query)
    return {row.folded: row.id for row in rows}


def _lock_against_deletion(query: Select[*tuple[Any, ...]]) -> Select[*tuple[Any, ...]]:
    return query.with_for_update(read=True, key_share=True)


def delete_tag(uow: UnitOfWork, list_id: int, tag_id: int) -> int:
    """Raises ``tag.in_use`` if a segment, running bulk action or unfinished export uses the tag."""
    with locks.limit_lock_waits(uow):
        # Lock the tag before checking whether the tag is in use, because transactions lock a tag
        # before they use it.
        tag = get_tag(uow, list_id, tag_id, lock=True)
    values = {"tag_id": tag_id, "list_id": list_id}
    if uses := [row._asdict() for row in uow.session.execute(_FIND_USES, values)]:
        raise errors.TAG_IN_USE(
            name=tag.name, uses=errors.format_uses(uses), facts={"used_by": uses}
        )
    uow.session.delete(tag)
    uow.session.add(DeletedTag(list_id=list_id, id=tag_id))
    uow.session.flush()
    return 1
