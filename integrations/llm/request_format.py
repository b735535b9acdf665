"""The strictest request format that a server accepts.

That is a JSON schema, else JSON mode, else a plain prompt. Servers differ in which they know, and
in their name for an answer's bound.
"""

import re
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

import orjson

from integrations.llm.failure import RequestRejected
from integrations.llm.port import CompletionRequest

_NEWER_LIMIT = "max_completion_tokens"
# Models that insist on the newer one may think before they answer, within the same bound.
_THINKING_TOKENS = 4000
# Words of several servers for a material that is too long: no other format changes that.
_TOO_MUCH = re.compile("context[_ ]length|context window|context size|too many tokens")


class ResponseFormat(IntEnum):
    SCHEMA = 0
    OBJECT = 1
    PROMPT = 2


@dataclass(frozen=True)
class RequestFormat:
    form: ResponseFormat = ResponseFormat.SCHEMA
    limit: str = "max_tokens"

    def after(self, refusal: RequestRejected) -> "RequestFormat | None":
        """The next format to try; None when none is left."""
        if _NEWER_LIMIT in refusal.text and self.limit != _NEWER_LIMIT:
            return replace(self, limit=_NEWER_LIMIT)
        if self.form is ResponseFormat.PROMPT or _TOO_MUCH.search(refusal.text):
            return None
        return replace(self, form=ResponseFormat(self.form + 1))

    def body(self, question: CompletionRequest, model: str) -> dict[str, Any]:
        thinking = _THINKING_TOKENS if self.limit == _NEWER_LIMIT else 0
        instructions = question.instructions
        if self.form is not ResponseFormat.SCHEMA:
            instructions += (
                "\n\nAnswer with one JSON object and nothing else. It is an instance of this JSON "
                f"schema:\n{orjson.dumps(question.schema).decode()}"
            )
        body: dict[str, Any] = {
            "model": model,
            "messages": [
                {"role": "system", "content": instructions},
                {"role": "user", "content": question.material},
            ],
            self.limit: question.max_tokens + thinking,
        }
        if self.form is ResponseFormat.SCHEMA:
            shape = {"name": question.schema_name, "strict": True, "schema": question.schema}
            body["response_format"] = {"type": "json_schema", "json_schema": shape}
        elif self.form is ResponseFormat.OBJECT:
            body["response_format"] = {"type": "json_object"}
        return body
