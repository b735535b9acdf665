"""Builds form inputs for an e-mail address, a name and the member fields of a list."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from core.errors import DomainError
from core.languages.reader_languages import marked, translate
from models import FieldType, MemberField
from services.accounts.email_addresses import MAX_ADDRESS_BYTES
from services.subscriptions import member_attributes
from services.subscriptions.fields import MAX_VALUE_CHARACTERS

EMPTY_ADDRESS = marked("Please enter your e-mail address.")

_ADDRESS_LABEL = marked("E-mail address")
_NAME_LABEL = marked("Name")
_MISSING_VALUE = marked("Please answer this question.")
_INVALID_VALUE = marked("This answer isn’t valid.")
_INVALID_VALUE_BY_TYPE = {
    FieldType.TEXT: marked("This answer is too long."),
    FieldType.NUMBER: marked("Please enter a number."),
    FieldType.DATE: marked("Please enter a date as year-month-day, for example 2026-11-22."),
    FieldType.BOOLEAN: marked("Please answer with yes or no."),
    FieldType.CHOICE: marked("Please choose one of the answers."),
}


@dataclass(frozen=True)
class FormInput:
    """An input of a form, with its value and an error message.

    Attributes:
        kind: ``email`` for the e-mail address, or else the type of the member field.
        choices: the values to choose from, or empty if the user types the value.
    """

    name: str
    label: str
    kind: str
    value: str = ""
    problem: str | None = None
    autocomplete: str = "off"
    choices: tuple[str, ...] = ()
    input_type: str = "text"
    is_first_problem: bool = False
    is_required: bool = False


def build_inputs(
    language: str,
    fields: Iterable[MemberField],
    values: Mapping[str, Any],
    errors: Mapping[str, str],
    required_keys: Collection[str] = (),
) -> list[FormInput]:
    """Return form inputs for the e-mail address, the name and each member field, in this order.

    The keys of ``values`` and ``errors`` are the names of inputs.
    """

    def build_input(name: str, label: str, kind: str, **others: Any) -> FormInput:
        # Truncate very long values to keep the page small.
        max_characters = MAX_ADDRESS_BYTES if kind == "email" else MAX_VALUE_CHARACTERS
        value = str(values.get(name, ""))[:max_characters]
        error = errors.get(name)
        # Use a text input for an invalid date, because a date input would hide the typed text.
        has_own_type = kind == "email" or (kind == FieldType.DATE and not error)
        input_type = kind if has_own_type else "text"
        return FormInput(name, label, kind, value, error, input_type=input_type, **others)

    address_label = translate(language, _ADDRESS_LABEL)
    name_label = translate(language, _NAME_LABEL)
    inputs = [
        build_input("email", address_label, "email", autocomplete="email", is_required=True),
        build_input("name", name_label, FieldType.TEXT, autocomplete="name"),
    ]
    inputs += [
        build_input(
            f"fields.{field.key}",
            field.label,
            field.type,
            choices=tuple(field.choices),
            is_required=field.key in required_keys,
        )
        for field in fields
    ]
    first_problem = next((each for each in inputs if each.problem), None)
    return [replace(each, is_first_problem=each is first_problem) for each in inputs]


def describe_field_errors(
    language: str, fields: Mapping[str, MemberField], error: DomainError | None
) -> dict[str, str]:
    texts = {}
    for problem in error.problems if error else ():
        name = problem.field.removeprefix("body.")
        field = fields.get(name.removeprefix("fields."))
        if problem.code == member_attributes.REQUIRED_FIELD_CODE:
            text = _MISSING_VALUE
        elif field is None:
            text = _INVALID_VALUE
        else:
            text = _INVALID_VALUE_BY_TYPE[FieldType(field.type)]
        texts[name] = translate(language, text)
    return texts
