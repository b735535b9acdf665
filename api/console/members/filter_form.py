"""A filter of members as a form: rows of a field, an operator and a value, in groups.

The inputs are named by the place of what they belong to: ``match.0`` says how the first group, the
filter itself, combines its parts; ``field.0.2``, ``kind.0.2``, ``operator.0.2`` and ``value.0.2``
are its third part. Each button that adds or removes a part sends the whole form, so that the form
works without a script.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from api.console.console_display import FILTER_MATCHES, SOURCES, TIERS
from core.errors import DomainError
from core.errors.mailing import FILTER_INVALID, FILTER_NOT_JSON
from models import FieldType, MailingList, MemberField, SubscriptionStatus
from services.paging import PageRequest
from services.subscriptions import fields, tags
from services.subscriptions.filters.grammar import MAX_CONDITIONS, MAX_DEPTH
from services.subscriptions.filters.names import FilterName, Operator, ValueKind, known_names
from storage.unit_of_work import UnitOfWork

_NEGATED = {"all": "not_all", "any": "none", "none": "any", "not_all": "all"}
# The operators of the grammar; ``exists`` with false is one of its own here.
_MISSING = "missing"
_WORDS: Mapping[str, str] = {
    Operator.IS: "is",
    Operator.IS_NOT: "is not",
    Operator.IN: "is one of",
    Operator.CONTAINS: "contains",
    Operator.BEGINS: "begins with",
    Operator.BEFORE: "is before",
    Operator.AFTER: "is after",
    Operator.NOT_BEFORE: "is at least",
    Operator.NOT_AFTER: "is at most",
    Operator.EXISTS: "is known",
    _MISSING: "is not known",
}
_OF_DATES = {Operator.NOT_BEFORE: "is on or after", Operator.NOT_AFTER: "is on or before"}
_LABELS = {
    "status": "Status",
    "type": "Tier",
    "email": "Address",
    "name": "Name",
    "source": "Source",
    "import_id": "Number of the import",
    "email_enabled": "Gets mail",
    "joined_at": "Joined",
    "created_at": "Added",
    "updated_at": "Changed",
    "tag": "Tag",
}
_STATUSES = {
    SubscriptionStatus.PENDING: "not confirmed",
    SubscriptionStatus.ACTIVE: "active",
    SubscriptionStatus.UNSUBSCRIBED: "unsubscribed",
    SubscriptionStatus.REMOVED: "removed",
}
NO_OPTIONS: Mapping[str, str] = {}
_YES_NO = {"true": "yes", "false": "no"}
_DATES = frozenset({ValueKind.MOMENT, ValueKind.DAY})
_NUMBERS = frozenset({ValueKind.NUMBER, ValueKind.ID})
MAX_TAGS_TO_CHOOSE = 200
_MAX_VALUE_CHARACTERS = 4_000
_FIRST = "0"
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_NUMBER = re.compile(r"-?\d+(\.\d+)?", re.ASCII)


class NotShown(Exception):
    """The filter can't be shown as rows; the message says why."""


@dataclass(frozen=True)
class Choice:
    """A subject that a row may be about.

    Attributes:
        options: the values to choose from and their words; empty where a value is typed.
        suggestions: values that a script-less browser offers while one is typed.
    """

    name: str
    kind: ValueKind
    label: str
    operators: Mapping[str, str]
    options: Mapping[str, str] = field(default_factory=dict)
    suggestions: tuple[str, ...] = ()

    @property
    def value(self) -> str:
        return f"{self.kind}:{self.name}"


