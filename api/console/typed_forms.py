"""Forms that keep the typed values, with each error beside its field."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Self, TypeVar

from pydantic import ValidationError

from api.errors import STATUS_OF
from api.schemas.envelope import Body
from core.errors import DomainError, FieldProblem, Kind, strip_pydantic_prefix
from core.errors.requests import BODY_INVALID

B = TypeVar("B", bound=Body)

SOMETHING_WRONG = "Please correct the fields below."
_NOTHING: Mapping[str, str] = MappingProxyType({})
# A form can show errors of these kinds; the others have a page of their own.
_SHOWN_IN_FORM = frozenset(
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
    """A form as it is shown: the typed values and the errors, by the fields' names.

    A box is ticked if its name has a value. ``problem``: the error of the form as a whole.
    """

    typed: Mapping[str, str] = field(default_factory=dict)
    wrong: Mapping[str, str] = field(default_factory=dict)
    problem: str | None = None
    status: int = 200

    def filled(self, values: Mapping[str, str]) -> Self:
        """Return the form with these values, unless it was sent with others."""
        return self if self.typed else replace(self, typed=values)

    def refused(self, error: DomainError, places: Mapping[str, str] = _NOTHING) -> Self:
        """Return the form with the error; raises an error that no form can correct.

        ``places``: the fields at which errors that name no field are shown, by their codes.
        """
        if error.kind not in _SHOWN_IN_FORM:
            raise error
        status = STATUS_OF[error.kind]
        if error.code in places:
            # Without the place in a program's body, which no person knows.
            own = (
                _rule_of(each)
                for each in error.problems
                if each.field.startswith("body.") and error.message.startswith(f"{each.field}: ")
            )
            wrong = {places[error.code]: next(own, error.message)}
        else:
            wrong = {_field_of(each): _rule_of(each) for each in error.problems}
        if not wrong or not all(wrong):
            return replace(self, problem=_sentence(error.message), status=status)
        return replace(self, wrong=wrong, problem=SOMETHING_WRONG, status=status)


def problem_form(error: DomainError, *kinds: Kind) -> TypedForm:
    """Return an empty form with an error of one of these kinds; raises any other."""
    if error.kind not in kinds:
        raise error
    return TypedForm(problem=error.message, status=STATUS_OF[error.kind])


def body_of_form(schema: type[B], values: Mapping[str, Any]) -> B:
    """Return the body that a program would send; raises ``body.invalid`` as the API does."""
    try:
        return schema.model_validate(values)
    except ValidationError as error:
        problems = tuple(
            FieldProblem(
                ".".join(["body", *map(str, each["loc"])]),
                each["type"],
                strip_pydantic_prefix(each["msg"]),
            )
            for each in error.errors()
        )
        first = problems[0]
        raise BODY_INVALID(place=first.field, rule=first.message, problems=problems) from None


def wrong_field(name: str, rule: str) -> DomainError:
    """Return the error of a form's own field, which is shown beside the field."""
    problem = FieldProblem(f"body.{name}", "value", rule)
    return BODY_INVALID(place=problem.field, rule=rule, problems=(problem,))


def text_or_none(typed: Mapping[str, str], name: str) -> str | None:
    return typed.get(name, "").strip() or None


def lines_of(typed: Mapping[str, str], name: str) -> list[str]:
    return [line.strip() for line in typed.get(name, "").splitlines() if line.strip()]


def _field_of(problem: FieldProblem) -> str:
    """Return the field of a place such as ``body.choices[1]`` or ``body.fields.city``."""
    place = problem.field.removeprefix("body.").partition("[")[0]
    first, _, rest = place.partition(".")
    # Numbered values are one field of the form; values with keys have a field each.
    return first if not rest or rest.isdigit() else f"{first}.{rest.partition('.')[0]}"


def _rule_of(problem: FieldProblem) -> str:
    return _sentence(problem.message.removeprefix(f"{problem.field}: "))


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "?", "!")) else ".")
