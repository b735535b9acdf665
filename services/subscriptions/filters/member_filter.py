"""Parses and stores filters for the members of a list."""

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

from sqlalchemy import FromClause, and_, select

from core.errors.mailing import FILTER_TOO_LARGE, SEGMENT_FIELD_RETIRED, SEGMENT_TAG_DELETED
from models import MailingList, MemberField, Subscription, SubscriptionStatus
from services.subscriptions import fields, tags
from services.subscriptions.fields import OwnFields
from services.subscriptions.filters import grammar
from services.subscriptions.filters.conditions import Condition, Members
from services.subscriptions.filters.grammar import Node
from services.subscriptions.filters.names import (
    FIELD_PREFIX,
    NAMES_OF_ALL_STATUSES,
    TAG_NAME,
    Operator,
    build_filter_names,
)
from services.subscriptions.members import locks
from storage.unit_of_work import UnitOfWork

# The maximum size of a stored filter, which must be small because an owner may store thousands of
# filters.
MAX_FILTER_BYTES = 16_384
_SINGLE_VALUE_OPERATORS = frozenset({Operator.IS, Operator.IS_NOT})


@dataclass(frozen=True)
class MemberFilter:
    """A parsed filter. By default, it matches only active members."""

    node: Node
    list_id: int
    engagement_mode: str
    fields: OwnFields
    tag_ids: Mapping[str, int]

    def list_statuses(
        self, allowed: Collection[SubscriptionStatus] | None = None
    ) -> tuple[SubscriptionStatus, ...]:
        """Return the statuses in ``allowed`` that matching members can have."""
        if allowed is None:
            has_all = any(each.name in NAMES_OF_ALL_STATUSES for each in self.node.comparisons())
            allowed = tuple(SubscriptionStatus) if has_all else (SubscriptionStatus.ACTIVE,)
        return tuple(
            each
            for each in SubscriptionStatus
            if each in allowed and self.node.is_true_of(each) is not False
        )

    @property
    def is_all_active(self) -> bool:
        active = SubscriptionStatus.ACTIVE
        return self.list_statuses() == (active,) and self.node.is_true_of(active) is True

    def build_condition(
        self,
        rows: FromClause = Subscription.__table__,
        *,
        allowed: Collection[SubscriptionStatus] | None = None,
    ) -> Condition:
        """Build a condition for matching members.

        The caller's query must itself exclude members of other lists.
        """
        has_status = rows.c.status.in_(self.list_statuses(allowed))
        return and_(has_status, self.node.build_condition(self._describe_members(rows)))

    def build_indexed_condition(self) -> Condition | None:
        """Build a condition that excludes no matching member, if an index helps."""
        return self.node.build_indexed_condition(self._describe_members(Subscription.__table__))

    def _describe_members(self, rows: FromClause) -> Members:
        return Members(rows, self.list_id, self.engagement_mode, self.tag_ids)


def read_filter(uow: UnitOfWork, mailing_list: MailingList, written: object) -> MemberFilter:
    own_fields = fields.read_own_fields(uow, mailing_list.user_id)
    node = grammar.parse_filter(written, build_filter_names(own_fields.by_key.values()))
    # Don't create missing tags, because a condition on a missing tag simply matches no members.
    tag_ids = tags.find_tag_ids(uow, mailing_list.id, _list_tag_names(node), create=False)
    return MemberFilter(node, mailing_list.id, mailing_list.engagement, own_fields, tag_ids)


def _list_tag_names(node: Node) -> list[str]:
    return [
        str(value) for each in node.comparisons() if each.name == TAG_NAME for value in each.values
    ]


def prepare_stored_filter(
    uow: UnitOfWork, mailing_list: MailingList, written: Any, *, create_tags: bool = False
) -> dict[str, Any]:
    """Convert a filter in a request to the stored form, and lock its tags against deletion.

    A stored filter contains ids, so that renaming a field or tag doesn't change the matching
    members. Without ``create_tags``, it contains the names of missing tags, which match no members.
    """
    current_fields = [each for each in _read_fields(uow, mailing_list) if each.retired_at is None]
    node = grammar.parse_filter(written, build_filter_names(current_fields))
    size = len(json.dumps(written, ensure_ascii=False, separators=(",", ":")).encode())
    if size > MAX_FILTER_BYTES:
        raise FILTER_TOO_LARGE(most=MAX_FILTER_BYTES, size=size)
    names = _list_tag_names(node)
    with locks.limit_lock_waits(uow):
        tag_ids = tags.find_tag_ids(uow, mailing_list.id, names, create=create_tags, lock=True)
    field_ids = {each.key: str(each.id) for each in current_fields}
    stored_filter: dict[str, Any] = _replace_names(
        written, field_ids.__getitem__, lambda name: tag_ids.get(tags.normalise_tag(name), name)
    )
    return stored_filter


