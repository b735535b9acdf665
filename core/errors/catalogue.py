"""Entries of the catalogue of errors."""

import dataclasses
from collections.abc import Mapping
from functools import partial
from typing import Any, Self

from core.errors import DomainError, FieldProblem, Kind


@dataclasses.dataclass(frozen=True)
class ErrorType:
    """A way in which a caller is refused; calling it makes the error to raise.

    Attributes:
        code: stable and dotted, such as ``list.slug_taken``. Programs decide by it.
        sentence: names the rule and the place, never a secret; ``{name}`` stands for a value that
            is given when the error is raised.
        field: the one place that breaks the rule, such as ``body.slug``; with the names of the
            sentence where it isn't always the same.
        retry_after: seconds after which the same request may succeed.
        examples: a value for each name in the sentence, for the document.
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
        """The error, with ``values`` filled into its sentence.

        Args:
            retry_after: instead of the entry's own, where it is known only now.
            problems: instead of that of the entry's ``field``, where there are several.
            needed_scope: what a credential would need for it not to be refused.
            facts: values that programs read by their names.
        """
        error = self.filled(**values) if values else self
        message = error.sentence
        if error.field is not None:
            problems = problems or (FieldProblem(error.field, self.code, message),)
        wait = self.retry_after if retry_after is None else retry_after
        return DomainError(self.kind, self.code, message, wait, problems, needed_scope, facts or {})

    def filled(self, **values: object) -> Self:
        """Return a copy of this error type with ``values`` filled into its sentence."""
        return dataclasses.replace(
            self,
            sentence=self.sentence.format(**values),
            field=None if self.field is None else self.field.format(**values),
            examples={},
        )

    @property
    def documented(self) -> str:
        """The sentence as the document shows it, with example values."""
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
    """Return the error of one field, which its sentence names before the rule."""
    return ErrorType(Kind.INVALID, code, f"{field}: {rule}", field, examples=examples)


# There is one for each kind, so that an entry of the catalogue reads ``not_found("list.not_found",
# "…")``, with an example of each value that its sentence names: ``city="Rome"``.
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
