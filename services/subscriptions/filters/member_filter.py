"""A filter for the members of one list."""

import json
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from sqlalchemy import FromClause, and_, func, or_, select, text

from core.errors.mailing import FILTER_TOO_LARGE, SEGMENT_FIELD_RETIRED, SEGMENT_TAG_DELETED
from core.languages.shown_lines import strip_unseen
from models import MailingList, MemberField, Subscription, SubscriptionStatus
from services.access.caller import Caller
from services.subscriptions import fields, tags
from services.subscriptions.fields import OwnFields
from services.subscriptions.filters import grammar
from services.subscriptions.filters.conditions import Condition, Members
from services.subscriptions.filters.grammar import Node
from services.subscriptions.filters.names import OF_FIELD, STATUS, TAG, Operator, known_names
from services.subscriptions.members import locks
from storage.unit_of_work import UnitOfWork


@dataclass(frozen=True)
class MemberFilter:
    """A filter that was read, for the members of one list.

    They are active, unless the filter itself names statuses, or the caller does.

    Attributes:
        fields: of the list's owner, by which it was read.
        tag_ids: of the tags that it names and that the list has, by those names.
    """

    node: Node
    fields: OwnFields
    tag_ids: Mapping[str, int]

    def statuses(
        self, asked: Collection[SubscriptionStatus] | None = None
    ) -> tuple[SubscriptionStatus, ...]:
        """Return the statuses that a matching member can have.

        Args:
            asked: only these, instead of the active members alone.
        """
        if asked is None:
            names_status = any(each.name == STATUS for each in self.node.comparisons())
            asked = tuple(SubscriptionStatus) if names_status else (SubscriptionStatus.ACTIVE,)
        return tuple(
            each
            for each in SubscriptionStatus
            if each in asked and self.node.is_true_of(each) is not False
        )

    @property
    def is_all_active(self) -> bool:
        """Return whether the filter matches all active members, and nobody else."""
        active = SubscriptionStatus.ACTIVE
        return self.statuses() == (active,) and self.node.is_true_of(active) is True

    def condition(
        self,
        rows: FromClause = Subscription.__table__,
        *,
        asked: Collection[SubscriptionStatus] | None = None,
    ) -> Condition:
        """Return the condition of a matching member; the statement restricts them to the list.

        ``rows``: the subscriptions, or some of them with all of their columns.
        """
        has_status = rows.c.status.in_(self.statuses(asked))
        return and_(has_status, self.node.sql(Members(rows, self.tag_ids)))

    def indexed(self) -> Condition | None:
        """A condition that an index answers, and that is true of every member whom it means."""
        return self.node.indexed(Members(tag_ids=self.tag_ids))


def read(uow: UnitOfWork, mailing_list: MailingList, written: object) -> MemberFilter:
    """The filter that is written as JSON. Raises ``filter.invalid``."""
    own = fields.read_own_fields(uow, mailing_list.user_id)
    node = grammar.parse(written, known_names(own.by_key.values()))
    named = [each.values for each in node.comparisons() if each.name == TAG]
    # A tag that the list does not have is on no member.
    wanted = {str(value) for values in named for value in values}
    tag_ids = tags.find_tag_ids(uow, mailing_list.id, wanted, make=False)
    return MemberFilter(node, own, tag_ids)


MIN_SOUGHT_CHARACTERS = 2
MAX_SOUGHT_CHARACTERS = 200
MAX_FOUND_OF_EACH = 10


@dataclass(frozen=True)
class FoundMember:
    list_id: int
    list_title: str
    user_id: int
    email: str
    name: str | None


@dataclass(frozen=True)
class Found:
    lists: Sequence[MailingList]
    members: Sequence[FoundMember]


def find(uow: UnitOfWork, caller: Caller, sought: str) -> Found:
    """Find the caller's lists by title or slug, and active members by the start of their address.

    The result is empty if ``sought`` has fewer than ``MIN_SOUGHT_CHARACTERS`` characters. The
    duration of a search grows with the number of the owner's lists, but not with the number of
    members.
    """
    words = unicodedata.normalize("NFC", strip_unseen(sought)).lower()
    if not MIN_SOUGHT_CHARACTERS <= len(words) <= MAX_SOUGHT_CHARACTERS:
        return Found([], [])
    pattern = re.sub(r"([\\%_])", r"\\\1", words)
    each, contains = MailingList, f"%{pattern}%"
    own = each.user_id == caller.user_id, each.archived_at.is_(None)
    has_words = or_(func.lower(each.title).like(contains), each.slug.like(contains))
    newest = select(each).where(*own, has_words).order_by(each.created_at.desc(), each.id.desc())
    values = {"owner_id": caller.user_id, "beginning": f"{pattern}%", "most": MAX_FOUND_OF_EACH}
    members = [FoundMember(*row) for row in uow.session.execute(_FIND_MEMBERS, values)]
    return Found(uow.session.scalars(newest.limit(MAX_FOUND_OF_EACH)).all(), members)


# Each list has its own look into the index of addresses, so that a long list costs no more.
_FIND_MEMBERS = text("""
SELECT l.id, l.title, m.user_id, m.email, m.name FROM lists AS l CROSS JOIN LATERAL (
    SELECT user_id, email, name FROM subscriptions
    WHERE list_id = l.id AND status = 'active' AND email LIKE :beginning LIMIT :most
) AS m
WHERE l.user_id = :owner_id AND l.archived_at IS NULL ORDER BY m.email, l.id LIMIT :most
""")


