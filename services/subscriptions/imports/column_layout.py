"""The layout of a file: the role of each column."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import NamedTuple

from core.errors import imports as errors
from models import FieldType, MemberField
from services.subscriptions.imports.column_vocabulary import COLUMNS, PRODUCTS
from services.subscriptions.imports.known_words import key
from services.subscriptions.imports.rows import SuppressionStatus

CONSENT_PARTS = ("at", "how", "ip", "url", "wording", "confirmed_at", "confirmed_ip")

# Before one of its parts, and before the key of a field.
CONSENT_PREFIX, FIELD_PREFIX = "consent.", "fields."

IGNORED = "ignored"

ROLES = (
    *("email", "name", "first_name", "middle_name", "last_name", "tier", "paid_expiry"),
    *("status", "subscribed", "unsubscribed", "confirmed"),
    *("tags", "joined_at", *(CONSENT_PREFIX + part for part in CONSENT_PARTS), "ignore"),
)

# A mapping may give each of these roles to several columns.
_SHARED_ROLES = ("ignore", "tags", "status", "subscribed", "unsubscribed", "confirmed")

MAX_COLUMN_NAMES_SHOWN = 30

_INDEXES = frozenset(map(str, range(10_000)))

# Maps each role that only one column may have to the roles that exclude it. If the owner's mapping
# uses a role that excludes another role, no column gets the excluded role because of its header.
_SINGLE_ROLES: Mapping[str, Collection[str]] = {
    "email": (),
    "name": ("first_name", "last_name"),
    "first_name": ("name",),
    "middle_name": ("name",),
    "last_name": ("name",),
    "paid_expiry": (),
    "joined_at": (),
    "created_at": ("joined_at",),
    **{CONSENT_PREFIX + part: () for part in CONSENT_PARTS},
}

_NAME_PARTS = frozenset({"first_name", "middle_name", "last_name"})

# Maps each role that any number of columns may have to the role that excludes it. If the owner's
# mapping uses the second role, no column gets the first role because of its header.
_LIST_ROLES = {"tags": "", "tier": "tier", "paid": "tier"}

_DATES = ("paid_expiry", "joined_at", "created_at", "consent.at", "consent.confirmed_at")

# Roles that an owner is shown as another.
_ALSO = {
    "tier": ("paid", "active_subscription"),
    "joined_at": ("created_at",),
}


class ConsentSubject(StrEnum):
    """The subject of a consent column.

    Each value except ``opted_in`` is also a role that an owner's mapping can name.
    """

    OPTING_OUT = "unsubscribed"
    CONSENT = "subscribed"
    OPTING_IN = "opted_in"
    CONFIRMATION = "confirmed"
    STATUS = "status"

    @property
    def role(self) -> str:
        return ConsentSubject.CONSENT if self is ConsentSubject.OPTING_IN else self


class Basis(Enum):
    """How a column was recognised as a consent column.

    Unless the basis is ``KNOWN``, the cells of the column must confirm that it is a consent column.
    """

    KNOWN = "the mapping or the whole header"
    WORDS = "words of the header"
    VALUES = "the cells"
    PRODUCT = "the cells, which are words of one product"


class ConsentColumn(NamedTuple):
    """A consent column, which states consent, opting out, confirmation or a status.

    Attributes:
        reason: the status that "yes" stands for in an opt-out column, for example "bounced".
        may_be_tier: whether an unrecognised word in the column is treated as the name of a tier.
        is_time: whether the header names a time. If so, a date in the column means "yes".
        product: the product that exported the file, if all cells are in ``product_words``.
    """

    subject: ConsentSubject
    basis: Basis
    reason: SuppressionStatus | None = None
    may_be_tier: bool = False
    is_time: bool = False
    product: str | None = None
    product_words: frozenset[str] = frozenset()


@dataclass
class ColumnLayout:
    """The role of each column in a file. All attributes refer to columns by index.

    Attributes:
        roles: maps each role of ``column_vocabulary.toml`` to its columns. In a ``paid`` column, a
            cell means a paid tier unless the cell is empty or means "no". ``created_at`` is used if
            ``joined_at`` has no date.
        mapped: maps each column in the owner's mapping to its role.
        consent: the consent columns.
        ignored_consent: consent columns for which the owner's mapping has another role.
        unclear: columns whose header is about consent, but doesn't state what "yes" means.
        fields: columns that hold the owner's fields.
        wanted: maps columns to the fields that the owner's mapping assigned. Each value holds the
            key of the field, and the type of the field or "".
        passed_over: columns that the mapping ignores.
    """

    header: Sequence[str]
    product: str | None = None
    roles: dict[str, list[int]] = field(default_factory=dict)
    mapped: dict[int, str] = field(default_factory=dict)
    consent: dict[int, ConsentColumn] = field(default_factory=dict)
    ignored_consent: dict[int, ConsentColumn] = field(default_factory=dict)
    unclear: set[int] = field(default_factory=set)
    fields: dict[int, MemberField] = field(default_factory=dict)
    wanted: dict[int, tuple[str, str]] = field(default_factory=dict)
    passed_over: set[int] = field(default_factory=set)

    def of(self, *roles: str) -> list[int]:
        """Return the columns of these roles."""
        return [index for role in roles for index in self.roles.get(role, ())]

    def first(self, role: str) -> int | None:
        return next(iter(self.of(role)), None)

    def add(self, role: str, index: int) -> None:
        self.roles.setdefault(role, []).append(index)

    def give(self, index: int, role: str) -> None:
        """Give a column the role that the mapping names."""
        if role == "ignore":
            self.passed_over.add(index)
        elif role.startswith(FIELD_PREFIX):
            key, _, type_ = role.removeprefix(FIELD_PREFIX).partition(":")
            self.wanted[index] = key, type_
        elif role not in set(ConsentSubject):
            self.add(role, index)

    def dates(self) -> list[int]:
        """Return the columns of dates and times."""
        return self.of(*_DATES) + self.of_type(FieldType.DATE)

    def of_type(self, type_: FieldType) -> list[int]:
        return [index for index, each in self.fields.items() if each.type == type_]

    def meanings(self) -> dict[int, str]:
        """Return the meaning of each column that has one."""
        found: dict[int, list[str]] = {}
        for role, indexes in self._shown().items():
            for index in dict.fromkeys(indexes):
                found.setdefault(index, []).append(role)
        return {index: ", ".join(roles) for index, roles in found.items()}

    def described(self) -> dict[str, Sequence[str]]:
        """Return the names of the columns of each role that has some."""
        return {
            role: [self.header[index] for index in indexes]
            for role, indexes in self._shown().items()
        }

    def _shown(self) -> dict[str, list[int]]:
        found = {role: self.of(role, *_ALSO.get(role, ())) for role in ROLES}
        for index in self.consent:
            found[self.mapped.get(index, "status")].append(index)
        found |= {FIELD_PREFIX + each.key: [index] for index, each in self.fields.items()}
        return {role: indexes for role, indexes in found.items() if indexes}


def detect_layout(header: Sequence[str], mapping: Mapping[str, str] | None) -> ColumnLayout:
    """Return the roles of the columns in this header, except the consent columns.

    Raises ``import.mapping_column`` and ``import.mapping_role``.
    """
    mapped: dict[int, str] = {}
    for column, role in (mapping or {}).items():
        if role not in ROLES and not role.startswith(FIELD_PREFIX):
            raise errors.IMPORT_MAPPING_ROLE(
                role=role[:60], roles=", ".join((*ROLES, "fields.<key>", "fields.<key>:<type>"))
            )
        taken, _, _ = role.partition(":")
        if taken not in (*_SHARED_ROLES, *_NAME_PARTS) and taken in [
            each.partition(":")[0] for each in mapped.values()
        ]:
            raise errors.IMPORT_MAPPING_ROLE_TWICE(role=taken)
        mapped[index_of(header, column)] = role
    keys = {key(name) for name in header}
    product = next((product for product, needed in PRODUCTS if needed <= keys), None)
    layout = ColumnLayout(header, product, mapped=mapped)
    for index, role in mapped.items():
        layout.give(index, role)
    chosen = frozenset(mapped.values())
    for index, name in enumerate(header):
        if index not in mapped:
            _assign(layout, key(name), index, chosen)
    return layout


def columns_shown(header: Sequence[str]) -> str:
    """A sentence that names the columns, for an error."""
    names = [repr(name[:60]) for name in header[:MAX_COLUMN_NAMES_SHOWN]]
    more = f" and {len(header) - len(names)} more" if len(header) > len(names) else ""
    return f"The columns are: {', '.join(names)}{more}." if names else "There are no columns."


def index_of(header: Sequence[str], column: str) -> int:
    """The column that a mapping names so; raises ``import.mapping_column``."""
    if column in header:
        return header.index(column)
    wanted = key(column)
    for index, name in enumerate(header):
        if name.strip() == column.strip() or (wanted and key(name) == wanted):
            return index
    if column in _INDEXES and int(column) < len(header):
        return int(column)
    raise errors.IMPORT_MAPPING_COLUMN(column=column[:60], columns=columns_shown(header))


def _assign(layout: ColumnLayout, key: str, index: int, chosen: frozenset[str]) -> None:
    """Assign the column to the roles that match its header.

    Most roles go only to the first matching column. But several columns may hold the same part of a
    person's name, such as the last name. ``chosen``: the roles in the owner's mapping.
    """
    for role, rulers in _SINGLE_ROLES.items():
        is_free = not layout.of(role) or (role in _NAME_PARTS and role not in chosen)
        if key in COLUMNS[role] and is_free and chosen.isdisjoint(rulers):
            layout.add(role, index)
            return
    if key in COLUMNS["active_subscription"] and "tier" not in chosen:
        layout.roles["active_subscription"] = [index]
    for role, ruler in _LIST_ROLES.items():
        if key in COLUMNS[role] and ruler not in chosen:
            layout.add(role, index)
