"""The switches and answers on the preferences page, and the changes that a reader submits.

Each name in the form begins with the id of a list, for example ``12.fields.city``. Browsers don't
send a checkbox that is off. The field ``was`` therefore contains the name of each checkbox on the
page. A plus sign before the name means that the checkbox was on, and a minus sign that it was off.
For other inputs, the field contains ``=``, the hash of the value, a colon and the name. Only
changes by the reader are applied, even if the page is older than the stored state.
"""

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from api.bodies.page_forms import FormFields
from api.record_ids import parse_id
from api.sign_up.inputs import FormInput, build_inputs, describe_field_errors
from core.errors import DomainError
from models import FieldType
from services.subscriptions import fields
from services.subscriptions.fields import OwnFields
from services.subscriptions.preferences import own_lists
from services.subscriptions.preferences.own_lists import OwnList
from services.subscriptions.preferences.visits import Visit
from storage.unit_of_work import UnitOfWork

_WAS = "was"
_ON = "on"
_NAME = "name"
_FIELDS = "fields."
# Maps a switch and its new state to an action of ``actions.py``.
_ACTIONS = {
    ("member", False): "leave",
    ("member", True): "undo",
    ("mail", False): "stop_mail",
    ("mail", True): "resume_mail",
}
_JOINED_STATES = ("subscribed", "without_mail", "pending")
# A form can have at most 100 fields. The page has two switches for at most 20 lists, and the
# answers for at most 5 lists. The values of a field to choose from count as inputs, because they
# make the page large.
_MAX_LISTS_WITH_SWITCHES = 20
_MAX_LISTS_WITH_ANSWERS = 5
_MAX_INPUTS = 56


@dataclass(frozen=True)
class ListChoices:
    """The choices for one list.

    ``answers``: the inputs for the name and the fields, or an empty list if the page has none.
    """

    own: OwnList
    is_joined: bool
    has_switches: bool
    answers: list[FormInput]


@dataclass(frozen=True)
class PreferencesForm:
    """The form with a reader's choices.

    Attributes:
        was: the field with the stored state of each checkbox and the hash of each other value.
        switched_on: the names of the switches that are on in the form.
    """

    lists: list[ListChoices]
    was: str
    switched_on: Collection[str]


@dataclass
class ListChanges:
    """A reader's changes for one list. ``name`` is ``None`` if the form has no name."""

    actions: list[str] = field(default_factory=list)
    name: str | None = None
    values: dict[str, str] = field(default_factory=dict)

    @property
    def has_answers(self) -> bool:
        return self.name is not None or bool(self.values)


@dataclass(frozen=True)
class RefusedAnswers:
    """A submitted form, and the error about its answers for one list."""

    form: FormFields
    list_id: int
    error: DomainError


def read_changes(form: FormFields) -> dict[int, ListChanges]:
    """Return the reader's changes by list id, and ignore fields with other names."""
    changes: dict[int, ListChanges] = {}
    stored_state = _read_stored_state(form)
    unchanged_words = form.get(_WAS, "").split()
    for name, value in form.items():
        if stored_state.get(name) or _describe_value(name, value) in unchanged_words:
            continue
        list_id, choice = _split_name(name)
        change = changes.setdefault(list_id, ListChanges())
        key = choice.removeprefix(_FIELDS)
        if choice == _NAME:
            change.name = value
        elif key != choice:
            change.values[key] = value
    for name, was_on in stored_state.items():
        is_on = name in form
        list_id, choice = _split_name(name)
        change = changes.setdefault(list_id, ListChanges())
        key = choice.removeprefix(_FIELDS)
        if is_on != was_on and (choice, is_on) in _ACTIONS:
            change.actions.append(_ACTIONS[choice, is_on])
        elif was_on and not is_on and key != choice:
            change.values[key] = "no"
    return changes


