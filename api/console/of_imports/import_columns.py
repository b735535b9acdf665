"""What the columns of a file become, as select boxes: one for each column."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from api.access.page_sessions import FormFields
from core.errors import DomainError, FieldProblem
from core.refusals.requests import BODY_INVALID
from models import MemberField, MemberImport
from services.mailing.imports.mapping import columns, field_columns
from services.mailing.imports.mapping.columns import CONSENT_PREFIX, FIELD_PREFIX, IGNORED

COLUMNS_ON_PAGE = 20
MAX_NAME_CHARACTERS_SHOWN = 80
IGNORE, NEW_FIELD, AS_RECOGNISED = "ignore", "new", ""
# What several columns may be.
_OFTEN = (IGNORE, NEW_FIELD, AS_RECOGNISED, "tags", "tier", "status")
_WORDS = {
    "email": "E-mail address",
    "name": "Name",
    "first_name": "First name",
    "last_name": "Last name",
    "tier": "Tier",
    "paid_expiry": "Paid until",
    "status": "Whether they get mail",
    "tags": "Tags",
    "joined_at": "Joined on",
    "consent.at": "Consent: when",
    "consent.how": "Consent: how",
    "consent.ip": "Consent: IP address",
    "consent.url": "Consent: page",
    "consent.wording": "Consent: wording",
    "consent.confirmed_at": "Consent: confirmed on",
    "consent.confirmed_ip": "Consent: confirmed from",
    IGNORED: "Nothing",
}


@dataclass(frozen=True)
class ColumnChoice:
    """One column of a file, and what it becomes.

    Attributes:
        becomes: a role of ``columns.ROLES``, a field, or several roles with commas.
        creates: the type of the field that is made of it.
        chosen: what its select box has.
    """

    index: int
    name: str
    examples: Sequence[str]
    becomes: str
    creates: str | None
    chosen: str

    @property
    def box(self) -> str:
        return f"column_{self.index}"

    @property
    def label(self) -> str:
        return self.name.strip()[:MAX_NAME_CHARACTERS_SHOWN] or f"Column {self.index + 1}"

    @property
    def recognised(self) -> str | None:
        """What it is known for by its name or its cells; ``None`` where that is nothing."""
        if self.becomes == IGNORED or self.creates is not None:
            return None
        return ", ".join(_words(role) for role in self.becomes.split(", "))


def column_choices(
    task: MemberImport, shown: Sequence[Mapping[str, Any]], fields: Sequence[MemberField]
) -> list[ColumnChoice]:
    """The columns of a dry run. ``shown``: its columns with some of their cells."""
    names = [str(each["name"]) for each in shown]
    given, own = _given(task, names), {FIELD_PREFIX + field.key for field in fields}
    found = []
    for index, each in enumerate(shown):
        becomes, creates = str(each["becomes"]), each.get("creates")
        role = given.get(index)
        if role is not None:
            is_new = role.startswith(FIELD_PREFIX) and role not in own
            chosen = NEW_FIELD if is_new else role
        elif creates is not None:
            chosen = NEW_FIELD
        else:
            chosen = IGNORE if becomes == IGNORED else AS_RECOGNISED
        examples = each.get("examples", ())
        found.append(ColumnChoice(index, names[index], examples, becomes, creates, chosen))
    return found


def roles_to_choose(fields: Sequence[MemberField]) -> list[tuple[str, str]]:
    """What any column may become, with words for it."""
    known = [(role, _words(role)) for role in columns.ROLES if role != IGNORE]
    own = [(FIELD_PREFIX + field.key, f"Field: {field.label}") for field in fields]
    return [(IGNORE, "Nothing: leave it out"), *known, *own, (NEW_FIELD, "Make a field of it")]


def chosen_by(form: FormFields, choices: Sequence[ColumnChoice]) -> list[str]:
    """What the form has for each column; a column that is not on it stays as it is.

    Raises ``body.invalid`` beside a column that is what another is already.
    """
    found = [form.get(each.box, each.chosen) for each in choices]
    seen: set[str] = set()
    for choice, value in zip(choices, found, strict=True):
        if value in seen and value not in _OFTEN:
            raise _refused(choice.box, "Another column is this already.")
        seen.add(value)
    return found


def mapping_of(
    choices: Sequence[ColumnChoice], chosen: Sequence[str], fields: Sequence[MemberField]
) -> dict[str, str]:
    """The mapping that a program would send."""
    names = [each.name for each in choices]
    keys = {field.key for field in fields}
    found: dict[str, str] = {}
    for each, value in zip(choices, chosen, strict=True):
        role = value
        if value == NEW_FIELD:
            key = _new_key(each, keys)
            keys.add(key)
            role = FIELD_PREFIX + key
        if role != AS_RECOGNISED:
            found[_naming(names, each.index)] = role
    return found


def _new_key(choice: ColumnChoice, taken: set[str]) -> str:
    if choice.creates is not None:
        return choice.becomes.removeprefix(FIELD_PREFIX)
    return field_columns.free_key(choice.name, taken)


def _naming(names: Sequence[str], index: int) -> str:
    """How a mapping names the column: by its name, if that leads there, or by its place."""
    name = names[index]
    try:
        is_found = bool(name.strip()) and columns.index_of(names, name) == index
    except DomainError:
        is_found = False
    return name if is_found else str(index)


def _given(task: MemberImport, names: Sequence[str]) -> dict[int, str]:
    """The roles in the import's mapping, by the columns that they are for."""
    found = {}
    for name, role in (task.mapping or {}).items():
        try:
            found[columns.index_of(names, name)] = role
        except DomainError:
            # The file has no such column: its refusal says so.
            continue
    return found


def _words(role: str) -> str:
    if role.startswith(FIELD_PREFIX):
        return f"Field {role.removeprefix(FIELD_PREFIX)}"
    return _WORDS.get(role, role.removeprefix(CONSENT_PREFIX).replace("_", " ").capitalize())


def _refused(box: str, rule: str) -> DomainError:
    problem = FieldProblem(f"body.{box}", "value", rule)
    return BODY_INVALID(place=problem.field, rule=rule, problems=(problem,))
