import time
import uuid
from typing import Any

from fastapi import Response
from fastapi.responses import JSONResponse


def completion(
    body: dict[str, Any],
    text: str | None,
    *,
    refusal: str | None = None,
    finish_reason: str = "stop",
) -> Response:
    """A reply of the chat completions protocol; four characters count as a token."""
    asked = sum(len(str(each.get("content", ""))) for each in body.get("messages") or []) // 4
    answered = len(text or refusal or "") // 4
    message = {"role": "assistant", "content": text, "refusal": refusal}
    usage = {
        "prompt_tokens": asked,
        "completion_tokens": answered,
        "total_tokens": asked + answered,
    }
    return JSONResponse(
        {
            "id": f"chatcmpl-{uuid.uuid4().hex}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": body.get("model"),
            "choices": [{"index": 0, "message": message, "finish_reason": finish_reason}],
            "usage": usage,
        }
    )
