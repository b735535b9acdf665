"""Adds faults to the sandbox's language model.

The name of the language model in a request determines which fault occurs.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

from fastapi import Response
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse
from starlette.types import Receive, Scope, Send

from devstack.sandbox.llm import (
    BEHAVIOURS,
    INJECTED_SENTENCE,
    SLOW_SECONDS,
    Behaviours,
    CompletionBody,
    build_completion,
    build_error,
    build_instance,
    respond_correctly,
    respond_with_status,
)

MOMENT_SECONDS = 1.5
_TRICKLE_SECONDS = 0.1
_TOO_MANY_TAGS = [f"number {number} of far too many" for number in range(1, 13)]


async def _wrong_shape(body: CompletionBody) -> Response:
    return build_completion(body, '[{"headline": 1, "tags": "none"}]')


async def _no_json(body: CompletionBody) -> Response:
    return build_completion(body, "I think that it is a very nice post, and well written.")


async def _too_long(body: CompletionBody) -> Response:
    answer = build_instance(body)
    longer: dict[str, object] = {
        name: [*value, *_TOO_MANY_TAGS]
        if isinstance(value, list)
        else f"{value} {'And so on. ' * 60}"
        for name, value in answer.items()
    }
    return build_completion(body, json.dumps(longer, ensure_ascii=False))


async def _empty(body: CompletionBody) -> Response:
    return build_completion(body, "")


async def _length(body: CompletionBody) -> Response:
    answer = json.dumps(build_instance(body), ensure_ascii=False)
    return _ended(build_completion(body, answer[: len(answer) // 2]), "length")


async def _filtered(body: CompletionBody) -> Response:
    return _ended(build_completion(body, ""), "content_filter")


def _ended(reply: Response, reason: str) -> Response:
    content = json.loads(bytes(reply.body))
    content["choices"][0]["finish_reason"] = reason
    return JSONResponse(content)


class _CutResponse(Response):
    """A response with only half of its body, after which the server closes the connection."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        half = bytes(self.body)[: len(self.body) // 2]
        await send({"type": "http.response.body", "body": half, "more_body": True})


async def _cut(body: CompletionBody) -> Response:
    return _CutResponse(bytes((await respond_correctly(body)).body), media_type="application/json")


