"""The roles of a file's columns: from the caller's mapping first, then from the header's names."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from core.refusals import imports as refusals
from models import MemberField
from services.mailing.imports.mapping import header_words, products
from services.mailing.imports.mapping.header_words import COLUMNS
from services.mailing.imports.mapping.rows import SuppressionStatus

CONSENT_PARTS = ("at", "how", "ip", "url", "wording", "confirmed_at", "confirmed_ip")
# Before one of its parts, and before the key of a field.
CONSENT_PREFIX, FIELD_PREFIX = "consent.", "fields."
IGNORED = "ignored"
ROLES = (
    *("email", "name", "first_name", "last_name", "tier", "paid_expiry", "status"),
    *("tags", "joined_at", *(CONSENT_PREFIX + part for part in CONSENT_PARTS), "ignore"),
)
MAX_COLUMN_NAMES_SHOWN = 30

_INDEXES = frozenset(map(str, range(10_000)))
# Roles of one column each, and the roles in a mapping that rule the words of a header for them out.
_SINGLE_ROLES = {
    "email": set[str](),
    "name": {"first_name", "last_name"},
    "first_name": {"name"},
    "last_name": {"name"},
    "paid_expiry": set[str](),
    "joined_at": set[str](),
    "created_at": {"joined_at"},
}
# Roles of any number of columns; the words of a header for them; the role in a mapping that rules
# the words out.
_LIST_ROLES = (
    ("subscribed", COLUMNS["subscribed"], None),
    ("deleted", COLUMNS["deleted"], None),
    ("tier", COLUMNS["tier"] | COLUMNS["type"], "tier"),
    ("paid", COLUMNS["paid"], "tier"),
    ("status", COLUMNS["status"] | COLUMNS["type"], "status"),
    ("tags", COLUMNS["tags"], None),
)
_MAPPED_LISTS = ("tier", "status", "tags")


@dataclass
class ColumnLayout:
    """The indexes of the columns of each role.

    Attributes:
        left_at: columns in which any cell but "no" means that the person has this status.
        subscribed: columns of yes or no: whether the person gets mail.
        deleted: columns in which any cell but "no" means that the person is no member.
        paid: columns in which any cell but "no" means a paid tier.
        created_at: when the source made the record, which holds where no ``joined_at`` does.
        consent: columns of what the file says of the person's consent, by the name of each part.
        fields: columns of an owner's fields.
        wanted_fields: columns that the mapping gives to fields, by their keys.
        passed_over: columns that the mapping has ignored.
    """

    header: Sequence[str]
    product: str | None = None
    email: int | None = None
    name: int | None = None
    first_name: int | None = None
    last_name: int | None = None
    tier: list[int] = field(default_factory=list)
    status: list[int] = field(default_factory=list)
    paid_expiry: int | None = None
    left_at: dict[int, SuppressionStatus] = field(default_factory=dict)
    subscribed: list[int] = field(default_factory=list)
    deleted: list[int] = field(default_factory=list)
    paid: list[int] = field(default_factory=list)
    active_subscription: list[int] = field(default_factory=list)
    tags: list[int] = field(default_factory=list)
    joined_at: int | None = None
    created_at: int | None = None
    consent: dict[str, int] = field(default_factory=dict)
    fields: dict[int, MemberField] = field(default_factory=dict)
    wanted_fields: dict[int, str] = field(default_factory=dict)
    passed_over: set[int] = field(default_factory=set)

    def give(self, index: int, role: str) -> None:
        """Give a column the role that the mapping names."""
        if role == "ignore":
            self.passed_over.add(index)
        elif role.startswith(FIELD_PREFIX):
            self.wanted_fields[index] = role.removeprefix(FIELD_PREFIX)
        elif role.startswith(CONSENT_PREFIX):
            self.consent[role.removeprefix(CONSENT_PREFIX)] = index
        elif role in _MAPPED_LISTS:
            getattr(self, role).append(index)
        else:
            setattr(self, role, index)

    def meanings(self) -> dict[int, str]:
        """What each column with a role becomes."""
        found: dict[int, str] = {}
        for role, indexes in self._indexes().items():
            for index in indexes:
                if index is not None and role not in found.get(index, "").split(", "):
                    found[index] = f"{found[index]}, {role}" if index in found else role
        return found

    def described(self) -> dict[str, Sequence[str]]:
        """Each role that some column has, with the names of its columns."""
        return {
            role: names
            for role, indexes in self._indexes().items()
            if (names := [self.header[index] for index in indexes if index is not None])
        }

    def _indexes(self) -> dict[str, list[int | None]]:
        return {
            "email": [self.email],
            "name": [self.name],
            "first_name": [self.first_name],
            "last_name": [self.last_name],
            "tier": [*self.tier, *self.paid, *self.active_subscription],
            "paid_expiry": [self.paid_expiry],
            "status": [*self.status, *self.subscribed, *self.deleted, *self.left_at],
            "tags": [*self.tags],
            "joined_at": [self.joined_at, self.created_at],
            **{CONSENT_PREFIX + part: [index] for part, index in self.consent.items()},
            **{FIELD_PREFIX + each.key: [index] for index, each in self.fields.items()},
        }


def detect_layout(
    header: Sequence[str],
    mapping: Mapping[str, str] | None = None,
    sample: Iterable[Sequence[str]] = (),
) -> ColumnLayout:
    """The layout of a file with this header; ``sample`` holds some of its records.

    Raises ``import.mapping_column`` and ``import.mapping_role``.
    """
    mapped: dict[int, str] = {}
    for column, role in (mapping or {}).items():
        if role not in ROLES and not role.startswith(FIELD_PREFIX):
            raise refusals.IMPORT_MAPPING_ROLE(
                role=role[:60], roles=", ".join((*ROLES, "fields.<key>"))
            )
        if role not in ("ignore", "tags") and role in mapped.values():
            raise refusals.IMPORT_MAPPING_ROLE_TWICE(role=role)
        mapped[index_of(header, column)] = role
    keys = {header_words.key(name) for name in header}
    layout = ColumnLayout(header, products.detect_product(keys))
    for index, role in mapped.items():
        layout.give(index, role)
    chosen = frozenset(mapped.values())
    for index, name in enumerate(header):
        if index not in mapped:
            _assign(layout, header_words.key(name), index, chosen)
    _take_kit_state(layout, [*sample], mapped)
    return layout


def columns_shown(header: Sequence[str]) -> str:
    """A sentence that names the columns, for a refusal."""
    names = [repr(name[:60]) for name in header[:MAX_COLUMN_NAMES_SHOWN]]
    more = f" and {len(header) - len(names)} more" if len(header) > len(names) else ""
    return f"The columns are: {', '.join(names)}{more}." if names else "There are no columns."


def index_of(header: Sequence[str], column: str) -> int:
    """The column that a mapping names so; raises ``import.mapping_column``."""
    if column in header:
        return header.index(column)
    wanted = header_words.key(column)
    for index, name in enumerate(header):
        if name.strip() == column.strip() or (wanted and header_words.key(name) == wanted):
            return index
    if column in _INDEXES and int(column) < len(header):
        return int(column)
    raise refusals.IMPORT_MAPPING_COLUMN(column=column[:60], columns=columns_shown(header))


def _assign(layout: ColumnLayout, key: str, index: int, chosen: frozenset[str]) -> None:
    """Give the column the roles of its name in the header. The first column of a role wins.

    ``chosen``: the roles in the mapping.
    """
    for role, ruled_out_by in _SINGLE_ROLES.items():
        if key in COLUMNS[role] and getattr(layout, role) is None and not chosen & ruled_out_by:
            setattr(layout, role, index)
            return
    for part in CONSENT_PARTS:
        if key in COLUMNS[CONSENT_PREFIX + part] and part not in layout.consent:
            layout.consent[part] = index
            return
    if key in COLUMNS["active_subscription"] and "tier" not in chosen:
        layout.active_subscription = [index]
    if key in header_words.LEFT_AT:
        layout.left_at[index] = header_words.LEFT_AT[key]
    for role, words, ruled_out in _LIST_ROLES:
        if key in words and ruled_out not in chosen:
            getattr(layout, role).append(index)


def _take_kit_state(
    layout: ColumnLayout, sample: Sequence[Sequence[str]], mapped: Mapping[int, str]
) -> None:
    """Take a column named "state" for Kit's status, unless its cells are parts of a country."""
    if "status" in mapped.values():
        return
    for index, name in enumerate(layout.header):
        cells = {record[index] for record in sample if index < len(record)}
        if header_words.key(name) == "state" and index not in mapped and sample:
            if products.are_kit_states(cells) and any(cells):
                layout.status.append(index)
                layout.product = layout.product or "kit"
            elif layout.product == "kit":
                layout.product = None
