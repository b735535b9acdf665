"""Converts a member filter between JSON and the rows of an HTML form.

The filter form shows a filter as a group, which consists of rows and nested groups. In each row,
the user chooses a member attribute, an operator and a value. The name of a form input contains the
position of its row or group. The outermost group has the position ``0``, and the third row or
nested group in the outermost group has the position ``0.2``. For example, the input ``match.0``
states whether a member must match all, any or none of the rows and groups in the outermost group.
The inputs ``field.0.2``, ``kind.0.2``, ``operator.0.2`` and ``value.0.2`` belong to the row
``0.2``. The input ``option.0.2.1`` is the second checkbox of the row ``0.2``.

The buttons that add or remove rows and groups submit the whole form, so the form needs no script.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from api.console.console_display import FILTER_MATCHES
from api.console.members.filter_choices import (
    DATE_KINDS,
    DAY_COUNT_KINDS,
    DAYS_AHEAD,
    MISSING,
    Choice,
    build_choice_key,
)
from core.errors import DomainError
from core.errors.mailing import FILTER_INVALID, FILTER_NOT_JSON
from core.json_parsing import parse_json
from services.subscriptions.fields import MAX_CHOICES
from services.subscriptions.filters.grammar import MAX_CONDITIONS, MAX_DEPTH
from services.subscriptions.filters.names import DAYS_AGO, Operator, ValueKind

_NEGATED_MATCH = {"all": "not_all", "any": "none", "none": "any", "not_all": "all"}
_NUMBER_KINDS = frozenset({ValueKind.NUMBER, ValueKind.ID}) | DAY_COUNT_KINDS
_MAX_VALUE_CHARACTERS = 4_000
# The maximum number of checkboxes in a row of the filter form. A row can have more checkboxes than
# a member field has choices, because a filter may contain choices that the owner has removed from
# the field.
_MAX_OPTIONS = 2 * MAX_CHOICES
_ROOT_PLACE = "0"
# The member attribute in the first row of an empty filter.
_FIRST_NAME = "tag"
# Joins the descriptions of the conditions in a group.
_JOINTS = {"all": " and ", "any": " or "}
_DATE_PATTERN = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_NUMBER_PATTERN = re.compile(r"-?\d+(\.\d+)?", re.ASCII)


class NotRepresentable(Exception):
    """An exception whose message states why a filter can't be shown as rows of a form."""


@dataclass
class Row:
    """A row of the filter form, which tests a member attribute.

    The filter omits form rows without a value.

    Attributes:
        name: the name of the tested attribute, such as ``email`` or ``fields.city``.
        text: the value that the user typed, or one value per line if the filter operator accepts
            several values.
    """

    name: str
    kind: str
    operator: str
    text: str = ""
    place: str = ""
    error: str = ""

    @property
    def choice_key(self) -> str:
        return build_choice_key(self.name, self.kind)

    @property
    def needs_value(self) -> bool:
        return self.operator not in (Operator.EXISTS, MISSING)

    @property
    def is_open(self) -> bool:
        return self.needs_value and not self.text.strip()

    @property
    def input_type(self) -> str:
        """Return the ``type`` attribute of the ``<input>`` element.

        Invalid dates and numbers are shown as text, because inputs for dates and numbers can't show
        them.
        """
        if self.kind in DATE_KINDS and (not self.text or _DATE_PATTERN.fullmatch(self.text)):
            return "date"
        if self.kind in _NUMBER_KINDS and (not self.text or _NUMBER_PATTERN.fullmatch(self.text)):
            return "number"
        return "text"

    @property
    def lines(self) -> list[str]:
        return [line for line in self.text.splitlines() if line.strip()]

    def to_json(self) -> dict[str, Any]:
        if not self.needs_value:
            return {"field": self.name, "exists": self.operator == Operator.EXISTS}
        value: Any = self._parse_value(self.text)
        if self.operator == Operator.IN:
            value = [self._parse_value(line) for line in self.lines]
        return {"field": self.name, self.operator: value}

    def _parse_value(self, text: str) -> object:
        """Convert the typed value to the type of the tested attribute.

        Invalid text is returned unchanged, so that the validation of the filter rejects it.
        """
        if self.kind == ValueKind.BOOLEAN:
            return {"true": True, "false": False}.get(text, text)
        if self.kind in _NUMBER_KINDS:
            try:
                value = parse_json(text.encode())
            except ValueError:
                return text
            if not isinstance(value, int | float):
                return text
            if self.kind == DAYS_AHEAD:
                return {DAYS_AGO: -value}
            return {DAYS_AGO: value} if self.kind == DAYS_AGO else value
        return text


