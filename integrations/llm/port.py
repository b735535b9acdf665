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
        before_sending: a function that is called before each attempt. ``before_sending`` may cancel
            the request by raising an exception, for example if the API caller has disconnected.
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
    """``outcome`` is one of `answered`, `failed`, `unavailable` and `too_slow`. The server reports
    the numbers of tokens.
    """

    model: str
    outcome: str
    tokens_in: int = 0
    tokens_out: int = 0
    seconds: float = 0.0


Report = Callable[[Usage], None]


class LanguageModel(Protocol):
    """``context_tokens`` is the maximum total number of input and output tokens of a request."""

    @property
    def name(self) -> str:
        """Return the model's name in the ``Pressroom-Source`` header, such as `openai/gpt-5`."""

    context_tokens: int

    def ask(self, question: CompletionRequest) -> CompletionReply:
        """Return the model's response, or raise one of three errors.

        The errors are ``llm.failed`` for an unusable response, ``llm.too_slow`` for an exceeded
        time limit, and ``llm.unavailable``, with a ``Retry-After``, for an unreachable or
        overloaded server.
        """