@dataclass
class Row:
    """A condition, as it was typed. A row without a value is not a condition yet."""

    name: str
    kind: str
    operator: str
    text: str = ""
    place: str = ""
    error: str = ""

    @property
    def needs_value(self) -> bool:
        return self.operator not in (Operator.EXISTS, _MISSING)

    @property
    def is_open(self) -> bool:
        return self.needs_value and not self.text.strip()

    @property
    def input_type(self) -> str:
        """Return the kind of input for the value: another kind would drop what it can't show."""
        if self.kind in _DATES and (not self.text or _DAY.fullmatch(self.text)):
            return "date"
        if self.kind in _NUMBERS and (not self.text or _NUMBER.fullmatch(self.text)):
            return "number"
        return "text"

    @property
    def lines(self) -> list[str]:
        return [line for line in self.text.splitlines() if line.strip()]

    def written(self) -> dict[str, Any]:
        if not self.needs_value:
            return {"field": self.name, "exists": self.operator == Operator.EXISTS}
        value: Any = self._typed(self.text)
        if self.operator == Operator.IN:
            value = [self._typed(line) for line in self.lines]
        return {"field": self.name, self.operator: value}

    def _typed(self, text: str) -> object:
        """Return the JSON value, or the text where it is none, which the grammar refuses."""
        if self.kind == ValueKind.BOOLEAN:
            return {"true": True, "false": False}.get(text, text)
        if self.kind in _NUMBERS:
            try:
                found = orjson.loads(text)
            except orjson.JSONDecodeError:
                return text
            return found if isinstance(found, int | float) else text
        return text


@dataclass
class Group:
    match: str
    parts: list["Row | Group"] = field(default_factory=list)
    place: str = ""

    @property
    def depth(self) -> int:
        return self.place.count(".")

    @property
    def may_nest(self) -> bool:
        """Return whether the grammar has room for a group in this one, and a row in that."""
        return self.depth + 3 <= MAX_DEPTH

    def written(self, at: str, rows: dict[str, Row]) -> dict[str, Any] | None:
        """Return the filter as JSON, ``None`` without a condition; note each row by its place.

        Rows without a value are passed over.
        """
        parts = [part for part in self.parts if _has_condition(part)]
        if not parts:
            return None
        word = "all" if self.match in ("all", "not_all") else "any"
        if self.match in ("none", "not_all"):
            at += ".not"
        found: list[dict[str, Any]] = []
        for number, part in enumerate(parts):
            below = at if len(parts) == 1 else f"{at}.{word}[{number}]"
            if isinstance(part, Group):
                inner = part.written(below, rows)
                assert inner is not None
                found.append(inner)
            else:
                rows[below] = part
                found.append(part.written())
        combined = found[0] if len(found) == 1 else {word: found}
        return {"not": combined} if self.match in ("none", "not_all") else combined

    def rows(self) -> Iterator[Row]:
        for part in self.parts:
            if isinstance(part, Row):
                yield part
            else:
                yield from part.rows()


def _has_condition(part: Row | Group) -> bool:
    if isinstance(part, Row):
        return not part.is_open
    return any(_has_condition(each) for each in part.parts)


@dataclass
class FilterDraft:
    """A filter that is being edited: as rows, or as JSON where rows can't show it.

    Attributes:
        group: the filter itself; ``None``: it is ``text`` alone.
        reason: why it is not shown as rows.
    """

    group: Group | None
    text: str = ""
    reason: str = ""

    def written(self) -> dict[str, Any] | None:
        """Return the filter as JSON, ``None`` where nothing is chosen.

        Raises ``filter.invalid`` for a text that is no JSON object.
        """
        if self.group is not None:
            return self.group.written("filter", {})
        return read_filter(self.text) if self.text.strip() else None

    def mark(self, error: DomainError) -> bool:
        """Note an error of the filter at the row that it is about; return whether there is one."""
        rows: dict[str, Row] = {}
        if self.group is None or not error.problems:
            return False
        self.group.written("filter", rows)
        place = error.problems[0].field
        for at, row in rows.items():
            if place.startswith((f"{at}.", f"{at}[")):
                rule = error.problems[0].message
                row.error = rule[:1].upper() + rule[1:] + "."
                return True
        return False

    def mark_open(self) -> bool:
        """Note each row without a value; return whether there is one."""
        is_open = [row for row in self.group.rows() if row.is_open] if self.group else []
        for row in is_open:
            row.error = "Give a value, or remove the condition."
        return bool(is_open)


