"""Reads and changes the field values and tags of members.

API requests and responses contain field keys and tag names. The database contains ids.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from core.errors import FieldProblem
from core.errors.mailing import FIELD_VALUE, TAG_TOO_MANY_OF_MEMBER
from core.ids import AccountId
from models import MailingList, MemberField, Subscription, SubscriptionStatus
from services.subscriptions import fields, tags
from services.subscriptions.fields import FieldValue, OwnFields
from services.subscriptions.members import locks
from services.subscriptions.sign_up_origins import Origin, fill_origin
from services.subscriptions.tags import MAX_TAGS_OF_MEMBER
from storage.unit_of_work import UnitOfWork

# The name of the agreed wording in unconfirmed values.
AGREED_WORDING = "agreed_wording"
# The error code for a missing value of a required field.
REQUIRED_FIELD_CODE = "field.required"


@dataclass(frozen=True)
class AttributeChanges:
    """Changes to the fields and tags of one member.

    Attributes:
        fields: maps the keys of changed fields to new values, or to ``None`` to remove a value.
        tags: the tags that replace all tags of the member, or ``None`` to keep them.
        remove_tags: the tags to remove, even if a tag is also in ``add_tags``.
    """

    fields: Mapping[str, object] = field(default_factory=dict)
    tags: Sequence[str] | None = None
    add_tags: Sequence[str] = ()
    remove_tags: Sequence[str] = ()


class AttributeFormatter:
    """Converts members' stored fields and tags to the form of API responses.

    Use one for many members, because it reads field keys and tag names only once.
    """

    def __init__(self, own_fields: OwnFields, tag_names: Mapping[int, str]) -> None:
        self._own_fields = own_fields
        self._tag_names = tag_names

    def format_attributes(
        self, values: Mapping[str, Any], tag_ids: Sequence[int]
    ) -> dict[str, Any]:
        names = [self._tag_names[each] for each in tag_ids if each in self._tag_names]
        return {
            "fields": self._own_fields.replace_ids(values),
            "tags": sorted(names, key=tags.fold_tag),
        }

    def format_record(self, record: Subscription) -> dict[str, Any]:
        attributes = self.format_attributes(record.fields, record.tag_ids)
        joined_at = record.joined_at or record.created_at
        return {
            **attributes,
            "joined_at": joined_at,
            "import_id": record.import_id,
            "origin": fill_origin(record.origin),
        }


def create_formatter(
    uow: UnitOfWork, account_id: AccountId, tag_ids: Sequence[Sequence[int]]
) -> AttributeFormatter:
    tag_names = tags.find_tag_names(uow, (each for ids in tag_ids for each in ids))
    return AttributeFormatter(fields.read_own_fields(uow, account_id), tag_names)


def build_changed_columns(
    uow: UnitOfWork,
    mailing_list: MailingList,
    record: Subscription | None,
    changes: AttributeChanges,
) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    if changes.fields:
        new_values = fields.read_own_fields(uow, mailing_list.user_id).parse_values(changes.fields)
        columns["fields"] = fields.merge_values(record.fields if record else {}, new_values)
    if changes.tags is not None or changes.add_tags or changes.remove_tags:
        added_names = [*(changes.tags or ()), *changes.add_tags]
        if len({tags.fold_tag(each) for each in added_names}) > MAX_TAGS_OF_MEMBER:
            raise TAG_TOO_MANY_OF_MEMBER(most=MAX_TAGS_OF_MEMBER)
        # Look up which of the member's tags exist, because the record may contain ids of deleted
        # tags.
        current_tags = (
            tags.find_tag_names(uow, (record.tag_ids if record else []))
            if changes.tags is None
            else {}
        )
        # Limit how long the transaction waits for locks, because a concurrent transaction may be
        # creating the same tags.
        with locks.limit_lock_waits(uow):
            added_ids = tags.find_tag_ids(uow, mailing_list.id, added_names, create=True)
        removed_ids = tags.find_tag_ids(uow, mailing_list.id, changes.remove_tags, create=False)
        new_tag_ids = sorted({*current_tags, *added_ids.values()} - {*removed_ids.values()})
        if len(new_tag_ids) > MAX_TAGS_OF_MEMBER:
            raise TAG_TOO_MANY_OF_MEMBER(most=MAX_TAGS_OF_MEMBER)
        columns["tag_ids"] = new_tag_ids
    return columns


def merge_attributes(
    uow: UnitOfWork,
    source_record: Subscription,
    target_record: Subscription | None,
    target_list_id: int,
) -> dict[str, Any]:
    """Find or create tags with the same names on the target list of a transfer.

    The target list's field values take precedence, unless the member was removed from it.
    """
    records = [source_record] if target_record is None else [source_record, target_record]
    if target_record is not None and target_record.status == SubscriptionStatus.REMOVED:
        records.reverse()
    tag_names = tags.find_tag_names(uow, source_record.tag_ids)
    with locks.limit_lock_waits(uow):
        source_tags = tags.find_tag_ids(uow, target_list_id, tag_names.values(), create=True)
    target_tag_ids = (
        [] if target_record is None else list(tags.find_tag_names(uow, target_record.tag_ids))
    )
    # If the member has too many tags in total, drop tags of the source list.
    tag_ids = list(dict.fromkeys([*target_tag_ids, *sorted(source_tags.values())]))
    values: dict[str, Any] = {}
    for record in records:
        values |= record.fields
    join_times = [record.joined_at for record in records if record.joined_at is not None]
    return {
        "fields": values,
        "tag_ids": sorted(tag_ids[:MAX_TAGS_OF_MEMBER]),
        "joined_at": join_times[-1] if join_times else None,
    }


@dataclass(frozen=True)
class Submission:
    """A person's name and field values from a sign-up form, and where the sign-up came from.

    Anybody can enter another person's address. If the list already has a record of the person, the
    submission therefore changes it only after a confirmation.

    Attributes:
        fields: the values by field id, as text.
        agreed_wording: the question about opens and clicks, or ``None`` without a yes.
    """

    name: str | None = None
    fields: Mapping[str, FieldValue] = field(default_factory=dict)
    language: str | None = None
    origin: Origin = field(default_factory=dict)
    agreed_wording: str | None = None

    @property
    def columns(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "fields": dict(self.fields),
            "language": self.language,
            "origin": dict(self.origin) or None,
        }

    @property
    def unconfirmed_values(self) -> dict[str, Any] | None:
        values = self.columns
        if self.agreed_wording:
            values[AGREED_WORDING] = self.agreed_wording
        return values if any(values.values()) else None


EMPTY_SUBMISSION = Submission()


def read_submission(
    uow: UnitOfWork,
    account_id: AccountId,
    *,
    name: str | None = None,
    values: Mapping[str, object],
    is_text: bool = False,
    required: Collection[MemberField] = (),
) -> Submission:
    """Accept only values of public fields."""
    name = (name or "").strip() or None
    if not values and not required:
        return Submission(name)
    public_fields = fields.read_own_fields(uow, account_id).select_public()
    field_values = fields.merge_values({}, public_fields.parse_values(values, is_text=is_text))
    problems = [
        FieldProblem(f"body.fields.{each.key}", REQUIRED_FIELD_CODE, "is required")
        for each in required
        if str(each.id) not in field_values
    ]
    if problems:
        rules = "; ".join(f"{each.field}: {each.message}" for each in problems)
        raise FIELD_VALUE(rules=rules, problems=tuple(problems))
    return Submission(name, field_values)


def build_confirmed_columns(
    uow: UnitOfWork,
    account_id: AccountId,
    record: Subscription | None,
    unconfirmed_values: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Ignore values of fields that were retired or are no longer public."""
    if not unconfirmed_values:
        return {}
    columns: dict[str, Any] = {
        name: unconfirmed_values[name] for name in ("name", "language") if unconfirmed_values[name]
    }
    public_fields = fields.read_own_fields(uow, account_id).select_public()
    columns["fields"] = fields.merge_values(
        record.fields if record else {},
        public_fields.select_valid_values(unconfirmed_values["fields"]),
    )
    return columns
