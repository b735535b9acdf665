"""What a server of OpenAI's protocol answered, of which nothing is taken for granted."""

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from integrations.llm.circuit import Health
from integrations.llm.failure import Failure
from integrations.llm.port import CompletionReply


def _count(value: object) -> int:
    return value if type(value) is int and value >= 0 else 0


_Count = Annotated[int, BeforeValidator(_count)]


class _Message(BaseModel):
    content: str | None = None
    refusal: str | None = None


class _Choice(BaseModel):
    message: _Message
    finish_reason: str | None = None


class _Usage(BaseModel):
    prompt_tokens: _Count = 0
    completion_tokens: _Count = 0


class Completion(BaseModel):
    choices: list[_Choice] = Field(min_length=1)
    usage: _Usage | None = None

    @property
    def tokens(self) -> tuple[int, int]:
        """In and out. A useless answer costs them too."""
        usage = self.usage or _Usage()
        return usage.prompt_tokens, usage.completion_tokens

    def reply(self, model: str) -> CompletionReply:
        """Raises ``Failure`` for what is no answer, or half of one."""
        tokens_in, tokens_out = self.tokens
        return CompletionReply(_text(self.choices[0]), model, tokens_in, tokens_out)


def read(body: bytes) -> Completion:
    """Raises ``Failure`` for what isn't of the protocol."""
    try:
        return Completion.model_validate_json(body)
    except ValidationError:
        raise Failure("not a completion") from None


def _text(choice: _Choice) -> str:
    if choice.message.refusal:
        raise _useless("refusal")
    if choice.finish_reason == "content_filter":
        raise _useless("filtered")
    if choice.finish_reason == "length":
        raise _useless("longer than allowed")
    if not (choice.message.content or "").strip():
        raise _useless("empty answer")
    return choice.message.content or ""


def _useless(reason: str) -> Failure:
    return Failure(reason, health=Health.WORKS)
