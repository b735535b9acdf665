"""The fields and tags of a member: read for callers, and changed as they ask."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from core.errors import FieldProblem
from core.errors.mailing import FIELD_VALUE, TAG_TOO_MANY_OF_MEMBER
from models import MailingList, MemberField, Subscription, SubscriptionStatus
from services.subscriptions import fields, tags
from services.subscriptions.fields import FieldValue, OwnFields
from services.subscriptions.members import locks
from services.subscriptions.tags import MAX_TAGS_OF_MEMBER
from storage.unit_of_work import UnitOfWork


@dataclass(frozen=True)
class GivenAttributes:
    """The changes that a caller asks for.

    Attributes:
        fields: by key; ``None`` removes a value, and what is not named stays.
        tags: all that the member is to have; ``None`` for those that they have.
        add_tags: beside these.
        remove_tags: after all that.
    """

    fields: Mapping[str, object] = field(default_factory=dict)
    tags: Sequence[str] | None = None
    add_tags: Sequence[str] = ()
    remove_tags: Sequence[str] = ()


class ShownAttributes:
    """The fields and the names of tags that some members need, read once for all of them."""

    def __init__(self, own: OwnFields, names: Mapping[int, str]) -> None:
        self._own = own
        self._names = names

    def of(self, values: Mapping[str, Any], tag_ids: Sequence[int]) -> dict[str, Any]:
        """``fields`` and ``tags`` as the owner sees them, of what a row stores."""
        named = [self._names[each] for each in tag_ids if each in self._names]
        return {"fields": self._own.shown(values), "tags": sorted(named, key=tags.fold_tag)}

    def of_record(self, record: Subscription) -> dict[str, Any]:
        """All that an owner sees of the record beside what its person sees too."""
        shown = self.of(record.fields, record.tag_ids)
        joined_at = record.joined_at or record.created_at
        return {**shown, "joined_at": joined_at, "import_id": record.import_id}


def read_attributes(
    uow: UnitOfWork, owner_id: int, tag_ids: Sequence[Sequence[int]]
) -> ShownAttributes:
    """For members of the owner's lists, who have these tags."""
    names = tags.find_tag_names(uow, (each for some in tag_ids for each in some))
    return ShownAttributes(fields.read_own_fields(uow, owner_id), names)


def columns(
    uow: UnitOfWork, mailing_list: MailingList, record: Subscription | None, given: GivenAttributes
) -> dict[str, Any]:
    """The columns of the record that are to be set; ``None`` stands for a record to be made.

    Raises ``field.value``, ``tag.too_many``, ``tag.too_many_of_member`` and ``list.busy``.
    """
    found: dict[str, Any] = {}
    if given.fields:
        changes = fields.read_own_fields(uow, mailing_list.user_id).read(given.fields)
        found["fields"] = fields.merge_values(record.fields if record else {}, changes)
    if given.tags is not None or given.add_tags or given.remove_tags:
        wanted = [*(given.tags or ()), *given.add_tags]
        if len({tags.fold_tag(each) for each in wanted}) > MAX_TAGS_OF_MEMBER:
            raise TAG_TOO_MANY_OF_MEMBER(most=MAX_TAGS_OF_MEMBER)
        # Ids of tags that were deleted go.
        kept = (
            tags.find_tag_names(uow, (record.tag_ids if record else []))
            if given.tags is None
            else {}
        )
        # Another transaction may make the same tags just now.
        with locks.limit_lock_waits(uow):
            made = tags.find_tag_ids(uow, mailing_list.id, wanted, make=True)
        gone = tags.find_tag_ids(uow, mailing_list.id, given.remove_tags, make=False)
        after = sorted({*kept, *made.values()} - {*gone.values()})
        if len(after) > MAX_TAGS_OF_MEMBER:
            raise TAG_TOO_MANY_OF_MEMBER(most=MAX_TAGS_OF_MEMBER)
        found["tag_ids"] = after
    return found


