"""The port of language models: one answer of a known shape to one question."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True)
class CompletionRequest:
    """``instructions`` are ours; ``material`` is the post's, and never followed."""

    instructions: str
    material: str
    # A JSON schema, of which the answer is an instance.
    schema: dict[str, Any]
    schema_name: str
    max_tokens: int
    # Seconds for this call, a retry included.
    seconds: float
    # Called before each request that is sent for it, a retry included. An exception from it ends
    # the call: by then the caller may have left.
    before_sending: Callable[[], object] = field(default=lambda: None, compare=False)


@dataclass(frozen=True)
class CompletionReply:
    """The text as it came: whether it keeps to the schema is for the caller to check."""

    text: str
    model: str
    tokens_in: int
    tokens_out: int


@dataclass(frozen=True)
class Usage:
    """The outcome of one question: `answered`, `failed`, `unavailable` or `too_slow`. Tokens are
    the server's count, whether or not the answer was of use."""

    model: str
    outcome: str
    tokens_in: int = 0
    tokens_out: int = 0
    seconds: float = 0.0


Report = Callable[[Usage], None]


class LanguageModel(Protocol):
    """Raises ``llm.failed`` (``provider_failed``), ``llm.unavailable`` (``unavailable``, with what
    ``Retry-After`` said) and ``llm.too_slow`` (``too_slow``): after them, another answer would need
    another call."""

    @property
    def name(self) -> str:
        """As the header ``Pressroom-Source`` names it: `openai/<model>`."""

    # The time for a question and its answer together.
    context_tokens: int

    def ask(self, question: CompletionRequest) -> CompletionReply: ...
