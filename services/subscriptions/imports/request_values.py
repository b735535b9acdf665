"""Reads the tier, fields and tags of the members in an API request.

The values follow the rules of the API endpoint that creates a single member. A wrong value and an
unknown name are left out, and the rest of the row is imported.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from models import Tier
from services.subscriptions import tags
from services.subscriptions.fields import InvalidAttribute, OwnFields, normalise_value
from services.subscriptions.imports.rows import NO_EXTRAS, OmittedValue, RowExtras
from services.subscriptions.tags import MAX_TAGS_OF_MEMBER

# The names in a row that every release reads.
PLAIN_NAMES = frozenset({"email", "name"})
# The properties of a member that release 1.1.0 ignores.
VALUE_NAMES = frozenset({"type", "fields", "tags"})
# The maximum number of values that are left out of one row and reported. A job's result names no
# more.
MAX_LEFT_OUT = 100
MAX_NAME_CHARACTERS = 100

Member = Mapping[str, Any]

_KNOWN_NAMES = PLAIN_NAMES | VALUE_NAMES
_TIERS = {tier.value for tier in Tier}


class MemberValues(NamedTuple):
    """The tier of a member, and the fields and tags. ``None`` stands for missing values."""

    tier: str | None
    extras: RowExtras | None

    @property
    def left_out(self) -> Sequence[OmittedValue]:
        return self.extras.left_out if self.extras else ()


NO_VALUES = MemberValues(None, None)


def read_values(member: Member, own_fields: OwnFields) -> MemberValues:
    if member.keys() <= PLAIN_NAMES:
        return NO_VALUES
    left_out = [
        OmittedValue(_show_name(name), "is unknown") for name in member if name not in _KNOWN_NAMES
    ]
    tier = member.get("type")
    if "type" in member and not (isinstance(tier, str) and tier in _TIERS):
        left_out.append(OmittedValue("type", f"must be one of {', '.join(Tier)}"))
        tier = None
    extras = NO_EXTRAS._replace(
        fields=dict(_read_fields(member.get("fields", {}), own_fields, left_out)),
        tags=tuple(_read_tags(member.get("tags"), left_out)),
    )
    extras = extras._replace(left_out=tuple(left_out[:MAX_LEFT_OUT]))
    return MemberValues(tier, None if extras == NO_EXTRAS else extras)


def _read_fields(
    values: object, own_fields: OwnFields, left_out: list[OmittedValue]
) -> Iterator[tuple[str, Any]]:
    if not isinstance(values, dict):
        left_out.append(OmittedValue("fields", "must be an object"))
        return
    for key, value in values.items():
        field = own_fields.by_key.get(key)
        if field is None:
            left_out.append(_omit_field(key, "is not a field of this list's owner"))
            continue
        try:
            stored_value = normalise_value(field, value)
        except InvalidAttribute as error:
            left_out.append(_omit_field(key, str(error)))
        else:
            if stored_value is not None:
                yield str(field.id), stored_value


def _omit_field(key: str, rule: str) -> OmittedValue:
    return OmittedValue(f"fields.{_show_name(key)}", rule)


def _read_tags(names: object, left_out: list[OmittedValue]) -> Iterator[str]:
    if names is None:
        return
    if not isinstance(names, list):
        left_out.append(OmittedValue("tags", "must be an array"))
        return
    if len(names) > MAX_TAGS_OF_MEMBER:
        rule = f"must have at most {MAX_TAGS_OF_MEMBER} items"
        left_out.append(OmittedValue("tags", rule))
        return
    seen = set()
    for index, name in enumerate(names):
        try:
            if not isinstance(name, str):
                raise InvalidAttribute("must be a string")  # noqa: TRY301 - one place for all
            tag = tags.normalise_tag(name)
        except InvalidAttribute as error:
            left_out.append(OmittedValue(f"tags[{index}]", str(error)))
            continue
        key = tags.fold_tag(tag)
        if key not in seen:
            seen.add(key)
            yield tag


def _show_name(name: str) -> str:
    """Shorten a name that the caller chose, and replace characters that a database refuses."""
    start = name[:MAX_NAME_CHARACTERS]
    text = "".join(c if c.isprintable() else "�" for c in start)
    return text if len(name) == len(start) else text + "…"


class RequestColumns:
    """The columns in which the rejected rows of a request are written.

    The columns have headers that imports recognise, so that the owner can import a corrected file.
    """

    def __init__(self, members: Sequence[Member], own_fields: OwnFields) -> None:
        self._names = [name for name in ("type", "tags") if any(name in each for each in members)]
        keys = set[str]()
        for member in members:
            # Keep only the owner's keys, because a request can contain millions of other keys.
            keys |= own_fields.by_key.keys() & _get_fields(member).keys()
        self._keys = [key for key in own_fields.by_key if key in keys]
        self.header = ["email", "name", *self._names, *self._keys]

    @property
    def has_values(self) -> bool:
        return bool(self._names or self._keys)

    def format_cells(self, member: Member) -> list[str]:
        values = _get_fields(member)
        return [
            *(_format_cell(member.get(name)) for name in self._names),
            *(_format_cell(values.get(key)) for key in self._keys),
        ]


def _get_fields(member: Member) -> Member:
    values = member.get("fields")
    return values if isinstance(values, dict) else {}


def _format_cell(value: object) -> str:
    """Return a text unchanged, and any other value as JSON. Imports of files read both."""
    if value is None:
        return ""
    return value if isinstance(value, str) else orjson.dumps(value).decode()
