"""The inputs of a list's sign-up form: its own page has them, and a form on another site."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from core.errors import DomainError
from core.languages.reader_languages import marked, translated
from models import FieldType, MemberField
from services.mailing.attributes.field_values import MAX_VALUE_CHARACTERS
from services.people.email_addresses import MAX_ADDRESS_BYTES


@dataclass(frozen=True)
class ShownInput:
    """One input, with what the person wrote and what is wrong with it.

    Attributes:
        kind: ``email``, or the type of a field.
        choices: what can be chosen, as it is sent.
        input_type: the type of the ``<input>``, where it is one.
    """

    name: str
    label: str
    kind: str
    value: str = ""
    problem: str | None = None
    autocomplete: str = "off"
    choices: tuple[str, ...] = ()
    input_type: str = "text"

    @property
    def is_required(self) -> bool:
        return self.kind == "email"


def email_input(language: str, written: str, problem: str | None) -> ShownInput:
    """An address alone."""
    problems = {"email": problem} if problem else {}
    return shown_inputs(language, (), {"email": written}, problems)[0]


def answered_inputs(
    language: str,
    fields: Iterable[MemberField],
    written: Mapping[str, Any],
    problems: Mapping[str, str],
) -> list[ShownInput]:
    """The name and the fields of a member, who may also take an answer back."""
    _, *inputs = shown_inputs(language, fields, written, problems)
    return [
        replace(each, kind="yes_no") if each.kind == FieldType.BOOLEAN else each for each in inputs
    ]


def shown_inputs(
    language: str,
    fields: Iterable[MemberField],
    written: Mapping[str, Any],
    problems: Mapping[str, str],
) -> list[ShownInput]:
    """The address, the name, and each field that the owner opened.

    ``written`` and ``problems``: by the names of inputs.
    """
    email, name = translated(language, _EMAIL), translated(language, _NAME)
    inputs = [
        ShownInput("email", email, "email", autocomplete="email"),
        ShownInput("name", name, FieldType.TEXT, autocomplete="name"),
        *(_of_field(each) for each in fields),
    ]
    return [_filled(each, written, problems) for each in inputs]


_EMAIL = marked("E-mail address")
_NAME = marked("Name")


def _of_field(field: MemberField) -> ShownInput:
    return ShownInput(f"fields.{field.key}", field.label, field.type, choices=tuple(field.choices))


def _filled(
    shown: ShownInput, written: Mapping[str, Any], problems: Mapping[str, str]
) -> ShownInput:
    # Longer texts were no accident of a person's.
    most = MAX_ADDRESS_BYTES if shown.kind == "email" else MAX_VALUE_CHARACTERS
    value, problem = str(written.get(shown.name, ""))[:most], problems.get(shown.name)
    # Browsers show nothing of what is no date in an input for one.
    is_as_named = shown.kind == "email" or (shown.kind == FieldType.DATE and not problem)
    input_type = shown.kind if is_as_named else "text"
    return replace(shown, value=value, problem=problem, input_type=input_type)


def problems_of_fields(
    language: str, public: Mapping[str, MemberField], error: DomainError | None
) -> dict[str, str]:
    """What is wrong with answers, in words for the person, by the names of inputs."""
    found = {}
    for each in error.problems if error else ():
        name = each.field.removeprefix("body.")
        field = public.get(name.removeprefix("fields."))
        text = _NOT_TAKEN if field is None else _BY_TYPE[FieldType(field.type)]
        found[name] = translated(language, text)
    return found


_NOT_TAKEN = marked("We can’t take this answer as it is written.")
_BY_TYPE = {
    FieldType.TEXT: marked("This is too long."),
    FieldType.NUMBER: marked("Please write a number."),
    FieldType.DATE: marked("Please write a date as year, month and day, such as 2026-11-22."),
    FieldType.BOOLEAN: marked("Please answer with yes or no."),
    FieldType.CHOICE: marked("Please choose one of the answers."),
}
