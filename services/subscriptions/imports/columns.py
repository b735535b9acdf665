"""The rows that a reader of files yields."""

import re
import tomllib
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import orjson

from core.errors import imports as errors
from models import FieldType, ImportKind, MemberField
from services.subscriptions.fields import FieldValue


class SuppressionStatus(StrEnum):
    """The status of a person in a row of a file."""

    WANTED = "wanted"
    MAY_PASS = "may_pass"  # noqa: S105 - a name
    NOT_SUBSCRIBED = "not_subscribed"
    UNKNOWN = "unknown"
    UNSUBSCRIBED = "unsubscribed"
    CLEANED = "cleaned"
    BOUNCED = "bounced"
    COMPLAINED = "complained"


# The statuses that make a row an opt-out.
OPT_OUTS = frozenset(
    {
        SuppressionStatus.UNSUBSCRIBED,
        SuppressionStatus.CLEANED,
        SuppressionStatus.BOUNCED,
        SuppressionStatus.COMPLAINED,
    }
)
# If a person has several rows, the row with the strictest status counts.
STRICTNESS = {
    SuppressionStatus.WANTED: 0,
    SuppressionStatus.MAY_PASS: 1,
    SuppressionStatus.NOT_SUBSCRIBED: 1,
    SuppressionStatus.UNKNOWN: 2,
    SuppressionStatus.UNSUBSCRIBED: 3,
    SuppressionStatus.CLEANED: 4,
    SuppressionStatus.BOUNCED: 5,
    SuppressionStatus.COMPLAINED: 6,
}


class LeftOut(NamedTuple):
    """A value that a row was taken over without: its column, the rule and, if any, the cell."""

    column: str
    rule: str
    cell: str | None = None

    def __str__(self) -> str:
        return f"{self.column}: {self.rule}" + ("" if self.cell is None else f", not {self.cell!r}")


class RowExtras(NamedTuple):
    """The values of a row beyond name, tier and status. Most files have none of it.

    Attributes:
        fields: values by the field's id as text.
        tags: names of tags, none of them twice.
        joined_at: when the person joined the list that the file comes from, in ISO 8601.
        claim: what the file says of the person's consent, by the name of each part.
        left_out: the values that could not be taken over.
    """

    fields: Mapping[str, FieldValue]
    tags: Sequence[str]
    joined_at: str | None
    claim: Mapping[str, str]
    left_out: Sequence[LeftOut]


NO_EXTRAS = RowExtras({}, (), None, {}, ())


class AbsentCell(str):
    """The cell of a column that a record doesn't have. It is empty, but clears nothing."""

    __slots__ = ()


ABSENT = AbsentCell()


class RowProblem(NamedTuple):
    """Why a row with an address is not imported: the error code and its sentence."""

    code: str
    reason: str


class MemberRow(NamedTuple):
    """A member as the file names them. The address is trimmed, but not yet checked.

    Attributes:
        line: the physical line where the record begins, from 1.
        tier: free, silver or gold; ``None`` when the file names none.
        cells: the original columns in the order of the header; a record may have fewer or more.
        clears_expiry: whether the file has a cell for the end, and the cell is empty.
        problem: why the row is not imported. Such a row still counts for its address.
    """

    line: int
    email: str
    name: str
    tier: str | None
    paid_expiry: datetime | None
    suppression: SuppressionStatus
    cells: Sequence[str]
    extras: RowExtras | None = None
    problem: RowProblem | None = None
    clears_expiry: bool = False

    @property
    def left(self) -> bool:
        return self.suppression in OPT_OUTS


class RejectedRecord(NamedTuple):
    """A record that is not imported, and why. ``cells`` are those that could be read."""

    line: int
    code: str
    reason: str
    cells: Sequence[str]


@dataclass(frozen=True)
class FileDescription:
    """The recognised form of a file.

    ``product``: the one whose export the file is, if its header shows it. ``columns``: each role,
    with the names of the columns that have it.
    """

    container: str  # plain, gzip or zip
    format: str  # csv or jsonl
    encoding: str
    delimiter: str | None
    header_line: int | None
    product: str | None
    columns: Mapping[str, Sequence[str]]


MAX_WORD_CHARACTERS = 60

_NOT_A_WORD = re.compile(r"[\W_]+")
_WORDS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))


@lru_cache(4096)
def _folded(text: str) -> str:
    plain = unicodedata.normalize("NFKD", text.casefold())
    kept = "".join(character for character in plain if not unicodedata.combining(character))
    return _NOT_A_WORD.sub("", kept)


def key(text: str) -> str:
    """``text`` as it is looked up: "E-mail Address " and "email_address" have the same key."""
    # The cache holds short words alone, so that its size is bounded.
    return _folded(text) if len(text) <= MAX_WORD_CHARACTERS else ""


