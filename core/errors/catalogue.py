"""Functions that declare error types, one per error kind."""

import dataclasses
from collections.abc import Mapping
from functools import partial
from typing import Any, Self

from core.errors import DomainError, FieldProblem, Kind


@dataclasses.dataclass(frozen=True)
class ErrorType:
    """A declared error. Calling an ``ErrorType`` creates the exception to raise.

    Attributes:
        sentence: the error message, in which ``{name}`` is a placeholder for a value. The message
            names the invalid field and the rule that it breaks.
        field: the invalid field, such as ``body.slug``. The field's path may contain placeholders.
        retry_after: the number of seconds to wait before repeating the request.
        examples: an example value for each placeholder in the sentence, for the API document.
    """

    kind: Kind
    code: str
    sentence: str
    field: str | None = None
    retry_after: int | None = None
    examples: Mapping[str, object] = dataclasses.field(default_factory=dict)

    def __call__(
        self,
        *,
        retry_after: int | None = None,
        problems: tuple[FieldProblem, ...] = (),
        needed_scope: str | None = None,
        facts: Mapping[str, Any] | None = None,
        **values: object,
    ) -> DomainError:
        """Create the exception, and insert ``values`` into its message.

        Args:
            retry_after: replaces the default ``retry_after`` of the error type.
            facts: values for programs, such as a balance, so that programs don't have to parse the
                message.
        """
        error = self.fill(**values) if values else self
        message = error.sentence
        if error.field is not None:
            problems = problems or (FieldProblem(error.field, self.code, message),)
        wait = self.retry_after if retry_after is None else retry_after
        return DomainError(self.kind, self.code, message, wait, problems, needed_scope, facts or {})

    def fill(self, **values: object) -> Self:
        return dataclasses.replace(
            self,
            sentence=self.sentence.format(**values),
            field=None if self.field is None else self.field.format(**values),
            examples={},
        )

    @property
    def example_sentence(self) -> str:
        return self.sentence.format(**self.examples) if self.examples else self.sentence


def _entry(
    kind: Kind,
    code: str,
    sentence: str,
    /,
    *,
    field: str | None = None,
    retry_after: int | None = None,
    **examples: object,
) -> ErrorType:
    return ErrorType(kind, code, sentence, field, retry_after, examples)


def invalid_at(field: str, code: str, rule: str, /, **examples: object) -> ErrorType:
    """Return the error type. Its sentence starts with the field's name."""
    return ErrorType(Kind.INVALID, code, f"{field}: {rule}", field, examples=examples)


# Each function declares an error of one kind, for example ``not_found("list.not_found", "…")``.
# Keyword arguments such as ``city="Rome"`` are example values for the placeholders in the error
# message.
conflict = partial(_entry, Kind.CONFLICT)
damaged = partial(_entry, Kind.DAMAGED)
forbidden = partial(_entry, Kind.FORBIDDEN)
invalid = partial(_entry, Kind.INVALID)
malformed = partial(_entry, Kind.MALFORMED)
not_allowed = partial(_entry, Kind.NOT_ALLOWED)
not_found = partial(_entry, Kind.NOT_FOUND)
path_too_long = partial(_entry, Kind.PATH_TOO_LONG)
payment_needed = partial(_entry, Kind.PAYMENT_NEEDED)
provider_failed = partial(_entry, Kind.PROVIDER_FAILED)
range_refused = partial(_entry, Kind.RANGE)
rate_limited = partial(_entry, Kind.RATE_LIMITED)
stalled = partial(_entry, Kind.STALLED)
too_large = partial(_entry, Kind.TOO_LARGE)
too_slow = partial(_entry, Kind.TOO_SLOW)
unauthenticated = partial(_entry, Kind.UNAUTHENTICATED)
unavailable = partial(_entry, Kind.UNAVAILABLE)
unsupported_type = partial(_entry, Kind.UNSUPPORTED_TYPE)
