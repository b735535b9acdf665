"""The tags of a list: words without regard to case, kept as they were first written.

A member has the ids of tags. The id of a tag that was deleted may stay there; it stands for
nothing.
"""

import unicodedata
from collections.abc import Collection, Iterable, Mapping

from sqlalchemy import ARRAY, BigInteger, Text, any_, delete, func, literal, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import IntegrityError

from core.languages.shown_lines import is_shown
from core.refusals import attributes as refusals
from models import MemberTag
from services import paging
from services.mailing.attributes.field_values import ValueRefused
from services.paging import PageOfRows, PageRequest
from storage.unit_of_work import UnitOfWork

MAX_TAGS_OF_LIST = 10_000
MAX_TAGS_OF_MEMBER = 100
MAX_TAG_CHARACTERS = 40


def read(text: str) -> str:
    """The tag that a caller wrote; raises ``ValueRefused``."""
    name = unicodedata.normalize("NFC", text).strip()
    # A comma separates tags in files.
    if len(name) > MAX_TAG_CHARACTERS or "," in name or not is_shown(name):
        raise ValueRefused(
            f"must have 1 to {MAX_TAG_CHARACTERS} characters in one line, one of them visible and "
            "none a comma or a control of the text's direction"
        )
    return name


def folded(name: str) -> str:
    """What two spellings of one tag have in common."""
    return unicodedata.normalize("NFC", name.casefold())


def tag_ids_of(
    uow: UnitOfWork, list_id: int, names: Iterable[str], *, make: bool
) -> dict[str, int]:
    """The ids of tags by the names given, which ``read`` made.

    With ``make``, those that the list has not are made. Otherwise they are left out. Another
    transaction that makes one of them is waited for, so a job does this apart from its long work.
    Raises ``tag.too_many``.
    """
    wanted = {name: folded(name) for name in names}
    spelt: dict[str, str] = {}
    for name, key in wanted.items():
        spelt.setdefault(key, name)
    found = _find(uow, list_id, spelt)
    # More than once, when one was deleted between the two statements.
    while make and (missing := spelt.keys() - found.keys()):
        _make(uow, list_id, {key: spelt[key] for key in missing})
        found |= _find(uow, list_id, missing)
    return {name: found[key] for name, key in wanted.items() if key in found}


def names_of(uow: UnitOfWork, tag_ids: Iterable[int]) -> dict[int, str]:
    """The names of tags by their ids; those that were deleted are left out."""
    wanted = set(tag_ids)
    if not wanted:
        return {}
    ids = literal(sorted(wanted), ARRAY(BigInteger))
    query = select(MemberTag.id, MemberTag.name).where(MemberTag.id == any_(ids))
    return {row.id: row.name for row in uow.session.execute(query)}


def page(uow: UnitOfWork, list_id: int, wanted: PageRequest) -> PageOfRows[MemberTag]:
    """The tags of a list, newest first. Raises ``cursor.invalid``."""
    query = select(MemberTag).where(MemberTag.list_id == list_id)
    found = uow.session.scalars(paging.by_id(query, MemberTag.id, wanted)).all()
    return paging.cut(found, wanted.limit, lambda each: str(each.id))


def get(uow: UnitOfWork, list_id: int, tag_id: int) -> MemberTag:
    """Raises ``tag.not_found``, also for a tag of another list."""
    own = MemberTag.id == tag_id, MemberTag.list_id == list_id
    found = uow.session.scalar(select(MemberTag).where(*own))
    if found is None:
        raise refusals.TAG_NOT_FOUND()
    return found


def rename(uow: UnitOfWork, list_id: int, tag_id: int, name: str) -> MemberTag:
    """Give the tag another name for all its members; raises ``tag.not_found``, ``tag.name_taken``.

    ``name`` is one that ``read`` made.
    """
    own = MemberTag.id == tag_id, MemberTag.list_id == list_id
    tag = uow.session.scalar(select(MemberTag).where(*own).with_for_update())
    if tag is None:
        raise refusals.TAG_NOT_FOUND()
    tag.name, tag.folded = name, folded(name)
    try:
        uow.session.flush()
    except IntegrityError as error:
        if "uq_tags_list_id_folded" not in str(error.orig):
            raise
        raise refusals.TAG_NAME_TAKEN(name=name) from None
    return tag


def forget(uow: UnitOfWork, list_id: int, tag_id: int) -> int:
    """Take the tag off all members, by forgetting what its id means; raises ``tag.not_found``."""
    own = MemberTag.id == tag_id, MemberTag.list_id == list_id
    if uow.session.scalar(delete(MemberTag).where(*own).returning(MemberTag.id)) is None:
        raise refusals.TAG_NOT_FOUND()
    return 1


def _find(uow: UnitOfWork, list_id: int, keys: Collection[str]) -> dict[str, int]:
    if not keys:
        return {}
    query = select(MemberTag.folded, MemberTag.id).where(
        MemberTag.list_id == list_id, MemberTag.folded == any_(literal([*keys], ARRAY(Text)))
    )
    return {row.folded: row.id for row in uow.session.execute(query)}


def _make(uow: UnitOfWork, list_id: int, spelt: Mapping[str, str]) -> None:
    there = select(func.count()).select_from(MemberTag).where(MemberTag.list_id == list_id)
    if (uow.session.scalar(there) or 0) + len(spelt) > MAX_TAGS_OF_LIST:
        raise refusals.TAG_TOO_MANY(most=MAX_TAGS_OF_LIST)
    # In one order, so that no two transactions wait for each other.
    rows = [{"list_id": list_id, "name": spelt[key], "folded": key} for key in sorted(spelt)]
    uow.session.execute(insert(MemberTag).values(rows).on_conflict_do_nothing())
