"""The interface of language models, which respond with JSON."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True)
class CompletionRequest:
    """A request to a language model.

    Attributes:
        material: the text of a post.
        schema: the JSON schema of the response.
        seconds: the time limit for the request and its retry together.
        before_sending: a function that is called before each attempt to send the request.
            ``before_sending`` may cancel the request by raising an exception, for example if the
            API caller has disconnected.
    """

    instructions: str
    material: str
    schema: dict[str, Any]
    schema_name: str
    max_tokens: int
    seconds: float
    before_sending: Callable[[], object] = field(default=lambda: None, compare=False)


@dataclass(frozen=True)
class CompletionReply:
    """The response of a language model, which may violate the requested schema."""

    text: str
    model: str
    tokens_in: int
    tokens_out: int


@dataclass(frozen=True)
class Usage:
    """The outcome, token counts and duration of a language model request.

    Attributes:
        outcome: one of `answered`, `failed`, `unavailable` and `too_slow`.
        tokens_in: the number of input tokens that the language model's server reported.
        tokens_out: the number of output tokens that the language model's server reported.
    """

    model: str
    outcome: str
    tokens_in: int = 0
    tokens_out: int = 0
    seconds: float = 0.0


Report = Callable[[Usage], None]


class LanguageModel(Protocol):
    """A language model.

    Attributes:
        context_tokens: the maximum total number of input and output tokens of a request.
    """

    @property
    def name(self) -> str:
        """Return the model's name in the ``Pressroom-Source`` header, such as `openai/gpt-5`."""

    context_tokens: int

    def ask(self, question: CompletionRequest) -> CompletionReply:
        """Send a request to the model, and return the model's response.

        Raises ``llm.failed`` if the model gives no usable response. Raises ``llm.too_slow`` if the
        request exceeds its time limit. Raises ``llm.unavailable``, with a ``Retry-After``, if the
        server is unreachable or overloaded.
        """