def read_filter(text: str) -> dict[str, Any]:
    """Read a filter that was typed as JSON; raises ``filter.invalid`` for another text."""
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        raise FILTER_NOT_JSON() from None
    if not isinstance(found, dict):
        raise FILTER_INVALID(place="filter", rule="must be an object")
    return found


def draft_of_form(form: Mapping[str, str]) -> FilterDraft:
    """Return the filter of a form that was sent, after what its button asked for."""
    button, text = form.get("do", ""), form.get("filter", "")
    if f"match.{_FIRST}" not in form or form.get("use") == "json":
        return FilterDraft(None, text)
    group = _group_of_form(form, _FIRST, [MAX_CONDITIONS])
    if not group.parts and text.strip() and not button:
        return FilterDraft(None, text)
    _press(group, button, form)
    _number(group, _FIRST)
    return FilterDraft(group)


def _group_of_form(form: Mapping[str, str], place: str, room: list[int]) -> Group:
    match = form.get(f"match.{place}", "all")
    group = Group(match if match in FILTER_MATCHES else "all", place=place)
    for number in range(MAX_CONDITIONS):
        below = f"{place}.{number}"
        if below.count(".") < MAX_DEPTH and f"match.{below}" in form:
            group.parts.append(_group_of_form(form, below, room))
        elif f"field.{below}" in form and room[0] > 0:
            room[0] -= 1
            row = Row(
                form.get(f"field.{below}", ""),
                form.get(f"kind.{below}", ""),
                form.get(f"operator.{below}", ""),
                form.get(f"value.{below}", "")[:_MAX_VALUE_CHARACTERS],
                place=below,
            )
            group.parts.append(row)
        else:
            break
    return group


def _press(group: Group, button: str, form: Mapping[str, str]) -> None:
    word, _, place = button.partition(":")
    for found in [group, *_groups(group)]:
        if word == "drop":
            found.parts = [part for part in found.parts if part.place != place]
        elif found.place == place and word == "add":
            kind, _, name = form.get(f"new.{place}", "").partition(":")
            if name:
                found.parts.append(Row(name, kind, Operator.IS))
        elif found.place == place and word == "group" and found.may_nest:
            found.parts.append(Group("any"))


def _groups(group: Group) -> Iterator[Group]:
    for part in group.parts:
        if isinstance(part, Group):
            yield part
            yield from _groups(part)


def _number(group: Group, place: str) -> None:
    group.place = place
    for number, part in enumerate(group.parts):
        below = f"{place}.{number}"
        if isinstance(part, Group):
            _number(part, below)
        else:
            part.place = below


def draft_of_filter(written: object, choices: Mapping[str, Choice]) -> FilterDraft:
    """Return a filter of the grammar as rows, or as JSON with the reason why not."""
    if written is None:
        return FilterDraft(Group("all", place=_FIRST))
    text = orjson.dumps(written, option=orjson.OPT_INDENT_2).decode()
    try:
        found = _part_of(written, choices)
    except NotShown as reason:
        return FilterDraft(None, text, str(reason))
    group = found if isinstance(found, Group) else Group("all", [found])
    _number(group, _FIRST)
    if any(each.depth + 2 > MAX_DEPTH for each in _groups(group)):
        return FilterDraft(None, text, "Its groups stand in too many others.")
    return FilterDraft(group, text)


def with_rows(draft: FilterDraft, choices: Mapping[str, Choice]) -> FilterDraft:
    """Return a draft that came as JSON as rows, if it can be shown so."""
    if draft.group is not None:
        shown = draft.group.written("filter", {})
        indented = b"" if shown is None else orjson.dumps(shown, option=orjson.OPT_INDENT_2)
        return replace(draft, text=indented.decode())
    try:
        written = draft.written()
    except DomainError:
        return draft
    return draft_of_filter(written, choices)


