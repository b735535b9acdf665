"""Defines the layout of an imported file, which assigns a role to each column."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import NamedTuple

from core.errors import imports as errors
from models import FieldType, MemberField
from services.subscriptions.imports.columns.column_vocabulary import COLUMNS, PRODUCTS
from services.subscriptions.imports.columns.known_words import normalise_word
from services.subscriptions.imports.rows import SuppressionStatus
from services.subscriptions.sign_up_origins import ORIGIN_NAMES

CONSENT_PARTS = ("at", "how", "ip", "url", "wording", "confirmed_at", "confirmed_ip")
# The prefixes of roles. The role of a column, such as ``consent.ip``, ``origin.utm_source`` or
# ``fields.city``, says what the cells of the column contain.
CONSENT_PREFIX = "consent."
ORIGIN_PREFIX = "origin."
FIELD_PREFIX = "fields."
# The role that the API reports for a column that isn't imported.
IGNORED = "ignored"
# The roles that an owner's column mapping can contain. A column mapping can also contain roles such
# as ``fields.city``, which ``ROLES`` doesn't list.
ROLES = (
    *("email", "name", "first_name", "middle_name", "last_name", "tier", "paid_expiry"),
    *("status", "subscribed", "unsubscribed", "confirmed"),
    *("tags", "joined_at", *(CONSENT_PREFIX + part for part in CONSENT_PARTS)),
    *(*(ORIGIN_PREFIX + name for name in ORIGIN_NAMES), "ignore"),
)
MAX_COLUMN_NAMES_SHOWN = 30
MAX_COLUMN_NAME_CHARACTERS_SHOWN = 60

_NAME_PARTS = frozenset({"first_name", "middle_name", "last_name"})
# The roles that a column mapping can assign to several columns.
_SHARED_ROLES = (
    *("ignore", "tags", "status", "subscribed", "unsubscribed", "confirmed"),
    *_NAME_PARTS,
)
_INDEXES = frozenset(map(str, range(10_000)))
# Maps each role to conflicting roles. A role isn't assigned automatically if the owner's column
# mapping contains a conflicting role. If the owner has mapped a column to ``name``, for example, no
# header is recognised as ``first_name``.
_SINGLE_ROLES: Mapping[str, Collection[str]] = {
    "email": (),
    "name": ("first_name", "last_name"),
    "first_name": ("name",),
    "middle_name": ("name",),
    "last_name": ("name",),
    "paid_expiry": (),
    "joined_at": (),
    "joined": ("joined_at",),
    "created_at": ("joined_at",),
    **{CONSENT_PREFIX + part: () for part in CONSENT_PARTS},
    **{ORIGIN_PREFIX + name: () for name in ORIGIN_NAMES},
}
# The roles that several columns of a file can have. Each role is mapped to a related role, or to
# "". A role is not assigned automatically if the owner's column mapping assigns its related role.
# For example, ``tier`` and ``paid`` columns both state the tier. If the owner has mapped a column
# to ``tier``, no header is recognised as ``paid``.
_LIST_ROLES = {"tags": "", "tier": "tier", "paid": "tier"}
JOIN_DATES = ("joined_at", "joined", "created_at")
_DATES = ("paid_expiry", *JOIN_DATES, "consent.at", "consent.confirmed_at")
# Maps each role name in the API to all internal roles that the API reports under that name.
_INTERNAL_ROLES = {
    "tier": ("paid", "active_subscription"),
    "joined_at": ("joined", "created_at"),
}


class ConsentSubject(StrEnum):
    """The subject of a consent column, such as opt-outs or a status.

    All values of ``ConsentSubject`` except ``opted_in`` and ``on_hold`` are also roles in an
    owner's column mapping.
    """

    OPTING_OUT = "unsubscribed"
    CONSENT = "subscribed"
    OPTING_IN = "opted_in"
    CONFIRMATION = "confirmed"
    STATUS = "status"
    HOLDING = "on_hold"

    @property
    def role(self) -> str:
        similar_subjects = {
            ConsentSubject.OPTING_IN: ConsentSubject.CONSENT,
            ConsentSubject.HOLDING: ConsentSubject.STATUS,
        }
        return similar_subjects.get(self, self)


class Basis(Enum):
    """The way in which a consent column was recognised.

    Unless the basis is ``KNOWN``, the cells of the column must confirm that the column is about
    consent.
    """

    KNOWN = "the mapping or the whole header"
    WORDS = "words of the header"
    VALUES = "the cells"
    PRODUCT = "the cells, which are words of one product"


class ConsentColumn(NamedTuple):
    """A column of a file that states whether people may receive mail.

    Attributes:
        reason: the status that "yes" means in an opt-out column, such as "bounced". It is ``None``
            if the header doesn't reveal whether "yes" means an opt-out.
        may_be_tier: whether an unrecognised word in the column may be the name of a tier.
        is_time: whether the header stands for a time, such as "opt-out date". In a column with such
            a header, a date means "yes".
        needs_answer: whether the header isn't enough, so that the column is a consent column only
            if one of its cells contains a known answer. If the header isn't recognised at all, one
            cell must contain a word that always describes a person's mail.
        may_be_number: whether numbers in the column may stand for statuses, because the header
            contains the word "status".
    """

    subject: ConsentSubject
    basis: Basis
    reason: SuppressionStatus | None = None
    may_be_tier: bool = False
    is_time: bool = False
    needs_answer: bool = False
    may_be_number: bool = False
    product: str | None = None
    product_words: frozenset[str] = frozenset()


@dataclass
class ColumnLayout:
    """The role of each column in a file.

    Attributes:
        roles: maps each role in ``column_vocabulary.toml`` to the columns with the role. In a
            column with the role ``paid``, every cell stands for a paid tier, unless the cell is
            empty or means "no". The first date among the columns in ``JOIN_DATES`` is the join
            date.
        consent: maps the indexes of consent columns to ``ConsentColumn`` objects.
        ignored_consent: what consent columns state according to their headers or cells if the owner
            has assigned them a role that means something else.
        unclear: the columns whose header mentions consent but doesn't reveal what "yes" means.
        mapped_fields: maps column indexes to the keys and types of fields in the owner's column
            mapping. The field type is "" if the column mapping contains no field type.
    """

    header: Sequence[str]
    product: str | None = None
    roles: dict[str, list[int]] = field(default_factory=dict)
    mapped: dict[int, str] = field(default_factory=dict)
    consent: dict[int, ConsentColumn] = field(default_factory=dict)
    ignored_consent: dict[int, ConsentColumn] = field(default_factory=dict)
    unclear: set[int] = field(default_factory=set)
    unreadable: set[int] = field(default_factory=set)
    fields: dict[int, MemberField] = field(default_factory=dict)
    mapped_fields: dict[int, tuple[str, str]] = field(default_factory=dict)
    ignored: set[int] = field(default_factory=set)

    def find_columns(self, *roles: str) -> list[int]:
        return [index for role in roles for index in self.roles.get(role, ())]

    def find_first_column(self, role: str) -> int | None:
        return next(iter(self.find_columns(role)), None)

    def add(self, role: str, index: int) -> None:
        self.roles.setdefault(role, []).append(index)

    def assign(self, index: int, role: str) -> None:
        if role == "ignore":
            self.ignored.add(index)
        elif role.startswith(FIELD_PREFIX):
            key, _, type_ = role.removeprefix(FIELD_PREFIX).partition(":")
            self.mapped_fields[index] = key, type_
        elif role not in set(ConsentSubject):
            self.add(role, index)

    def find_date_columns(self) -> list[int]:
        return self.find_columns(*_DATES) + self.find_fields_of_type(FieldType.DATE)

    def find_fields_of_type(self, type_: FieldType) -> list[int]:
        return [index for index, field in self.fields.items() if field.type == type_]

    def describe_roles(self) -> dict[int, str]:
        roles_of: dict[int, list[str]] = {}
        for role, indexes in self._columns_by_role().items():
            for index in dict.fromkeys(indexes):
                roles_of.setdefault(index, []).append(role)
        return {index: ", ".join(roles) for index, roles in roles_of.items()}

    def list_headers_by_role(self) -> dict[str, Sequence[str]]:
        return {
            role: [self.header[index] for index in indexes]
            for role, indexes in self._columns_by_role().items()
        }

    def _columns_by_role(self) -> dict[str, list[int]]:
        columns = {role: self.find_columns(role, *_INTERNAL_ROLES.get(role, ())) for role in ROLES}
        for index in self.consent:
            columns[self.mapped.get(index, "status")].append(index)
        columns |= {FIELD_PREFIX + field.key: [index] for index, field in self.fields.items()}
        return {role: indexes for role, indexes in columns.items() if indexes}


def detect_layout(header: Sequence[str], mapping: Mapping[str, str] | None) -> ColumnLayout:
    """Return the layout for a header, without the consent columns, which the caller adds later."""
    mapped: dict[int, str] = {}
    for column, role in (mapping or {}).items():
        _check_role(role, mapped.values())
        mapped[find_column(header, column)] = role
    words = {normalise_word(name) for name in header}
    product = next((product for product, headers in PRODUCTS if headers <= words), None)
    layout = ColumnLayout(header, product, mapped=mapped)
    for index, role in mapped.items():
        layout.assign(index, role)
    mapped_roles = frozenset(mapped.values())
    for index, name in enumerate(header):
        if index not in mapped:
            _assign_by_header(layout, normalise_word(name), index, mapped_roles)
    return layout


def find_column(header: Sequence[str], column: str) -> int:
    """Return the index of the column that a column mapping identifies by header or index.

    Raises ``import.mapping_column``.
    """
    if column in header:
        return header.index(column)
    word = normalise_word(column)
    for index, name in enumerate(header):
        if name.strip() == column.strip() or (word and normalise_word(name) == word):
            return index
    if column in _INDEXES and int(column) < len(header):
        return int(column)
    beginning = column[:MAX_COLUMN_NAME_CHARACTERS_SHOWN]
    raise errors.IMPORT_MAPPING_COLUMN(column=beginning, columns=describe_columns(header))


def describe_columns(header: Sequence[str]) -> str:
    if not header:
        return "There are no columns."
    names = [
        repr(name[:MAX_COLUMN_NAME_CHARACTERS_SHOWN]) for name in header[:MAX_COLUMN_NAMES_SHOWN]
    ]
    more = f" and {len(header) - len(names)} more" if len(header) > len(names) else ""
    return f"The columns are: {', '.join(names)}{more}."


def _check_role(role: str, earlier_roles: Collection[str]) -> None:
    """Raise ``import.mapping_role`` for an unknown role, or a role that can't be assigned twice."""
    if role not in ROLES and not role.startswith(FIELD_PREFIX):
        names = ", ".join((*ROLES, "fields.<key>", "fields.<key>:<type>"))
        raise errors.IMPORT_MAPPING_ROLE(role=role[:MAX_COLUMN_NAME_CHARACTERS_SHOWN], roles=names)
    # In a role such as ``fields.city:text``, a colon separates the field's key from the field's
    # type.
    name, _, _ = role.partition(":")
    if name not in _SHARED_ROLES and name in [each.partition(":")[0] for each in earlier_roles]:
        raise errors.IMPORT_MAPPING_ROLE_TWICE(role=name)


def _assign_by_header(
    layout: ColumnLayout, word: str, index: int, mapped_roles: frozenset[str]
) -> None:
    """A role that only one column can have is assigned to the first matching column. Several
    columns can contain the same part of a name, such as the last name.
    """
    for role, excluding_roles in _SINGLE_ROLES.items():
        is_free = not layout.find_columns(role) or (
            role in _NAME_PARTS and role not in mapped_roles
        )
        if word in COLUMNS[role] and is_free and mapped_roles.isdisjoint(excluding_roles):
            layout.add(role, index)
            return
    if word in COLUMNS["active_subscription"] and "tier" not in mapped_roles:
        layout.roles["active_subscription"] = [index]
    for role, excluding_role in _LIST_ROLES.items():
        if word in COLUMNS[role] and excluding_role not in mapped_roles:
            layout.add(role, index)