def read_stored_filter(
    uow: UnitOfWork,
    mailing_list: MailingList,
    stored_filter: Mapping[str, Any],
    *,
    lock: bool = False,
    today: date | None = None,
) -> MemberFilter:
    """Reject retired fields and deleted tags.

    ``lock`` locks the tags until the transaction ends. ``today`` is the day from which ``days_ago``
    counts back, or ``None`` for the current day in UTC.
    """
    node, all_fields = _parse_stored_filter(
        uow, mailing_list, stored_filter, lock=lock, today=today
    )
    used_field_ids = {each.name.field_id for each in node.comparisons()}
    for field in all_fields:
        if field.id in used_field_ids and field.retired_at is not None:
            raise SEGMENT_FIELD_RETIRED(key=field.key)
    return _create_member_filter(mailing_list, node, all_fields)


def read_for_running_job(
    uow: UnitOfWork,
    mailing_list: MailingList,
    stored_filter: Mapping[str, Any],
    *,
    begun_at: datetime,
) -> MemberFilter:
    """Accept retired fields. *Today* is the day of ``begun_at``, even after midnight."""
    today = begun_at.astimezone(UTC).date()
    node, all_fields = _parse_stored_filter(uow, mailing_list, stored_filter, today=today)
    return _create_member_filter(mailing_list, node, all_fields)


def restore_names(
    uow: UnitOfWork, mailing_list: MailingList, *stored_filters: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Restore the form of API requests, in which retired fields have their former keys."""
    keys = {str(each.id): each.key for each in _read_fields(uow, mailing_list)}
    names = tags.find_tag_names(uow, set().union(*map(_list_tag_ids, stored_filters)))

    def name_of(tag: Any) -> Any:
        return names.get(tag, f"deleted tag {tag}") if isinstance(tag, int) else tag

    return [_replace_names(each, keys.__getitem__, name_of) for each in stored_filters]


def _read_fields(uow: UnitOfWork, mailing_list: MailingList) -> list[MemberField]:
    query = select(MemberField).where(MemberField.user_id == mailing_list.user_id)
    return list(uow.session.scalars(query.order_by(MemberField.id)))


def _parse_stored_filter(
    uow: UnitOfWork,
    mailing_list: MailingList,
    stored_filter: Mapping[str, Any],
    *,
    lock: bool = False,
    today: date | None = None,
) -> tuple[Node, list[MemberField]]:
    """Return all fields of the owner too, including retired fields."""
    all_fields = _read_fields(uow, mailing_list)
    names = build_filter_names(all_fields, are_stored=True)
    node = grammar.parse_filter(stored_filter, names, today)
    tag_ids = _list_tag_ids(stored_filter)
    with locks.limit_lock_waits(uow) if lock else nullcontext():
        existing_tags = tags.find_tag_names(uow, tag_ids, lock=lock)
    if tag_ids - existing_tags.keys():
        raise SEGMENT_TAG_DELETED()
    return node, all_fields


def _create_member_filter(
    mailing_list: MailingList, node: Node, all_fields: Iterable[MemberField]
) -> MemberFilter:
    current_fields = OwnFields(each for each in all_fields if each.retired_at is None)
    return MemberFilter(node, mailing_list.id, mailing_list.engagement, current_fields, tag_ids={})


def _list_tag_ids(stored_filter: Mapping[str, Any]) -> set[int]:
    ids_and_names: list[Any] = []
    _replace_names(stored_filter, str, ids_and_names.append)
    return {each for each in ids_and_names if isinstance(each, int)}


def _replace_names(
    node: Mapping[str, Any],
    replace_field: Callable[[str], str],
    replace_tag: Callable[[Any], Any],
) -> dict[str, Any]:
    result = dict(node)
    is_tag_condition = node.get("field") == TAG_NAME.name
    for word, value in node.items():
        if word in {"all", "any"}:
            result[word] = [_replace_names(each, replace_field, replace_tag) for each in value]
        elif word == "not":
            result[word] = _replace_names(value, replace_field, replace_tag)
        elif word == "field" and value.startswith(FIELD_PREFIX):
            result[word] = FIELD_PREFIX + replace_field(value.removeprefix(FIELD_PREFIX))
        elif is_tag_condition and word in _SINGLE_VALUE_OPERATORS:
            result[word] = replace_tag(value)
        elif is_tag_condition and word == Operator.IN:
            result[word] = [replace_tag(each) for each in value]
    return result