def _part_of(written: object, choices: Mapping[str, Choice]) -> Row | Group:
    match written:
        case {"not": inner, **rest} if not rest:
            found = _part_of(inner, choices)
            if isinstance(found, Row):
                return Group("none", [found])
            return Group(_NEGATED[found.match], found.parts)
        case {"all": [_, *_] as parts, **rest} if not rest:
            return Group("all", [_part_of(each, choices) for each in parts])
        case {"any": [_, *_] as parts, **rest} if not rest:
            return Group("any", [_part_of(each, choices) for each in parts])
        case {"field": str(name), **rest} if len(rest) == 1:
            ((operator, value),) = rest.items()
            return _row_of(name, str(operator), value, choices)
    raise NotShown("It is no filter of the grammar.")


def _row_of(name: str, operator: str, value: object, choices: Mapping[str, Choice]) -> Row:
    choice = choices.get(name)
    if choice is None:
        raise NotShown(f"There is no field {name} any more.")
    if operator == Operator.EXISTS:
        return Row(name, choice.kind, Operator.EXISTS if value is True else _MISSING)
    if operator not in choice.operators:
        raise NotShown(f"{choice.label} has no operator {operator}.")
    listed = value if operator == Operator.IN and isinstance(value, list) else [value]
    texts = [each if isinstance(each, str) else orjson.dumps(each).decode() for each in listed]
    if any(len(text.splitlines()) != 1 or not text.strip() for text in texts):
        raise NotShown(f"A value of {choice.label} has several lines, or none.")
    return Row(name, choice.kind, operator, "\n".join(texts))


def choices_of(uow: UnitOfWork, mailing_list: MailingList) -> dict[str, Choice]:
    """Return what a row may be about on this list, by name."""
    own = fields.read_own_fields(uow, mailing_list.user_id).by_key.values()
    by_key = {f"fields.{each.key}": each for each in own}
    listed = tags.list_tags(uow, mailing_list.id, PageRequest(MAX_TAGS_TO_CHOOSE)).rows
    return {
        name.name: _choice(name, by_key.get(name.name), tuple(tag.name for tag in listed))
        for name in known_names(own).values()
    }


def _choice(name: FilterName, own: MemberField | None, tag_names: tuple[str, ...]) -> Choice:
    words: dict[str, str] = {**_WORDS}
    if name.kind in _DATES:
        words.update({str(each): said for each, said in _OF_DATES.items()})
    operators = {str(each): words[each] for each in name.operators}
    if Operator.EXISTS in operators:
        operators[_MISSING] = words[_MISSING]
    options: Mapping[str, str] = NO_OPTIONS
    if name.kind is ValueKind.BOOLEAN:
        options = _YES_NO
    elif name.name == "status":
        options = {status.value: word for status, word in _STATUSES.items()}
    elif name.name == "type":
        options = TIERS
    elif own is not None and own.type == FieldType.CHOICE:
        options = {each: each for each in own.choices}
    suggestions = tag_names if name.name == "tag" else ()
    if name.name == "source":
        suggestions = tuple(SOURCES)
    label = own.label if own is not None else _LABELS[name.name]
    return Choice(name.name, name.kind, label, operators, options, suggestions)


def chips_of(
    group: Group, choices: Mapping[str, Choice]
) -> Iterator[tuple[str, dict[str, Any] | None]]:
    """Say each condition of the filter in words, with the filter that is left without it."""
    parts = [part for part in group.parts if _has_condition(part)]
    for part in parts:
        rest = [each for each in parts if each is not part]
        yield in_words(part, choices), Group(group.match, rest).written("filter", {})


def in_words(part: Row | Group, choices: Mapping[str, Choice]) -> str:
    """Say a part of a filter in one line, such as "City is Berlin"."""
    if isinstance(part, Group):
        inner = "; ".join(in_words(each, choices) for each in part.parts if _has_condition(each))
        return f"{FILTER_MATCHES[part.match]}: {inner}"
    choice = choices.get(part.name)
    if choice is None:
        return f"{part.name} {part.operator} {part.text}"
    said = f"{choice.label} {choice.operators.get(part.operator, part.operator)}"
    values = [choice.options.get(line, line) for line in part.lines]
    return f"{said} {', '.join(values)}" if part.needs_value else said
