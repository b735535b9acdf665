"""Reads the reply of a server of OpenAI's protocol, and takes nothing in it for granted."""

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from integrations.llm.circuit import Health
from integrations.llm.failure import Failure
from integrations.llm.port import CompletionReply

# Anything but a count of tokens counts as none.
_Count = Annotated[int, BeforeValidator(lambda n: n if type(n) is int and n >= 0 else 0)]


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
        if choice.message.refusal:
            reason = "refusal"
        elif choice.finish_reason == "content_filter":
            reason = "filtered"
        elif choice.finish_reason == "length":
            reason = "longer than allowed"
        elif not text.strip():
            reason = "empty answer"
        else:
            return CompletionReply(text, model, *tokens)
        raise Failure(reason, health=Health.WORKS, tokens=tokens)


def read(body: bytes) -> Completion:
    """Raises ``Failure`` for what isn't of the protocol."""
    try:
        return Completion.model_validate_json(body)
    except ValidationError:
        raise Failure("not a completion") from None