# Far more than a person writes. An owner may have thousands of filters, which are listed and kept.
MAX_FILTER_BYTES = 16_384
_OF_ONE = frozenset({Operator.IS, Operator.IS_NOT})


def keep(
    uow: UnitOfWork, mailing_list: MailingList, written: Any, *, make_tags: bool = False
) -> dict[str, Any]:
    """A caller's filter as it is stored. Its tags can't be deleted until the transaction ends.

    A stored filter contains the ids of fields and tags instead of their names. A stored filter
    therefore matches the same members after a field or a tag is renamed, even if another field or
    tag gets the old name.

    ``make_tags``: whether tags are made that the list has not. Otherwise they keep their names, and
    are on no member for good. Raises ``filter.invalid``, ``filter.too_large`` and ``list.busy``,
    for new tags ``tag.too_many``.
    """
    living = [each for each in _fields(uow, mailing_list) if each.retired_at is None]
    node = grammar.parse(written, known_names(living))
    size = len(json.dumps(written, ensure_ascii=False, separators=(",", ":")).encode())
    if size > MAX_FILTER_BYTES:
        raise FILTER_TOO_LARGE(most=MAX_FILTER_BYTES, size=size)
    names = [str(value) for each in node.comparisons() if each.name == TAG for value in each.values]
    with locks.limit_lock_waits(uow):
        tag_ids = tags.find_tag_ids(uow, mailing_list.id, names, make=make_tags, hold=True)
    field_ids = {each.key: str(each.id) for each in living}
    kept: dict[str, Any] = _rewritten(
        written, field_ids.__getitem__, lambda name: tag_ids.get(tags.normalise_tag(name), name)
    )
    return kept


def read_stored(
    uow: UnitOfWork, mailing_list: MailingList, kept: Mapping[str, Any], *, hold: bool = False
) -> MemberFilter:
    """The filter, to be used by a caller.

    With ``hold``, its tags can't be deleted until the transaction ends. Raises
    ``segment.field_retired``, ``segment.tag_deleted``, for ``hold`` ``list.busy``.
    """
    node, fields = _parsed(uow, mailing_list, kept, hold=hold)
    named = {each.name.field_id for each in node.comparisons()}
    for each in fields:
        if each.id in named and each.retired_at is not None:
            raise SEGMENT_FIELD_RETIRED(key=each.key)
    return _member_filter(node, fields)


def read_begun(uow: UnitOfWork, mailing_list: MailingList, kept: Mapping[str, Any]) -> MemberFilter:
    """The filter of a bulk action or an export that has begun.

    A field that was retired meanwhile still means the values that members have of it. Raises
    ``segment.tag_deleted``, which may be when a job that had ended is begun again.
    """
    return _member_filter(*_parsed(uow, mailing_list, kept))


def shown(
    uow: UnitOfWork, mailing_list: MailingList, *kept: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """The filters as callers see them; a field that was retired has its last key."""
    keys = {str(each.id): each.key for each in _fields(uow, mailing_list)}
    names = tags.find_tag_names(uow, set().union(*map(_tag_ids, kept)))

    def name_of(tag: Any) -> Any:
        return names.get(tag, f"deleted tag {tag}") if isinstance(tag, int) else tag

    return [_rewritten(each, keys.__getitem__, name_of) for each in kept]


def _fields(uow: UnitOfWork, mailing_list: MailingList) -> list[MemberField]:
    """Return the fields of the list's owner, retired ones too."""
    query = select(MemberField).where(MemberField.user_id == mailing_list.user_id)
    return list(uow.session.scalars(query.order_by(MemberField.id)))


def _parsed(
    uow: UnitOfWork, mailing_list: MailingList, kept: Mapping[str, Any], *, hold: bool = False
) -> tuple[Node, list[MemberField]]:
    fields = _fields(uow, mailing_list)
    node = grammar.parse(kept, known_names(fields, are_stored=True))
    tag_ids = _tag_ids(kept)
    with locks.limit_lock_waits(uow) if hold else nullcontext():
        living = tags.find_tag_names(uow, tag_ids, hold=hold)
    if tag_ids - living.keys():
        raise SEGMENT_TAG_DELETED()
    return node, fields


def _member_filter(node: Node, fields: Iterable[MemberField]) -> MemberFilter:
    living = OwnFields(each for each in fields if each.retired_at is None)
    return MemberFilter(node, living, tag_ids={})


def _tag_ids(kept: Mapping[str, Any]) -> set[int]:
    """The ids of tags in a stored filter, which has names of those that the list did not have."""
    found: list[Any] = []
    _rewritten(kept, str, found.append)
    return {each for each in found if isinstance(each, int)}


def _rewritten(
    node: Mapping[str, Any], field_name: Callable[[str], str], tag: Callable[[Any], Any]
) -> dict[str, Any]:
    """A filter that was checked, with the other name of each field and tag."""
    found = dict(node)
    is_of_tag = node.get("field") == TAG.name
    for word, value in node.items():
        if word in {"all", "any"}:
            found[word] = [_rewritten(each, field_name, tag) for each in value]
        elif word == "not":
            found[word] = _rewritten(value, field_name, tag)
        elif word == "field" and value.startswith(OF_FIELD):
            found[word] = OF_FIELD + field_name(value.removeprefix(OF_FIELD))
        elif is_of_tag and word in _OF_ONE:
            found[word] = tag(value)
        elif is_of_tag and word == Operator.IN:
            found[word] = [tag(each) for each in value]
    return found
