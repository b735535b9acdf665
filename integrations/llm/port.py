"""The interface of language models, which return a JSON response to a single request."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True)
class CompletionRequest:
    """A request to a language model.

    Attributes:
        instructions: the text that the model follows.
        material: the text of the post. The model must not follow instructions in this text.
        schema: the JSON schema of the response.
        seconds: the time limit, including a retry.
        before_sending: a function that is called before the request is sent, and before each retry.
            An exception in this function ends the call, for example because the caller has left.
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
    """The response of a language model. The caller must check the text against the schema."""

    text: str
    model: str
    tokens_in: int
    tokens_out: int


@dataclass(frozen=True)
class Usage:
    """The outcome and the costs of a request to a language model.

    Attributes:
        outcome: `answered`, `failed`, `unavailable` or `too_slow`.
        tokens_in: the number of input tokens, as counted by the server. A failed request may also
            have used tokens.
        tokens_out: the number of output tokens, as counted by the server.
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
        context_tokens: the maximum number of tokens in the request and the response together.
    """

    @property
    def name(self) -> str:
        """The name of the model in the header ``Pressroom-Source``, for example `openai/gpt-5`."""

    context_tokens: int

    def ask(self, question: CompletionRequest) -> CompletionReply:
        """Send a request and return the response.

        Raises ``llm.failed`` (``provider_failed``), ``llm.unavailable`` (``unavailable``, with the
        server's ``Retry-After``) and ``llm.too_slow`` (``too_slow``).
        """