def merged(
    uow: UnitOfWork, leaving: Subscription, there: Subscription | None, list_id: int
) -> dict[str, Any]:
    """The columns of a record that another list's record goes into, or of a new one on this list.

    Both lists have one owner, so fields stay what they are; tags are this list's of the same names.
    Where both records have a value, the one there stays, unless its member had been removed: such a
    record tells the past. Raises ``tag.too_many`` and ``list.busy``.
    """
    both = [leaving] if there is None else [leaving, there]
    if there is not None and there.status == SubscriptionStatus.REMOVED:
        both.reverse()
    names = tags.find_tag_names(uow, leaving.tag_ids)
    with locks.limit_lock_waits(uow):
        brought = tags.find_tag_ids(uow, list_id, names.values(), make=True)
    had = [] if there is None else list(tags.find_tag_names(uow, there.tag_ids))
    # A member who had as many tags already gets no other.
    tag_ids = list(dict.fromkeys([*had, *sorted(brought.values())]))[:MAX_TAGS_OF_MEMBER]
    values: dict[str, Any] = {}
    for each in both:
        values |= each.fields
    joined = [each.joined_at for each in both if each.joined_at is not None]
    return {
        "fields": values,
        "tag_ids": sorted(tag_ids),
        "joined_at": joined[-1] if joined else None,
    }


@dataclass(frozen=True)
class Submission:
    """The data that a person submits with a sign-up: a name, and values of fields.

    Anyone can enter any address into a sign-up form. The submitted data is therefore applied at
    once only if the person has no subscription to the list yet. For an existing subscription, the
    data is stored with the mailed token, and is applied when the person confirms with this token.

    Attributes:
        fields: stored values, by the ids of fields as text.
        language: that of the page on which the person subscribed.
    """

    name: str | None = None
    fields: Mapping[str, FieldValue] = field(default_factory=dict)
    language: str | None = None

    @property
    def columns(self) -> dict[str, Any]:
        """Return the columns of a new record."""
        return {"name": self.name, "fields": dict(self.fields), "language": self.language}

    @property
    def waiting(self) -> dict[str, Any] | None:
        """As it is stored until the person confirms."""
        return self.columns if self.name or self.fields or self.language else None


NOTHING = Submission()
# The code of the problem of a required field.
MISSING = "field.required"


def read_submission(
    uow: UnitOfWork,
    owner_id: int,
    *,
    name: str | None = None,
    values: Mapping[str, object],
    is_text: bool = False,
    required: Collection[MemberField] = (),
) -> Submission:
    """The submission of a form to a list of this owner; ``is_text`` where all values are texts.

    Raises ``field.value``, for a field that is not public as for one that is not there, and for a
    required one without a value.
    """
    name = (name or "").strip() or None
    if not values and not required:
        return Submission(name)
    found = fields.merge_values(
        {}, fields.read_own_fields(uow, owner_id).public().read(values, is_text=is_text)
    )
    missing = [
        FieldProblem(f"body.fields.{each.key}", MISSING, "is required")
        for each in required
        if str(each.id) not in found
    ]
    if missing:
        rules = "; ".join(f"{each.field}: {each.message}" for each in missing)
        raise FIELD_VALUE(rules=rules, problems=tuple(missing))
    return Submission(name, found)


def confirmed(
    uow: UnitOfWork, owner_id: int, record: Subscription | None, waited: Mapping[str, Any] | None
) -> dict[str, Any]:
    """The columns that a record gets of what ``Submission.waiting`` stored, now that it may.

    A field that the owner closed or retired meanwhile is left out.
    """
    if not waited:
        return {}
    public = fields.read_own_fields(uow, owner_id).public().of_ids(waited["fields"])
    before = record.fields if record else {}
    given = {"name": waited["name"]} if waited["name"] else {}
    spoken = {"language": waited["language"]} if waited["language"] else {}
    return {**given, **spoken, "fields": fields.merge_values(before, public)}
