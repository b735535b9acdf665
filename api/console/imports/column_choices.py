"""Reads and shows which role the owner chose for each column of an imported file.

The role of a column states what the column contains, such as the name or the e-mail address.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from api.console.typed_forms import build_field_error
from core.errors import DomainError
from models import MemberField, MemberImport
from services.subscriptions.imports.columns import column_layout, field_columns
from services.subscriptions.imports.columns.column_forms import DecimalMark
from services.subscriptions.imports.columns.column_layout import (
    CONSENT_PARTS,
    CONSENT_PREFIX,
    FIELD_PREFIX,
    IGNORED,
    ORIGIN_PREFIX,
    ConsentSubject,
)
from services.subscriptions.imports.columns.dates import DateOrder
from services.subscriptions.sign_up_origins import ORIGIN_NAMES

MAX_NAME_CHARACTERS = 80
# Choices in a column's select box that aren't roles.
IGNORE = "ignore"
NEW_FIELD = "new"
AS_RECOGNISED = ""
FIELD_TYPES = dict(
    zip(field_columns.NEW_TYPES, ("text", "number", "date", "yes or no"), strict=True)
)
# Maps each choice that creates a member field to its label in a column's select box.
_TYPED_FIELDS = {
    f"{NEW_FIELD}:{type_}": f"Create a field ({words})" for type_, words in FIELD_TYPES.items()
}
_FORMAT_LABELS = {
    DateOrder.DAY_FIRST: "Dates with the day first",
    DateOrder.MONTH_FIRST: "Dates with the month first",
    DecimalMark.POINT: "Numbers with a decimal point",
    DecimalMark.COMMA: "Numbers with a decimal comma",
}
# The roles that an owner may choose for more than one column of a file.
_REPEATABLE_ROLES = (
    *(IGNORE, NEW_FIELD, *_TYPED_FIELDS, AS_RECOGNISED, "tags", "tier", *ConsentSubject),
    "first_name",
    "middle_name",
    "last_name",
)
_ROLE_LABELS = {
    "email": "E-mail address",
    "name": "Name",
    "first_name": "First name",
    "middle_name": "Middle name",
    "last_name": "Last name",
    "tier": "Tier",
    "paid_expiry": "Paid until",
    "status": "Status",
    "subscribed": "Subscribed (yes or no)",
    "unsubscribed": "Opted out (yes or no)",
    "confirmed": "Confirmed (yes or no)",
    "tags": "Tags",
    "joined_at": "Joined on",
    "consent.at": "Consent: date",
    "consent.how": "Consent: method",
    "consent.ip": "Consent: IP address",
    "consent.url": "Consent: URL",
    "consent.wording": "Consent: wording",
    "consent.confirmed_at": "Consent: confirmed on",
    "consent.confirmed_ip": "Consent: confirmed from IP",
    "origin.utm_source": "Origin: source",
    "origin.utm_medium": "Origin: medium",
    "origin.utm_campaign": "Origin: campaign",
    "origin.utm_term": "Origin: term",
    "origin.utm_content": "Origin: content",
    "origin.referrer": "Origin: website",
    "origin.landing": "Origin: page",
    IGNORED: "Don’t import",
}
# Groups the roles in a column's select box.
_ROLE_GROUPS = {
    "Person": ("email", "name", "first_name", "middle_name", "last_name"),
    "Membership": ("tags", "joined_at", "tier", "paid_expiry"),
    "Permission to send mail": ("status", "subscribed", "unsubscribed", "confirmed"),
    "Consent": tuple(CONSENT_PREFIX + part for part in CONSENT_PARTS),
    "Origin of the sign-up": tuple(ORIGIN_PREFIX + name for name in ORIGIN_NAMES),
}


@dataclass(frozen=True)
class ColumnChoice:
    """A column of an imported file and its role.

    Attributes:
        becomes: the role that the dry run recognised, or several roles separated by commas.
        creates: the type of the member field that the import creates for the column, or ``None``.
        written: the label of the column's date or number format, or ``None`` if unknown.
        chosen: the choice in the column's select box, such as a role or ``ignore``.
        meaning: the label of the recognised role, or the labels of several roles.
        ignored_opt_outs: the number of opt-outs that the chosen role ignores, or ``None`` if the
            role ignores no consent.
        ignored_reason: why the import doesn't use a column that may concern consent, or ``None``.
        is_mapped: whether the owner has chosen the column's role.
    """

    index: int
    name: str
    examples: Sequence[str]
    becomes: str
    creates: str | None
    written: str | None
    chosen: str
    meaning: str
    has_data: bool
    ignored_opt_outs: int | None = None
    ignored_reason: str | None = None
    is_mapped: bool = False

    @property
    def box(self) -> str:
        return f"column_{self.index}"

    @property
    def label(self) -> str:
        return self.name.strip()[:MAX_NAME_CHARACTERS] or f"Column {self.index + 1}"

    @property
    def recognised(self) -> str | None:
        """Return the label of the column's recognised role, or ``None``."""
        if self.creates is not None:
            return None
        if self.becomes == IGNORED:
            return "Detect automatically" if self.chosen == AS_RECOGNISED else None
        return self.meaning

    @property
    def is_left_out(self) -> bool:
        """Return whether the import ignores the column although the column has data."""
        return self.becomes == IGNORED and self.has_data

    @property
    def needs_owner(self) -> bool:
        """Return whether the owner has chosen the column's role, or should check it.

        All other columns are empty, or were recognised.
        """
        is_used = self.becomes != IGNORED
        is_unsure = self.is_left_out or bool(self.ignored_opt_outs or self.ignored_reason)
        return is_unsure or (is_used and (self.is_mapped or self.creates is not None))


