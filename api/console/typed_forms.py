"""Forms that keep what was typed, with what was wrong beside its field."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Self, TypeVar

from pydantic import ValidationError

from api.errors import STATUS_OF
from api.schemas.envelope import Body
from core.errors import DomainError, FieldProblem, Kind, own_words
from core.refusals.requests import BODY_INVALID

B = TypeVar("B", bound=Body)

_SOMETHING_WRONG = "Something isn’t right yet: it is told beside its field."
_NOTHING: Mapping[str, str] = MappingProxyType({})
# A form can say why it was refused by any of these; others are for a page of their own.
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
    """What a form shows: what was typed, by the fields' names, and what was wrong.

    A box is ticked whose name is there. ``problem``: of the form as a whole.
    """

    typed: Mapping[str, str] = field(default_factory=dict)
    wrong: Mapping[str, str] = field(default_factory=dict)
    problem: str | None = None
    status: int = 200

    def refused(self, error: DomainError, places: Mapping[str, str] = _NOTHING) -> Self:
        """The form once more, with the refusal; raises one that no form can put right.

        Args:
            places: the fields beside which refusals stand that name no field, by their codes.
        """
        if error.kind not in _SHOWN_IN_FORM:
            raise error
        status = STATUS_OF[error.kind]
        if error.code in places:
            return self._wrong({places[error.code]: _own_rule(error)}, status)
        found = {_field_of(each): _rule_of(each) for each in error.problems}
        if not found or not all(found):
            return replace(self, problem=_sentence(error.message), status=status)
        return self._wrong(found, status)

    def _wrong(self, wrong: Mapping[str, str], status: int) -> Self:
        return replace(self, wrong=wrong, problem=_SOMETHING_WRONG, status=status)


def body_of_form(schema: type[B], values: Mapping[str, Any]) -> B:
    """What a program would send; raises ``body.invalid`` as the API does."""
    try:
        return schema.model_validate(values)
    except ValidationError as error:
        problems = tuple(
            FieldProblem(
                ".".join(["body", *map(str, each["loc"])]), each["type"], own_words(each["msg"])
            )
            for each in error.errors()
        )
        first = problems[0]
        raise BODY_INVALID(place=first.field, rule=first.message, problems=problems) from None


def wrong_field(name: str, rule: str) -> DomainError:
    """The refusal of a form's own field; it stands beside the field."""
    problem = FieldProblem(f"body.{name}", "value", rule)
    return BODY_INVALID(place=problem.field, rule=rule, problems=(problem,))


def text_or_none(typed: Mapping[str, str], name: str) -> str | None:
    """What a person typed; ``None`` for nothing."""
    return typed.get(name, "").strip() or None


def lines_of(typed: Mapping[str, str], name: str) -> list[str]:
    """The lines of a field that has one thing a line."""
    return [line.strip() for line in typed.get(name, "").splitlines() if line.strip()]


def _field_of(problem: FieldProblem) -> str:
    """The form's field that a place such as ``body.choices[1]`` or ``body.fields.city`` names."""
    place = problem.field.removeprefix("body.").partition("[")[0]
    first, _, rest = place.partition(".")
    # What pydantic numbers is one field of the form; what has a key is a field for each key.
    return first if not rest or rest.isdigit() else f"{first}.{rest.partition('.')[0]}"


def _own_rule(error: DomainError) -> str:
    """The sentence of a refusal without the place of a program's body, which no person knows."""
    for each in error.problems:
        if each.field.startswith("body.") and error.message.startswith(f"{each.field}: "):
            return _rule_of(each)
    return error.message


def _rule_of(problem: FieldProblem) -> str:
    return _sentence(problem.message.removeprefix(f"{problem.field}: "))


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "?", "!")) else ".")
