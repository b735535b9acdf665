"""Inputs of a form for an address, a name and the fields of a list."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from core.errors import DomainError
from core.languages.reader_languages import marked, translated
from models import FieldType, MemberField
from services.accounts.email_addresses import MAX_ADDRESS_BYTES
from services.subscriptions import member_attributes
from services.subscriptions.fields import MAX_VALUE_CHARACTERS

_EMAIL = marked("E-mail address")
_NAME = marked("Name")
NO_ADDRESS = marked("Please write your e-mail address.")
_NOT_TAKEN = marked("We can’t take this answer as it is written.")
_UNANSWERED = marked("Please answer this.")
_BY_TYPE = {
    FieldType.TEXT: marked("This is too long."),
    FieldType.NUMBER: marked("Please write a number."),
    FieldType.DATE: marked("Please write a date as year, month and day, such as 2026-11-22."),
    FieldType.BOOLEAN: marked("Please answer with yes or no."),
    FieldType.CHOICE: marked("Please choose one of the answers."),
}


@dataclass(frozen=True)
class ShownInput:
    """An input, with the text that the person wrote and its error.

    Attributes:
        kind: ``email``, or the type of a field.
        choices: the values to choose from.
        input_type: the type of the ``<input>``, if it is one.
        is_first_problem: whether the page begins here when it is shown again.
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


def shown_inputs(
    language: str,
    fields: Iterable[MemberField],
    written: Mapping[str, Any],
    problems: Mapping[str, str],
    required: Collection[str] = (),
) -> list[ShownInput]:
    """Return inputs for the address, the name, and each of these fields.

    ``written`` and ``problems``: by the names of inputs. ``required``: keys of fields.
    """

    def shown(name: str, label: str, kind: str, **others: Any) -> ShownInput:
        # A longer text was not typed by accident.
        most = MAX_ADDRESS_BYTES if kind == "email" else MAX_VALUE_CHARACTERS
        value, problem = str(written.get(name, ""))[:most], problems.get(name)
        # In an input for a date browsers show nothing else.
        is_as_named = kind == "email" or (kind == FieldType.DATE and not problem)
        input_type = kind if is_as_named else "text"
        return ShownInput(name, label, kind, value, problem, input_type=input_type, **others)

    email, name = translated(language, _EMAIL), translated(language, _NAME)
    inputs = [
        shown("email", email, "email", autocomplete="email", is_required=True),
        shown("name", name, FieldType.TEXT, autocomplete="name"),
    ]
    for each in fields:
        choices, is_required = tuple(each.choices), each.key in required
        name = f"fields.{each.key}"
        inputs.append(shown(name, each.label, each.type, choices=choices, is_required=is_required))
    first = next((each for each in inputs if each.problem), None)
    return [replace(each, is_first_problem=each is first) for each in inputs]


def problems_of_fields(
    language: str, public: Mapping[str, MemberField], error: DomainError | None
) -> dict[str, str]:
    """Return the errors of answers, in words for the person, by the names of inputs."""
    found = {}
    for each in error.problems if error else ():
        name = each.field.removeprefix("body.")
        field = public.get(name.removeprefix("fields."))
        text = _NOT_TAKEN if field is None else _BY_TYPE[FieldType(field.type)]
        text = _UNANSWERED if each.code == member_attributes.MISSING else text
        found[name] = translated(language, text)
    return found
