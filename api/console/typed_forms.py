"""Keeps the typed values of a form after an error, and adds error messages."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Self, TypeVar

from pydantic import ValidationError

from api.console.console_display import format_sentence
from api.errors import STATUS_OF, body_error
from api.html.field_errors import place_message
from api.schemas.envelope import Body
from core.errors import DomainError, FieldProblem, Kind
from core.errors.requests import BODY_INVALID

BodyT = TypeVar("BodyT", bound=Body)

CORRECT_FIELDS_TEXT = "Please correct the fields below."
# The error messages for empty fields. A rule such as "1 to 40 characters" would confuse a user who
# typed nothing.
_EMPTY_FIELD_TEXTS: Mapping[str, str] = {
    "title": "Enter a title.",
    "slug": "Enter a web address.",
    "name": "Enter a name.",
    "label": "Enter a name.",
    "key": "Enter a key.",
    "email": "Enter an e-mail address.",
    "tag_name": "Enter a tag.",
    "topic_arn": "Enter the SNS topic ARN.",
    "signing_key": "Enter the HTTP webhook signing key.",
    "public_key": "Enter the verification key.",
    "signing_secret": "Enter the signing secret.",
}
# More digits than any number in a form needs. Python refuses to convert thousands of digits.
_NUMBER_PATTERN = re.compile(r"-?[0-9]{1,18}")
_NO_PLACES: Mapping[str, str] = MappingProxyType({})
# The kinds of errors that are shown in the form. Errors of kinds that a user can't correct are
# shown on a separate page.
_CORRECTABLE_KINDS = frozenset(
    {
        Kind.MALFORMED,
        Kind.INVALID,
        Kind.PAYMENT_NEEDED,
        Kind.FORBIDDEN,
        Kind.CONFLICT,
        Kind.TOO_LARGE,
        Kind.UNSUPPORTED_TYPE,
        Kind.RATE_LIMITED,
        Kind.PROVIDER_FAILED,
        Kind.UNAVAILABLE,
        Kind.TOO_SLOW,
    }
)


@dataclass(frozen=True)
class TypedForm:
    """The values and the error messages of a form.

    Attributes:
        typed: maps the name of each field to the typed value. ``typed`` doesn't contain unticked
            checkboxes.
        errors: maps the names of invalid fields to error messages.
        problem: a message about the whole form, or ``None``.
        status: the HTTP status of the page with the form.
        is_restored: whether the values were typed before a login that the form required.
    """

    typed: Mapping[str, str] = field(default_factory=dict)
    errors: Mapping[str, str] = field(default_factory=dict)
    problem: str | None = None
    status: int = 200
    is_restored: bool = False

    def fill(self, values: Mapping[str, str]) -> Self:
        """Return the form filled with the user's input, or with ``values`` if there is no input."""
        return self if self.typed else replace(self, typed=values)

    def add_error(self, error: DomainError, places: Mapping[str, str] = _NO_PLACES) -> Self:
        """Return the form with an error message, or raise an error that forms can't show.

        ``places``: maps an error code to the form field that shows the error.
        """
        if error.kind not in _CORRECTABLE_KINDS:
            raise error
        status = STATUS_OF[error.kind]
        if error.code in places:
            # An API error message names the position of the error in the request body. Remove the
            # position of the error from the message, because the user of a form sees no request
            # body.
            rules = (
                _format_rule(problem)
                for problem in error.problems
                if error.message.startswith(f"{problem.field}: ")
            )
            errors = {places[error.code]: next(rules, error.message)}
        else:
            errors = {_get_field_name(each): _format_rule(each) for each in error.problems}
        if not errors or not all(errors):
            return replace(self, problem=format_sentence(error.message), status=status)
        errors |= {
            name: text
            for name, text in _EMPTY_FIELD_TEXTS.items()
            if name in errors and not self.typed.get(name, "").strip()
        }
        return replace(self, errors=errors, problem=CORRECT_FIELDS_TEXT, status=status)


def build_error_form(error: DomainError, *kinds: Kind) -> TypedForm:
    """Return an empty form with an error message, or raise an error of another kind."""
    if error.kind not in kinds:
        raise error
    problem, errors = place_message(error)
    return TypedForm(errors=errors, problem=problem, status=STATUS_OF[error.kind])


def parse_body(schema: type[BodyT], values: Mapping[str, Any]) -> BodyT:
    """Convert the values of a form to the body of an API call, or raise ``body.invalid``."""
    try:
        return schema.model_validate(values)
    except ValidationError as error:
        raise body_error(error) from None


def build_field_error(name: str, rule: str) -> DomainError:
    """Return the error for a form field that has no counterpart in the API's request body."""
    problem = FieldProblem(f"body.{name}", "value", rule)
    return BODY_INVALID(place=problem.field, rule=rule, problems=(problem,))


def read_text(typed: Mapping[str, str], name: str) -> str | None:
    return typed.get(name, "").strip() or None


def read_number(typed: Mapping[str, str], name: str) -> int | str | None:
    """Return the whole number in a form field, or else the text, which the form's validation
    rejects. A number with thousands of digits is a text.
    """
    text = read_text(typed, name)
    return int(text) if text and _NUMBER_PATTERN.fullmatch(text) else text


def read_lines(typed: Mapping[str, str], name: str) -> list[str]:
    return [line.strip() for line in typed.get(name, "").splitlines() if line.strip()]


def _get_field_name(problem: FieldProblem) -> str:
    """Return the name of the form field for a path such as ``body.choices[1]``."""
    place = problem.field.removeprefix("body.").partition("[")[0]
    # An array in the request body has a single form field, but an object has a form field per key.
    return ".".join(place.split(".")[:2])


def _format_rule(problem: FieldProblem) -> str:
    return format_sentence(problem.message.removeprefix(f"{problem.field}: "))