def build_column_choices(
    task: MemberImport, columns: Sequence[Mapping[str, Any]], fields: Sequence[MemberField]
) -> list[ColumnChoice]:
    """Return the columns of a dry run, each with the choice in its select box.

    If a dry run stopped at an ambiguous column, no roles are recognised. The other columns then
    default to ``AS_RECOGNISED``, so the owner only has to map the ambiguous column.
    """
    names = [str(column["name"]) for column in columns]
    is_recognised = any(column["becomes"] != IGNORED for column in columns)
    labels = find_labels(columns, fields)
    own_roles = {FIELD_PREFIX + field.key for field in fields}
    chosen_roles = {}
    for name, role in (task.mapping or {}).items():
        try:
            chosen_roles[column_layout.find_column(names, name)] = role
        except DomainError:
            # Ignore a choice for a column that isn't in the file, because the dry run reports the
            # missing column.
            continue
    choices = []
    for index, column in enumerate(columns):
        becomes = str(column["becomes"])
        creates = column.get("creates")
        if index in chosen_roles:
            role = chosen_roles[index]
            name, _, type_ = role.partition(":")
            is_new = role.startswith(FIELD_PREFIX) and name not in own_roles
            choice = (f"{NEW_FIELD}:{type_}" if type_ else NEW_FIELD) if is_new else name
        elif creates is not None:
            choice = NEW_FIELD
        else:
            choice = IGNORE if becomes == IGNORED and is_recognised else AS_RECOGNISED
        examples = column.get("examples", ())
        format_label = _FORMAT_LABELS.get(column.get("written", ""))
        choices.append(
            ColumnChoice(
                *(index, names[index], examples, becomes, creates, format_label, choice),
                meaning=", ".join(_describe_role(role, labels) for role in becomes.split(", ")),
                has_data=column.get("has_data", bool(examples)),
                ignored_opt_outs=column.get("ignored_opt_outs"),
                ignored_reason=column.get("ignored_reason"),
                is_mapped=index in chosen_roles,
            )
        )
    return choices


def find_labels(
    columns: Sequence[Mapping[str, Any]], fields: Sequence[MemberField]
) -> dict[str, str]:
    """Map the keys of fields to their labels, including the fields that the import creates."""
    new_fields = {
        str(column["becomes"]).removeprefix(FIELD_PREFIX): str(column["name"]).strip()
        for column in columns
        if column.get("creates") is not None
    }
    return new_fields | {field.key: field.label for field in fields}


def list_roles(fields: Sequence[MemberField]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return the choices in a column's select box, grouped under labels."""
    groups = [
        (label, [(role, _ROLE_LABELS[role]) for role in roles])
        for label, roles in _ROLE_GROUPS.items()
    ]
    own_fields = [(FIELD_PREFIX + field.key, field.label) for field in fields]
    new_fields = [(NEW_FIELD, "Create a field"), *_TYPED_FIELDS.items()]
    return [*groups, ("Your fields", own_fields), ("New field", new_fields)]


def read_column_choices(form: Mapping[str, str], choices: Sequence[ColumnChoice]) -> list[str]:
    """Return the submitted choice for each column.

    If the form contains no select box for a column, the column's previous choice is returned.
    Raises ``body.invalid`` if two columns have the same role and the role may occur only once.
    """
    values = [form.get(each.box, each.chosen) for each in choices]
    seen: set[str] = set()
    for choice, value in zip(choices, values, strict=True):
        if value in seen and value not in _REPEATABLE_ROLES:
            raise build_field_error(choice.box, "You already chose this for another column.")
        seen.add(value)
    return values


def build_mapping(
    choices: Sequence[ColumnChoice], values: Sequence[str], fields: Sequence[MemberField]
) -> dict[str, str]:
    names = [each.name for each in choices]
    keys = {field.key for field in fields}
    mapping: dict[str, str] = {}
    for each, value in zip(choices, values, strict=True):
        if value == AS_RECOGNISED:
            continue
        role = value
        if is_new_field(value):
            key = each.becomes.removeprefix(FIELD_PREFIX)
            if each.creates is None:
                key = field_columns.find_free_key(each.name, keys)
            keys.add(key)
            role = FIELD_PREFIX + key + value.removeprefix(NEW_FIELD)
        try:
            has_unique_name = (
                bool(each.name.strip())
                and column_layout.find_column(names, each.name) == each.index
            )
        except DomainError:
            has_unique_name = False
        mapping[each.name if has_unique_name else str(each.index)] = role
    return mapping


def is_new_field(choice: str) -> bool:
    return choice == NEW_FIELD or choice in _TYPED_FIELDS


def _describe_role(role: str, labels: Mapping[str, str]) -> str:
    if role.startswith(FIELD_PREFIX):
        key = role.removeprefix(FIELD_PREFIX)
        return f"Field: {labels.get(key, key)}"
    return _ROLE_LABELS.get(role, role.removeprefix(CONSENT_PREFIX).replace("_", " ").capitalize())
