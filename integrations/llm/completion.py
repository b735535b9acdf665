"""Reads the reply of a server of OpenAI's protocol, and takes nothing in it for granted."""

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

    def reply(self, model: str) -> CompletionReply:
        """Raises ``Failure`` for what is no answer, or half of one. That costs its tokens too."""
        choice, usage = self.choices[0], self.usage or _Usage()
        tokens = usage.prompt_tokens, usage.completion_tokens
        text = choice.message.content or ""
        reason = _uselessness(choice, text)
        if reason:
            raise Failure(reason, health=Health.WORKS, tokens=tokens)
        return CompletionReply(text, model, *tokens)


def read(body: bytes) -> Completion:
    """Raises ``Failure`` for what isn't of the protocol."""
    try:
        return Completion.model_validate_json(body)
    except ValidationError:
        raise Failure("not a completion") from None


def _uselessness(choice: _Choice, text: str) -> str | None:
    if choice.message.refusal:
        return "refusal"
    if choice.finish_reason == "content_filter":
        return "filtered"
    if choice.finish_reason == "length":
        return "longer than allowed"
    return None if text.strip() else "empty answer"
