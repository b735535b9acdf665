"""What a filter may compare: the names, the kind of each, and the operators of each kind."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from models import FieldType, MemberField, SubscriptionStatus, Tier


class Operator(StrEnum):
    IS = "is"
    IS_NOT = "is_not"
    IN = "in"
    CONTAINS = "contains"
    BEGINS = "begins"
    BEFORE = "before"
    AFTER = "after"
    NOT_BEFORE = "at_least"
    NOT_AFTER = "at_most"
    EXISTS = "exists"


class ValueKind(StrEnum):
    """What a name is compared with."""

    WORD = "word"  # one of a few
    TEXT = "text"
    LABEL = "label"  # a text that is compared as a whole: a source, a tag, a choice
    NUMBER = "number"
    ID = "id"
    BOOLEAN = "boolean"
    MOMENT = "moment"  # or a day in UTC
    DAY = "day"


_EQUAL = frozenset({Operator.IS, Operator.IS_NOT})
_ORDERED = frozenset({Operator.BEFORE, Operator.AFTER, Operator.NOT_BEFORE, Operator.NOT_AFTER})
# Beside these, ``exists`` goes with each name that a member may have no value of.
_OPERATORS: Mapping[ValueKind, frozenset[Operator]] = {
    ValueKind.WORD: _EQUAL | {Operator.IN},
    ValueKind.TEXT: _EQUAL | {Operator.IN, Operator.CONTAINS, Operator.BEGINS},
    ValueKind.LABEL: _EQUAL | {Operator.IN},
    ValueKind.NUMBER: _EQUAL | {Operator.IN, Operator.NOT_BEFORE, Operator.NOT_AFTER},
    ValueKind.ID: _EQUAL | {Operator.IN},
    ValueKind.BOOLEAN: _EQUAL,
    ValueKind.MOMENT: _EQUAL | _ORDERED,
    ValueKind.DAY: _EQUAL | _ORDERED | {Operator.IN},
}
_KINDS: Mapping[str, ValueKind] = {
    FieldType.TEXT: ValueKind.TEXT,
    FieldType.NUMBER: ValueKind.NUMBER,
    FieldType.DATE: ValueKind.DAY,
    FieldType.BOOLEAN: ValueKind.BOOLEAN,
    # A choice that was taken away stays the value of the members who have it.
    FieldType.CHOICE: ValueKind.LABEL,
}


@dataclass(frozen=True)
class FilterName:
    """One name that a condition may have.

    Attributes:
        is_optional: whether a member may have no value of it.
        words: the values there are, of a name whose kind is ``WORD``.
        field_id: of an owner's field.
    """

    name: str
    kind: ValueKind
    is_optional: bool = False
    words: tuple[str, ...] = ()
    field_id: int | None = None

    @property
    def operators(self) -> list[Operator]:
        """Those that go with it, in the order in which documents have them."""
        able = _OPERATORS[self.kind] | ({Operator.EXISTS} if self.is_optional else set())
        return [operator for operator in Operator if operator in able]


STATUS = FilterName("status", ValueKind.WORD, words=tuple(SubscriptionStatus))
TAG = FilterName("tag", ValueKind.LABEL, is_optional=True)
# Those that every list has.
COMMON = (
    STATUS,
    FilterName("type", ValueKind.WORD, words=tuple(Tier)),
    FilterName("email", ValueKind.TEXT, is_optional=True),
    FilterName("name", ValueKind.TEXT, is_optional=True),
    FilterName("source", ValueKind.LABEL),
    FilterName("import_id", ValueKind.ID, is_optional=True),
    FilterName("email_enabled", ValueKind.BOOLEAN),
    FilterName("joined_at", ValueKind.MOMENT),
    FilterName("created_at", ValueKind.MOMENT),
    FilterName("updated_at", ValueKind.MOMENT),
    TAG,
)


def known_names(fields: Iterable[MemberField]) -> dict[str, FilterName]:
    """All names, with those of an owner's fields: ``fields.`` and the field's key."""
    own = (_of_field(field) for field in fields)
    return {each.name: each for each in (*COMMON, *own)}


def _of_field(field: MemberField) -> FilterName:
    name, kind = f"fields.{field.key}", _KINDS[field.type]
    return FilterName(name, kind, is_optional=True, field_id=field.id)