def build_form(
    uow: UnitOfWork,
    visit: Visit,
    language: str,
    opened_id: int | None = None,
    refused: RefusedAnswers | None = None,
) -> PreferencesForm:
    """Return the form with the stored choices, or with the submitted ones if some were refused.

    ``opened_id``: the list that comes first, because the page can't have the switches and answers
    of all lists.
    """
    shown_lists = own_lists.read_lists(uow, visit)
    shown_lists.sort(key=lambda each: each.mailing_list.id != opened_id)
    states = {each.mailing_list.id: each.subscription.state for each in shown_lists}
    joined_ids = [list_id for list_id, state in states.items() if state in _JOINED_STATES]
    public = fields.read_own_fields(uow, visit.owner_id).select_public()
    size = 1 + sum(1 + len(each.choices) for each in public.by_key.values())
    ids_with_switches = list(states)[:_MAX_LISTS_WITH_SWITCHES]
    answer_count = max(1, min(_MAX_LISTS_WITH_ANSWERS, _MAX_INPUTS // size))
    ids_with_answers = [each for each in joined_ids if each in ids_with_switches][:answer_count]
    checkboxes: dict[str, bool] = {}
    for list_id in ids_with_switches:
        checkboxes[f"{list_id}.member"] = list_id in joined_ids
        if states[list_id] in ("subscribed", "without_mail"):
            checkboxes[f"{list_id}.mail"] = states[list_id] == "subscribed"
    values: dict[str, str] = {}
    for list_id in ids_with_answers:
        _, record = own_lists.find_list(uow, visit, list_id)
        values[f"{list_id}.{_NAME}"] = record.name or ""
        stored = public.replace_ids(record.fields)
        for key, member_field in public.by_key.items():
            name = f"{list_id}.{_FIELDS}{key}"
            if member_field.type == FieldType.BOOLEAN:
                checkboxes[name] = stored.get(key) is True
            else:
                values[name] = fields.format_value(stored[key]) if key in stored else ""
    stored_words = [f"{'+' if is_on else '-'}{name}" for name, is_on in checkboxes.items()]
    stored_words += [_describe_value(name, value) for name, value in values.items()]
    switched_on = {name for name, is_on in checkboxes.items() if is_on}
    if refused is not None:
        values |= refused.form
        shown_names = _read_stored_state(refused.form).keys()
        switched_on = (switched_on - shown_names) | (refused.form.keys() & shown_names)
    errors = {}
    if refused is not None:
        errors[refused.list_id] = describe_field_errors(language, public.by_key, refused.error)
    return PreferencesForm(
        lists=[
            ListChoices(
                each,
                list_id in joined_ids,
                list_id in ids_with_switches,
                _build_answers(
                    language, list_id, public, values, switched_on, errors.get(list_id, {})
                )
                if list_id in ids_with_answers
                else [],
            )
            for each in shown_lists
            for list_id in (each.mailing_list.id,)
        ],
        was=" ".join(stored_words),
        switched_on=switched_on,
    )


def _split_name(name: str) -> tuple[int, str]:
    """Return the id of the list, or 0, and the choice."""
    list_name, _, choice = name.partition(".")
    list_id = parse_id(list_name)
    return (list_id, choice) if list_id else (0, "")


def _read_stored_state(form: FormFields) -> dict[str, bool]:
    words = form.get(_WAS, "").split()
    return {word[1:]: word.startswith("+") for word in words if word.startswith(("+", "-"))}


def _describe_value(name: str, value: str) -> str:
    """Return the word for an input in the field ``was``."""
    # Browsers send line breaks as CR LF.
    digest = hashlib.sha256(value.replace("\r\n", "\n").encode()).hexdigest()
    return f"={digest[:16]}:{name}"


def _build_answers(
    language: str,
    list_id: int,
    public: OwnFields,
    values: Mapping[str, str],
    switched_on: Collection[str],
    errors: Mapping[str, str],
) -> list[FormInput]:
    prefix = f"{list_id}."
    own_values = {
        name.removeprefix(prefix): value
        for name, value in values.items()
        if name.startswith(prefix)
    }
    _, *inputs = build_inputs(language, public.by_key.values(), own_values, errors)
    answers = []
    for each in inputs:
        name = prefix + each.name
        value = each.value
        if each.kind == FieldType.BOOLEAN:
            value = _ON if name in switched_on else ""
        answers.append(replace(each, name=name, value=value))
    return answers