def _keys(words: Iterable[str]) -> frozenset[str]:
    return frozenset(map(key, words))


def _by_key(table: str) -> dict[str, str]:
    return {key(word): meaning for meaning, words in _WORDS[table].items() for word in words}


COLUMNS = {role: _keys(words) for role, words in _WORDS["columns"].items()}
PRODUCTS = [
    (product, _keys(names)) for product, signs in _WORDS["products"].items() for names in signs
]
# Columns of our own exports that say nothing of a person.
OWN_COLUMNS = _keys(_WORDS["own_columns"])
LEFT_AT = {word: SuppressionStatus(status) for word, status in _by_key("left_at").items()}
# The person is neither a member nor opted out: they are not imported, and may join.
NOT_SUBSCRIBED = None
STATUSES = {
    word: NOT_SUBSCRIBED if status == "not_subscribed" else SuppressionStatus(status)
    for word, status in _by_key("statuses").items()
}
# These products have a fixed list of states: an unknown word may mean that the person left.
_OWN_STATUSES = {
    product: {key(word): SuppressionStatus(status) for word, status in words.items()}
    for product, words in _WORDS["own_statuses"].items()
}
_KIT_STATES = _keys(_WORDS["kit_states"])
TIERS = _by_key("tiers")
BOOLEANS = {word: meaning == "yes" for word, meaning in _by_key("booleans").items()}
_NO = _keys(_WORDS["no"]) | {""}


def is_no(cell: str) -> bool:
    """Return whether a cell says no, is empty, or is a date of zeros alone."""
    return len(cell) <= MAX_WORD_CHARACTERS and key(cell).lstrip("0") in _NO


class UnknownStatus(Exception):
    """A status column of a product has an unknown word."""


def suppression_status(product: str | None, word: str) -> SuppressionStatus | None:
    """The status that ``word`` means; ``None``: not subscribed, and not opted out."""
    found = key(word)
    own = _OWN_STATUSES.get(product or "", {})
    if found in own:
        return own[found]
    if own and found and found not in STATUSES:
        raise UnknownStatus(word)
    return STATUSES.get(found, SuppressionStatus.WANTED)


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
# Roles of one column, each with the roles of a mapping that rule the words of a header for it out.
_SINGLE_ROLES: Mapping[str, Collection[str]] = {
    "email": (),
    "name": ("first_name", "last_name"),
    "first_name": ("name",),
    "last_name": ("name",),
    "paid_expiry": (),
    "joined_at": (),
    "created_at": ("joined_at",),
    **{CONSENT_PREFIX + part: () for part in CONSENT_PARTS},
}
# Roles of any number of columns, each with the role of a mapping that rules its words out.
_LIST_ROLES = {
    **dict.fromkeys(("subscribed", "deleted", "tags"), ""),
    "tier": "tier",
    "paid": "tier",
    "status": "status",
}
_DATES = ("paid_expiry", "joined_at", "created_at", "consent.at", "consent.confirmed_at")
# Roles that an owner is shown as another.
_ALSO = {
    "tier": ("paid", "active_subscription"),
    "status": ("subscribed", "deleted", "left_at"),
    "joined_at": ("created_at",),
}


@dataclass
class ColumnLayout:
    """The columns of each role, by their indexes.

    Attributes:
        roles: the columns by the roles of ``columns.toml``: of ``left_at``, ``deleted`` and
            ``paid`` any cell but "no" counts, and ``created_at`` where no ``joined_at`` does.
        fields: columns of an owner's fields.
        wanted: columns that the mapping gives to fields: the field's key, and its type or "".
        passed_over: columns that the mapping has ignored.
    """

    header: Sequence[str]
    product: str | None = None
    roles: dict[str, list[int]] = field(default_factory=dict)
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
        else:
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
        found |= {FIELD_PREFIX + each.key: [index] for index, each in self.fields.items()}
        return {role: indexes for role, indexes in found.items() if indexes}