@dataclass
class Group:
    """A group of filter parts. ``match`` is a key of ``FILTER_MATCHES``, such as ``all``."""

    match: str
    parts: list["Row | Group"] = field(default_factory=list)
    place: str = ""

    @property
    def depth(self) -> int:
        return self.place.count(".")

    @property
    def may_nest(self) -> bool:
        """Return whether a group may be nested in this group without exceeding the depth limit."""
        return self.depth + 3 <= MAX_DEPTH

    def to_json(self, path: str, rows: dict[str, Row]) -> dict[str, Any] | None:
        """Return the group as a JSON filter, or ``None`` if all its rows are incomplete.

        ``rows``: the dictionary to which all rows are added, keyed by their path in the JSON
        filter.
        """
        parts = [part for part in self.parts if _has_condition(part)]
        if not parts:
            return None
        keyword = "all" if self.match in ("all", "not_all") else "any"
        if self.match in ("none", "not_all"):
            path += ".not"
        conditions: list[dict[str, Any]] = []
        for number, part in enumerate(parts):
            part_path = path if len(parts) == 1 else f"{path}.{keyword}[{number}]"
            if isinstance(part, Group):
                group_json = part.to_json(part_path, rows)
                assert group_json is not None
                conditions.append(group_json)
            else:
                rows[part_path] = part
                conditions.append(part.to_json())
        combined = conditions[0] if len(conditions) == 1 else {keyword: conditions}
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
    """A filter that the user is editing, either as rows of a form or as JSON.

    Attributes:
        group: the outermost group of the filter's rows, or ``None`` if the user edits JSON.
        reason: why rows of a form can't represent the filter, or an empty string.
    """

    group: Group | None
    text: str = ""
    reason: str = ""

    @property
    def is_incomplete(self) -> bool:
        """Return whether a row of the form has no value yet."""
        return self.group is not None and any(row.is_open for row in self.group.rows())

    def to_json(self) -> dict[str, Any] | None:
        """Return the edited filter as JSON, or ``None`` if the filter is empty."""
        if self.group is not None:
            return self.group.to_json("filter", {})
        return parse_filter(self.text) if self.text.strip() else None

    def add_error(self, error: DomainError) -> bool:
        """Show an error in the form row whose input caused it, or return ``False``."""
        rows: dict[str, Row] = {}
        if self.group is None or not error.problems:
            return False
        self.group.to_json("filter", rows)
        error_path = error.problems[0].field
        for path, row in rows.items():
            if error_path.startswith((f"{path}.", f"{path}[")):
                rule = error.problems[0].message
                row.error = rule[:1].upper() + rule[1:] + "."
                return True
        return False

    def add_missing_value_errors(self) -> bool:
        """Show an error in each form row without a value, and return whether there is one."""
        open_rows = [row for row in self.group.rows() if row.is_open] if self.group else []
        for row in open_rows:
            row.error = "Enter a value or remove the condition."
        return bool(open_rows)


def parse_filter(text: str) -> dict[str, Any]:
    """Return the member filter that the user typed as JSON. Raises ``filter.invalid``."""
    try:
        value = parse_json(text.encode())
    except ValueError:
        raise FILTER_NOT_JSON() from None
    if not isinstance(value, dict):
        raise FILTER_INVALID(place="filter", rule="must be an object")
    return value


def read_draft(form: Mapping[str, str]) -> FilterDraft:
    """Read the filter from a submitted form, and carry out the pressed button's action."""
    button = form.get("do", "")
    text = form.get("filter", "")
    if f"match.{_ROOT_PLACE}" not in form or form.get("use") == "json":
        return FilterDraft(None, text)
    group = _read_group(form, _ROOT_PLACE, [MAX_CONDITIONS])
    if not group.parts and text.strip() and not button:
        return FilterDraft(None, text)
    _apply_button(group, button, form)
    _assign_places(group, _ROOT_PLACE)
    return FilterDraft(group)


