"""What a server of OpenAI's protocol answered, of which nothing is taken for granted."""

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from integrations.llm.circuit import Health
from integrations.llm.failure import Failure
from integrations.llm.port import Reply


def _count(value: object) -> int:
    is_count = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return int(value) if is_count else 0  # type: ignore[call-overload, no-any-return]


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


class _Completion(BaseModel):
    choices: list[_Choice] = Field(min_length=1)
    usage: _Usage | None = None


def read(body: bytes, model: str) -> Reply:
    """Raises ``Failure`` for what is no answer, or half of one."""
    try:
        completion = _Completion.model_validate_json(body)
    except ValidationError:
        raise Failure("not a completion") from None
    choice, usage = completion.choices[0], completion.usage or _Usage()
    return Reply(
        text=_text(choice),
        model=model,
        tokens_in=usage.prompt_tokens,
        tokens_out=usage.completion_tokens,
    )


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