def detect_layout(
    header: Sequence[str],
    mapping: Mapping[str, str] | None,
    sample: Iterable[Sequence[str]],
) -> ColumnLayout:
    """The layout of a file with this header; ``sample`` holds some of its records.

    Raises ``import.mapping_column`` and ``import.mapping_role``.
    """
    mapped: dict[int, str] = {}
    for column, role in (mapping or {}).items():
        if role not in ROLES and not role.startswith(FIELD_PREFIX):
            raise errors.IMPORT_MAPPING_ROLE(
                role=role[:60], roles=", ".join((*ROLES, "fields.<key>", "fields.<key>:<type>"))
            )
        taken, _, _ = role.partition(":")
        if taken not in ("ignore", "tags") and taken in [
            each.partition(":")[0] for each in mapped.values()
        ]:
            raise errors.IMPORT_MAPPING_ROLE_TWICE(role=taken)
        mapped[index_of(header, column)] = role
    keys = {key(name) for name in header}
    product = next((product for product, needed in PRODUCTS if needed <= keys), None)
    layout = ColumnLayout(header, product)
    for index, role in mapped.items():
        layout.give(index, role)
    chosen = frozenset(mapped.values())
    for index, name in enumerate(header):
        if index not in mapped:
            _assign(layout, key(name), index, chosen)
    _take_kit_state(layout, [*sample], mapped)
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
    """Give the column the roles of its name in the header. The first column of a role wins.

    ``chosen``: the roles in the mapping.
    """
    for role, rulers in _SINGLE_ROLES.items():
        if key in COLUMNS[role] and not layout.of(role) and chosen.isdisjoint(rulers):
            layout.add(role, index)
            return
    if key in COLUMNS["active_subscription"] and "tier" not in chosen:
        layout.roles["active_subscription"] = [index]
    if key in LEFT_AT:
        layout.add("left_at", index)
    for role, ruler in _LIST_ROLES.items():
        if key in COLUMNS[role] and ruler not in chosen:
            layout.add(role, index)


def _take_kit_state(
    layout: ColumnLayout, sample: Sequence[Sequence[str]], mapped: Mapping[int, str]
) -> None:
    """Take a column named "state" for Kit's status, unless its cells are parts of a country."""
    if "status" in mapped.values():
        return
    for index, name in enumerate(layout.header):
        cells = {record[index] for record in sample if index < len(record)}
        if key(name) == "state" and index not in mapped and sample:
            if {key(cell) for cell in cells} <= _KIT_STATES and any(cells):
                layout.add("status", index)
                layout.product = layout.product or "kit"
            elif layout.product == "kit":
                layout.product = None


_UNLESS_NAMED = {
    ImportKind.SUPPRESSIONS: SuppressionStatus.UNSUBSCRIBED,
    ImportKind.BOUNCES: SuppressionStatus.BOUNCED,
    ImportKind.COMPLAINTS: SuppressionStatus.COMPLAINED,
}
_REASON_COLUMNS = _keys(_WORDS["suppression_columns"]["reason"])
_CODE_COLUMNS = _keys(_WORDS["suppression_columns"]["code"])
# A failure that may pass at the next try suppresses no address.
MAY_PASS = None
_MEANINGS = {
    word: MAY_PASS if status == "may_pass" else SuppressionStatus(status)
    for word, status in _by_key("suppressions").items()
}
_WORST_FIRST = list(dict.fromkeys(filter(None, _MEANINGS.values())))
# Codes of SMTP, such as 550 and 5.1.1: a 4 at the beginning is no last word.
_CODE = re.compile(r"([45])(?:[0-9]{2}|(?:\.[0-9]{1,3}){2})\Z")
_BY_CODE = {"5": SuppressionStatus.BOUNCED, "4": MAY_PASS}


def suppressed(
    rows: Iterable[MemberRow | RejectedRecord], header: Sequence[str], kind: ImportKind
) -> Iterator[MemberRow | RejectedRecord]:
    """Return the rows, each with the reason why the person gets no mail.

    A row whose reason may pass has a ``problem``.
    """
    keys = [key(name) for name in header]
    reasons = [index for index, each in enumerate(keys) if each in _REASON_COLUMNS]
    codes = [index for index, each in enumerate(keys) if each in _CODE_COLUMNS]
    for row in rows:
        if isinstance(row, RejectedRecord) or row.problem is not None:
            yield row
            continue
        # Without a header, and so without names, the word stands somewhere.
        named = [row.cells[index] for index in reasons if index < len(row.cells)]
        words = (key(_word(cell)) for cell in (named or row.cells))
        found = {_MEANINGS[word] for word in words if word in _MEANINGS}
        coded = (row.cells[index] for index in codes if index < len(row.cells))
        matches = (_CODE.match(cell.strip()) for cell in coded)
        found |= {_BY_CODE[match[1]] for match in matches if match}
        if row.left:
            found.add(row.suppression)
        if found == {MAY_PASS}:
            reason = "The file says that mail may reach this address again."
            problem = RowProblem("row.may_pass", reason)
            yield row._replace(suppression=SuppressionStatus.MAY_PASS, problem=problem)
            continue
        worst = next((each for each in _WORST_FIRST if each in found), _UNLESS_NAMED[kind])
        yield row._replace(suppression=worst)


def _word(cell: str) -> str:
    """The cell; of an object, which Brevo has for a reason, its code."""
    if len(cell) > MAX_WORD_CHARACTERS * 10 or not cell.startswith("{"):
        return cell
    try:
        found = orjson.loads(cell)
    except orjson.JSONDecodeError:
        return cell
    code = found.get("code")
    return code if isinstance(code, str) else ""