def _read_group(form: Mapping[str, str], place: str, remaining_rows: list[int]) -> Group:
    """Return the group at the position ``place`` in the submitted form.

    ``remaining_rows``: a list whose only element says how many more rows may be read. All groups
    share one count of remaining rows, so that the form's total number of rows is limited.
    """
    match = form.get(f"match.{place}", "all")
    group = Group(match if match in FILTER_MATCHES else "all", place=place)
    for number in range(MAX_CONDITIONS):
        part_place = f"{place}.{number}"
        if part_place.count(".") < MAX_DEPTH and f"match.{part_place}" in form:
            group.parts.append(_read_group(form, part_place, remaining_rows))
        elif f"field.{part_place}" in form and remaining_rows[0] > 0:
            remaining_rows[0] -= 1
            row = Row(
                form.get(f"field.{part_place}", ""),
                form.get(f"kind.{part_place}", ""),
                form.get(f"operator.{part_place}", ""),
                _read_value(form, part_place)[:_MAX_VALUE_CHARACTERS],
                place=part_place,
            )
            group.parts.append(row)
        else:
            break
    return group


def _read_value(form: Mapping[str, str], place: str) -> str:
    """Return the value that the user typed, or the values of the ticked boxes, one per line."""
    boxes = (f"option.{place}.{number}" for number in range(_MAX_OPTIONS))
    return form.get(f"value.{place}") or "\n".join(form[box] for box in boxes if box in form)


def _apply_button(root: Group, button: str, form: Mapping[str, str]) -> None:
    """Add or remove a part of the filter. ``button`` contains an action and a position."""
    action, _, place = button.partition(":")
    if action in ("add", "group") and _is_untouched(root):
        # Replace the open first row, which the user hasn't filled in.
        root.parts = []
    for group in [root, *_iterate_groups(root)]:
        if action == "drop":
            group.parts = [part for part in group.parts if part.place != place]
        elif group.place == place and action == "add":
            kind, _, name = form.get(f"new.{place}", "").partition(":")
            if name:
                group.parts.append(Row(name, kind, Operator.IS))
        elif group.place == place and action == "group" and group.may_nest:
            group.parts.append(Group("any"))


def _is_untouched(group: Group) -> bool:
    return all(
        isinstance(part, Row) and part.is_open and part.name == _FIRST_NAME for part in group.parts
    )


def _iterate_groups(group: Group) -> Iterator[Group]:
    for part in group.parts:
        if isinstance(part, Group):
            yield part
            yield from _iterate_groups(part)


def _assign_places(group: Group, place: str) -> None:
    group.place = place
    for number, part in enumerate(group.parts):
        part_place = f"{place}.{number}"
        if isinstance(part, Group):
            _assign_places(part, part_place)
        else:
            part.place = part_place


def build_draft(filter_json: object, choices: Mapping[str, Choice]) -> FilterDraft:
    """Return a filter for editing, as rows of a form if possible, or else as JSON."""
    if filter_json is None:
        return FilterDraft(Group("all", place=_ROOT_PLACE))
    text = orjson.dumps(filter_json, option=orjson.OPT_INDENT_2).decode()
    try:
        part = _build_part(filter_json, choices)
    except NotRepresentable as reason:
        return FilterDraft(None, text, str(reason))
    group = part if isinstance(part, Group) else Group("all", [part])
    _assign_places(group, _ROOT_PLACE)
    if any(each.depth + 2 > MAX_DEPTH for each in _iterate_groups(group)):
        return FilterDraft(None, text, "The filter has too many nested groups.")
    return FilterDraft(group, text)


def convert_to_rows(draft: FilterDraft, choices: Mapping[str, Choice]) -> FilterDraft:
    """Convert an edited filter to form rows if possible, and update the filter's JSON text."""
    if draft.group is not None:
        filter_json = draft.group.to_json("filter", {})
        text = ""
        if filter_json is not None:
            text = orjson.dumps(filter_json, option=orjson.OPT_INDENT_2).decode()
        return replace(draft, text=text)
    try:
        filter_json = draft.to_json()
    except DomainError:
        return draft
    return build_draft(filter_json, choices)


