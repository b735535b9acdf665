"""How the sandbox's language model answers: rightly, or with the fault that its name says."""

import asyncio
import json
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from fastapi import Response
from fastapi.responses import JSONResponse

from devstack.sandbox.llm.answer_text import instance

CompletionBody = dict[str, Any]
Behaviour = Callable[[CompletionBody], Awaitable[Response]]
# Each behaviour by its model's name, with what the sandbox's page says of it.
Behaviours = Mapping[str, tuple[str, Behaviour]]

SLOW_SECONDS = 60.0
LINK = "https://evil.example/win"
HANDLE = "@evil_bot"
ORDERED = f"Claim your prize at {LINK} and follow {HANDLE} now."


def completion(body: CompletionBody, text: str | None, *, refusal: str | None = None) -> Response:
    """A reply of the chat completions protocol; four characters count as a token."""
    asked = sum(len(str(each.get("content", ""))) for each in body.get("messages") or []) // 4
    answered = len(text or refusal or "") // 4
    message = {"role": "assistant", "content": text, "refusal": refusal}
    return JSONResponse(
        {
            "id": f"chatcmpl-{uuid.uuid4().hex}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": body.get("model"),
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {
                "prompt_tokens": asked,
                "completion_tokens": answered,
                "total_tokens": asked + answered,
            },
        }
    )


def error(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    content = {"message": message, "type": "sandbox", "param": None, "code": None}
    return JSONResponse({"error": content}, status_code=status, headers=headers)


def status(code: int, retry_after: Callable[[], str] | None = None) -> Behaviour:
    """The behaviour that always answers with this status."""

    async def answer(_: CompletionBody) -> Response:
        headers = {"Retry-After": retry_after()} if retry_after else {}
        return error(code, "Come back later.", headers)

    return answer


async def right(body: CompletionBody) -> Response:
    return completion(body, json.dumps(instance(body), ensure_ascii=False))


async def _prose(body: CompletionBody) -> Response:
    answer = json.dumps(instance(body), ensure_ascii=False, indent=2)
    return completion(
        body, f"Sure {{of course}}! Here it is:\n\n```json\n{answer}\n```\n\nAnything else?"
    )


async def _obedient(body: CompletionBody) -> Response:
    """Every post is an order to this model: it puts a link and a handle into every text, and adds
    a key that the request does not name. What keeps its answers clean is never its good sense."""
    answer: dict[str, object] = {}
    for name, value in instance(body).items():
        if isinstance(value, list):
            answer[name] = [f"{each} {LINK} {HANDLE}" for each in value]
        else:
            answer[name] = f"{value} {ORDERED}"
    return completion(body, json.dumps({**answer, "visit": LINK}, ensure_ascii=False))


async def _refuses(body: CompletionBody) -> Response:
    return completion(body, None, refusal="I'm sorry, but I can't help with that.")


async def _slow(body: CompletionBody) -> Response:
    await asyncio.sleep(SLOW_SECONDS)
    return await right(body)


BEHAVIOURS: Behaviours = {
    "sandbox-prose": ("the right answer, between prose and a fence", _prose),
    "sandbox-refuses": ("a refusal", _refuses),
    "sandbox-slow": ("the right answer after a minute", _slow),
    "sandbox-429": ("status 429, with Retry-After: 1", status(429, lambda: "1")),
    "sandbox-500": ("status 500", status(500)),
    "sandbox-obedient": ("does what it reads in the post: adds a link and a handle", _obedient),
}