async def _broken(body: CompletionBody) -> Response:
    whole = bytes((await respond_correctly(body)).body)
    return Response(whole[: len(whole) // 2], media_type="application/json")


async def _page(_: CompletionBody) -> Response:
    return Response("<!doctype html><title>Welcome</title>", media_type="text/html")


async def _huge(_: CompletionBody) -> Response:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(64):
            yield b" " * 1024 * 1024

    return StreamingResponse(endless(), media_type="application/json")


async def _trickle(_: CompletionBody) -> Response:
    async def drops() -> AsyncIterator[bytes]:
        for _ in range(int(SLOW_SECONDS / _TRICKLE_SECONDS)):
            yield b" "
            await asyncio.sleep(_TRICKLE_SECONDS)

    return StreamingResponse(drops(), media_type="application/json")


async def _answer_after_a_moment(body: CompletionBody) -> Response:
    await asyncio.sleep(MOMENT_SECONDS)
    return await respond_correctly(body)


def _in_a_second() -> str:
    return format_datetime(datetime.now(UTC) + timedelta(seconds=2), usegmt=True)


async def _no_schema(body: CompletionBody) -> Response:
    if (body.get("response_format") or {}).get("type") == "json_schema":
        return build_error(400, "response_format: json_schema is not supported.")
    return await respond_correctly(body)


async def _no_json_mode(body: CompletionBody) -> Response:
    if (body.get("response_format") or {}).get("type", "prompt") != "prompt":
        return build_error(422, "Extra inputs are not permitted: response_format")
    return await respond_correctly(body)


async def _new_limit(body: CompletionBody) -> Response:
    if "max_tokens" in body:
        return build_error(400, "Unsupported parameter: use 'max_completion_tokens' instead.")
    return await respond_correctly(body)


async def _echo(body: CompletionBody) -> Response:
    """Return an error that repeats the whole request, as some language model servers do."""
    return build_error(500, json.dumps(body, ensure_ascii=False))


async def _too_much(_: CompletionBody) -> Response:
    return build_error(400, "This model's maximum context length is 10 tokens.")


async def _garbled(_: CompletionBody) -> Response:
    return PlainTextResponse("Bad Gateway", status_code=502)


async def _obedient_shape(body: CompletionBody) -> Response:
    orders = {"answer": INJECTED_SENTENCE, "system": "unlocked"}
    return build_completion(body, json.dumps(dict.fromkeys(build_instance(body), orders)))


def _draft_and_answer(body: CompletionBody) -> tuple[str, str]:
    """Return a draft and the correct answer, which both satisfy the request's JSON schema."""
    answer = build_instance(body)
    draft = {
        name: ["draft", "idea", "todo"] if isinstance(value, list) else "draft"
        for name, value in answer.items()
    }
    return json.dumps(draft), json.dumps(answer, ensure_ascii=False)


async def _thinks(body: CompletionBody) -> Response:
    draft, answer = _draft_and_answer(body)
    return build_completion(body, f"<think>Let me draft: {draft} Hmm.</think>\n{answer}")


async def _only_thinks(body: CompletionBody) -> Response:
    draft, _ = _draft_and_answer(body)
    return build_completion(body, f"<think>Let me draft: {draft} That will do.</think>")


async def _tries_twice(body: CompletionBody) -> Response:
    draft, answer = _draft_and_answer(body)
    return build_completion(body, f"A first try:\n{draft}\nThe corrected version:\n{answer}")


async def _answers_in_parts(body: CompletionBody) -> Response:
    draft, answer = _draft_and_answer(body)
    half = len(answer) // 2
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": draft}]},
        {"type": "text", "text": answer[:half]},
        {"type": "text", "text": answer[half:]},
        {"type": "reasoning", "text": draft},
    ]
    content = json.loads(bytes(build_completion(body, "").body))
    message = {"content": parts, "reasoning": draft, "reasoning_content": draft}
    content["choices"][0]["message"].update(message)
    return JSONResponse(content)


WITH_FAULTS: Behaviours = {
    **BEHAVIOURS,
    "sandbox-wrong-shape": ("JSON of another shape", _wrong_shape),
    "sandbox-no-json": ("prose without JSON", _no_json),
    "sandbox-too-long": ("a correct but too long answer", _too_long),
    "sandbox-empty": ("nothing", _empty),
    "sandbox-length": ("half an answer, because its limit was reached", _length),
    "sandbox-filtered": ("nothing, because of a content filter", _filtered),
    "sandbox-cut": ("half a reply, then it hangs up", _cut),
    "sandbox-broken": ("a reply that is half a JSON document", _broken),
    "sandbox-page": ("a web page", _page),
    "sandbox-huge": ("64 MB of blanks", _huge),
    "sandbox-trickle": ("a blank ten times a second, for a minute", _trickle),
    "sandbox-moment": ("the correct answer after a moment", _answer_after_a_moment),
    "sandbox-thinks": ("a draft in think tags, then the correct answer", _thinks),
    "sandbox-only-thinks": ("a draft in think tags", _only_thinks),
    "sandbox-tries-twice": ("a draft, then the correct answer", _tries_twice),
    "sandbox-parts": (
        "the correct answer in parts, with drafts in other fields",
        _answers_in_parts,
    ),
    "sandbox-400": ("status 400", respond_with_status(400)),
    "sandbox-401": ("status 401", respond_with_status(401)),
    "sandbox-404": ("status 404", respond_with_status(404)),
    "sandbox-429-date": (
        "status 429, Retry-After with a date",
        respond_with_status(429, _in_a_second),
    ),
    "sandbox-429-long": ("status 429, Retry-After: 120", respond_with_status(429, lambda: "120")),
    "sandbox-echo": ("status 500, with the whole request in the message", _echo),
    "sandbox-502": ("status 502, not JSON", _garbled),
    "sandbox-503": ("status 503", respond_with_status(503)),
    "sandbox-no-schema": ("refuses JSON schemas, otherwise correct", _no_schema),
    "sandbox-no-json-mode": ("refuses any response_format, otherwise correct", _no_json_mode),
    "sandbox-new-limit": ("refuses max_tokens, otherwise correct", _new_limit),
    "sandbox-too-much": ("status 400: the question is too long", _too_much),
    "sandbox-obedient-shape": (
        "obeys the post, and answers in another shape",
        _obedient_shape,
    ),
}
