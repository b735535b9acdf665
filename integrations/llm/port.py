"""The interface of language models, which answer each request with JSON."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True)
class CompletionRequest:
    """A request to a language model.

    Attributes:
        instructions: the instructions that the model must follow.
        material: the text of a post, to which the instructions apply. The model must not follow
            instructions in the post.
        schema: the JSON schema of the response.
        seconds: the time limit of the request, including a retry.
        before_sending: a function that is called before the request is sent, and before each retry.
            ``before_sending`` may raise an exception to cancel the request, for example because the
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
    """The response of a language model, which may violate the requested JSON schema."""

    text: str
    model: str
    tokens_in: int
    tokens_out: int


@dataclass(frozen=True)
class Usage:
    """The outcome, token counts and duration of a request to a language model.

    Attributes:
        outcome: one of `answered`, `failed`, `unavailable` and `too_slow`.
        tokens_in: the number of input tokens, as counted by the server. Even a failed request may
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
        """Return the model's name for the header ``Pressroom-Source``, such as `openai/gpt-5`."""

    context_tokens: int

    def ask(self, question: CompletionRequest) -> CompletionReply:
        """Send a request to the model, and return the model's response.

        Raises ``llm.failed`` (``provider_failed``) if the model gives no usable response. Raises
        ``llm.too_slow`` (``too_slow``) if the request exceeds its time limit. Raises
        ``llm.unavailable`` (``unavailable``), with a ``Retry-After``, if the server is unreachable
        or overloaded.
        """