def open_first_row(draft: FilterDraft, choices: Mapping[str, Choice]) -> FilterDraft:
    """Add a row without a value to an empty filter, so that the user can type a value at once."""
    if draft.group is None or draft.group.parts:
        return draft
    row = Row(_FIRST_NAME, choices[_FIRST_NAME].kind, Operator.IS, place=f"{_ROOT_PLACE}.0")
    return replace(draft, group=replace(draft.group, parts=[row]))


def _build_part(filter_json: object, choices: Mapping[str, Choice]) -> Row | Group:
    match filter_json:
        case {"not": inner, **rest} if not rest:
            part = _build_part(inner, choices)
            if isinstance(part, Row):
                return Group("none", [part])
            return Group(_NEGATED_MATCH[part.match], part.parts)
        case {"all": [_, *_] as parts, **rest} if not rest:
            return Group("all", [_build_part(each, choices) for each in parts])
        case {"any": [_, *_] as parts, **rest} if not rest:
            return Group("any", [_build_part(each, choices) for each in parts])
        case {"field": str(name), **rest} if len(rest) == 1:
            ((operator, value),) = rest.items()
            return _build_row(name, str(operator), value, choices)
    raise NotRepresentable("The filter is invalid.")


def _build_row(name: str, operator: str, value: object, choices: Mapping[str, Choice]) -> Row:
    kind = ""
    if isinstance(value, dict) and value.keys() == {DAYS_AGO}:
        kind = DAYS_AGO
        value = value[DAYS_AGO]
        has_days_ahead = build_choice_key(name, DAYS_AHEAD) in choices
        if has_days_ahead and isinstance(value, int) and value < 0:
            kind = DAYS_AHEAD
            value = -value
    elif operator == Operator.ANNIVERSARY and build_choice_key(name, operator) in choices:
        kind = operator
    choice = choices.get(build_choice_key(name, kind))
    if choice is None:
        raise NotRepresentable(f"The field {name} no longer exists.")
    if operator == Operator.EXISTS:
        return Row(name, choice.kind, Operator.EXISTS if value is True else MISSING)
    if operator not in choice.operators:
        raise NotRepresentable(f"The field {choice.label} doesn’t support the operator {operator}.")
    values = value if operator == Operator.IN and isinstance(value, list) else [value]
    texts = [each if isinstance(each, str) else orjson.dumps(each).decode() for each in values]
    if any(len(text.splitlines()) != 1 or not text.strip() for text in texts):
        raise NotRepresentable(f"A value of {choice.label} is empty or has several lines.")
    return Row(name, choice.kind, operator, "\n".join(texts))


def describe_conditions(
    group: Group, choices: Mapping[str, Choice]
) -> Iterator[tuple[str, dict[str, Any] | None]]:
    """Yield a description of each part of a filter, and the filter without that part."""
    parts = [part for part in group.parts if _has_condition(part)]
    for part in parts:
        other_parts = [each for each in parts if each is not part]
        filter_json = Group(group.match, other_parts).to_json("filter", {})
        yield describe_part(part, choices), filter_json


def describe_filter(draft: FilterDraft, choices: Mapping[str, Choice]) -> str:
    """Return a description of a filter, or an empty text if no form can show the filter."""
    group = draft.group
    if group is None:
        return ""
    if group.match in _JOINTS:
        parts = [describe_part(part, choices) for part in group.parts if _has_condition(part)]
        return _JOINTS[group.match].join(parts)
    return describe_part(group, choices)


def describe_part(part: Row | Group, choices: Mapping[str, Choice]) -> str:
    """Return a description of one part of a filter, such as "City is Berlin"."""
    if isinstance(part, Group):
        conditions = "; ".join(
            describe_part(each, choices) for each in part.parts if _has_condition(each)
        )
        return f"{FILTER_MATCHES[part.match]}: {conditions}"
    choice = choices.get(part.choice_key)
    if choice is None:
        return f"{part.name} {part.operator} {part.text}"
    values = [choice.options.get(line, line) for line in part.lines]
    if part.operator == Operator.IN:
        return f"{choice.label}: {' or '.join(values)}"
    text = f"{choice.label} {choice.operators.get(part.operator, part.operator)}"
    return f"{text} {', '.join(values)}" if part.needs_value else text
