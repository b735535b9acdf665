"""What an entry of the catalogue of refusals is."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from core.errors import DomainError, FieldProblem, Kind


@dataclasses.dataclass(frozen=True)
class Refusal:
    """One way in which a caller is refused; calling it makes the error to raise.

    Attributes:
        code: stable and dotted, such as ``list.slug_taken``. Programs decide by it.
        sentence: names the rule and the place, never a secret; ``{name}`` stands for a value that
            is given when the refusal is raised.
        field: the one place that breaks the rule, such as ``body.slug``, where it is always the
            same.
        retry_after: seconds after which the same request may succeed.
        examples: a value for each name in the sentence, for the document.
    """

    kind: Kind
    code: str
    sentence: str
    field: str | None = None
    retry_after: int | None = None
    examples: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __call__(self, *, retry_after: int | None = None, **values: object) -> DomainError:
        """The error, with ``values`` filled into its sentence."""
        message = self.sentence.format(**values) if values else self.sentence
        problems = () if self.field is None else (FieldProblem(self.field, self.code, message),)
        return DomainError(
            self.kind,
            self.code,
            message,
            retry_after=self.retry_after if retry_after is None else retry_after,
            problems=problems,
        )

    @property
    def documented(self) -> str:
        """The sentence as the document shows it, with example values."""
        return self.sentence.format(**self.examples) if self.examples else self.sentence
